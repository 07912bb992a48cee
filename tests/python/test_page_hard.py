"""The page where it is hard: hostile names, runs that grow or go, a server that restarts, a slow network, ten thousand tensors."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from debug_service import Home, wait_until
from many_records import manifest, write_many
from page_browser import browser, expect, needs_browser, tab
from program import PROGRAM

pytestmark = needs_browser

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "javascript:alert(3)",
    "a.\"'><svg onload=alert(4)>.b",
    "${alert(5)}",
    "x\u202egnp.exe",
    "name with  blanks",
    "..",
    "😀.é",
    "__proto__",
    "constructor.prototype",
    "a" * 900,
]


@pytest.fixture(scope="module")
def started():
    with browser() as one:
        yield one


@pytest.fixture
def home(tmp_path):
    one = Home(tmp_path)
    one.home.mkdir(parents=True)
    yield one
    one.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_names_are_text(started, home, width):
    small = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, factor in (("a", 1), ("b", 2)):
        write_many(home.home / "runs" / name, EVIL, [small * np.float32(factor)], program={"argv": ["python", EVIL[0]]})
        (home.home / "runs" / name / "run.json").write_text(
            manifest(name, name=EVIL[1] + name, program={"argv": ["python", EVIL[0]]})
        )
    home.ensure()
    with tab(started, home, width=width) as one:
        page = one.open("runs")
        expect(page.locator("ls-table")).to_contain_text("</script><script>alert(2)</script>a")
        page = one.open("runs/a")
        page.get_by_label("filter tensors").fill("*")
        expect(page.locator("ls-table .tr").first).to_contain_text(EVIL[0])
        page.locator("ls-table .tr").first.click()
        expect(page.locator(".right .title")).to_have_text(EVIL[0])
        for k in range(len(EVIL)):
            page.keyboard.press("j")
        page = one.open("compare?reference=a&candidate=b")
        expect(page.locator("#verdict")).to_have_text("Mismatch")
        page.keyboard.press("Control+k")
        page.keyboard.type("onerror")
        expect(page.locator("dialog li").first).to_contain_text("<img")
        page.keyboard.press("Escape")
        assert page.locator("img[src=x], main script, svg[onload]").count() == 0
        one.check()


WRITER = """import pathlib, time
import numpy as np
from lockstep import checkpoint

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)

checkpoint("one.first", np.ones((2, 2), np.float32))
wait_for("more")
for k in range(300):
    checkpoint("one.second", np.full((2, 2), k, np.float32))
wait_for("end")
"""


def test_a_run_that_is_being_written_grows_on_screen(started, home):
    script = home.write("writer.py", WRITER)
    home.ensure()
    writer = subprocess.Popen(
        [PROGRAM, "record", "--name", "live", "--", sys.executable, script],
        cwd=home.folder,
        env=home.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: any(r["name"] == "live" for r in home.get("runs/list")["runs"]))
        wait_until(lambda: home.get("runs/tensors", run="latest:live")["total"] == 1)
        with tab(started, home) as one:
            page = one.open("runs/latest:live")
            expect(page.locator(".left")).to_contain_text("first")
            expect(page.locator(".chips").first).to_contain_text("running")
            (home.folder / "more").touch()
            expect(page.locator(".left")).to_contain_text("301")
            expect(page.locator(".left")).to_contain_text("second")
            (home.folder / "end").touch()
            expect(page.locator(".chips").first).to_contain_text("finished")
            one.check()
    finally:
        (home.folder / "more").touch(), (home.folder / "end").touch()
        writer.wait(30)


def test_a_run_that_is_removed_says_so(started, home):
    write_many(home.home / "runs" / "gone", ["x", "y"], [np.ones((2, 2), np.float32)])
    write_many(home.home / "runs" / "stays", ["x"], [np.ones((2, 2), np.float32)])
    home.ensure()
    with tab(started, home) as one:
        page = one.open("runs/gone")
        expect(page.locator("ls-heat figcaption")).to_contain_text("2 × 2")
        shutil.rmtree(home.home / "runs" / "gone")
        page.keyboard.press("j")
        expect(page.locator("main")).to_contain_text("gone")
        page.reload()
        expect(page.locator(".error")).to_contain_text("gone")
        page.get_by_role("link", name="All runs").click()
        expect(page.locator("ls-table .tr")).to_have_count(1)
        one.check()


def test_a_server_that_restarts_is_found_again(started, home):
    write_many(home.home / "runs" / "kept", ["x"], [np.ones((2, 2), np.float32)])
    token = home.write("token", "0123456789abcdef0123456789")
    token.chmod(0o600)

    def serve(port):
        process = subprocess.Popen(
            [PROGRAM, "serve", "--token-file", token, "--port", str(port)],
            env=home.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "http://" in process.stderr.readline()
        return process

    first = serve(0)
    try:
        port = home.service()["port"]
        with tab(started, home) as one:
            page = one.open("runs")
            expect(page.locator("ls-table .tr")).to_have_count(1)
            first.terminate(), first.wait()
            expect(page.locator("#state")).to_contain_text("no answer")
            expect(page.locator("#notice")).to_be_visible()
            first = serve(port)
            expect(page.locator("#state")).to_contain_text("connected")
            expect(page.locator("#notice")).to_be_hidden()
            page.keyboard.press("j")
            page.keyboard.press("Enter")
            expect(page.locator("h1.title")).to_have_text("kept")
            assert [e for e in one.errors if "Failed to fetch" not in e] == []
    finally:
        first.terminate(), first.wait()


def test_a_slow_network_shows_the_last_thing_asked_for(started, home):
    """Answers that come late and out of order never replace what was chosen since."""
    arrays = [np.full((4, 4), k, np.float32) for k in range(6)]
    write_many(home.home / "runs" / "slow", [f"t{k}" for k in range(6)], arrays)
    home.ensure()
    with tab(started, home) as one:
        session = one.page.context.new_cdp_session(one.page)
        session.send("Network.enable")
        session.send(
            "Network.emulateNetworkConditions",
            {"offline": False, "latency": 150, "downloadThroughput": 60_000, "uploadThroughput": 60_000},
        )
        page = one.open("runs/slow")
        expect(page.locator(".right .title")).to_have_text("t0", timeout=60_000)
        for _ in range(5):
            page.keyboard.press("j")
        expect(page.locator(".right .title")).to_have_text("t5")
        expect(page.locator(".right")).to_contain_text("values from 5.000 to 5.000", timeout=30_000)
        wait_until(lambda: page.evaluate("document.querySelector('ls-heat').map?.cells[0]") == 5)
        one.check()


def test_ten_thousand_tensors_and_a_thousand_runs(started, home):
    names = [f"transformer.blocks.{b}.{part}.{k}" for b in range(100) for part in ("attn", "mlp") for k in range(50)]
    write_many(home.home / "runs" / "large", names, [np.ones((3, 5), np.float32)])
    for k in range(1000):
        folder = home.home / "runs" / f"r{k:04d}"
        folder.mkdir()
        (folder / "run.json").write_text(manifest(folder.name))
        (folder / "records.jsonl").write_text("")
    home.ensure()
    with tab(started, home) as one:
        page = one.open("runs")
        expect(page.get_by_text("1001 of 1001")).to_be_visible()
        assert page.locator("ls-table .tr").count() < 80, "only the rows in view exist"
        page = one.open("runs/large")
        expect(page.locator(".left")).to_contain_text("10000")
        page.get_by_label("filter tensors").fill("*")
        expect(page.locator(".left")).to_contain_text("10000 of 10000")
        page.evaluate("document.querySelector('ls-table .scroll').scrollTop = 1e9")
        expect(page.locator("ls-table")).to_contain_text("transformer.blocks.99.mlp.49")
        assert page.locator("ls-table .tr").count() < 80
        page = one.open("runs/large?tensor=9999")  # not among those that come first
        expect(page.locator(".right .title")).to_have_text("transformer.blocks.99.mlp.49")
        one.check()


def test_what_comes_after_the_first_rows_is_shown_too(started, home):
    """200 rows come first, the rest once they are on the screen: steps, modules and counts are those of the whole run."""
    arrays = [np.full((2, 2), k, np.float32) for k in range(4)]
    write_many(home.home / "runs" / "steps", [f"net.layer{k}.out" for k in range(90)], arrays, steps=5)
    home.ensure()
    with tab(started, home) as one:
        asked = []
        one.page.on("request", lambda r: asked.append(r.url) if "runs/tensors" in r.url else None)
        page = one.open("runs/steps")
        expect(page.locator(".right .title")).to_have_text("net.layer0.out")
        expect(page.locator(".multiples button")).to_have_count(5)
        expect(page.get_by_label("denoising step").locator("option")).to_have_count(6)
        expect(page.locator(".left .filters .dim")).to_have_text("450")
        assert ["limit=200&from=0" in asked[0], "from=200" in asked[1], len(asked)] == [True, True, 2]
        one.check()


def test_the_token_is_asked_for_and_never_sent_in_an_address(started, home):
    write_many(home.home / "runs" / "one", ["x"], [np.ones((2, 2), np.float32)])
    home.ensure()
    with tab(started, home) as one:
        asked = []
        one.page.on("request", lambda r: asked.append(r.url))
        page = one.open("runs", token=False)
        expect(page.get_by_text("This page needs the service's token")).to_be_visible()
        page.get_by_label("token").fill("wrong wrong wrong wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("This page needs the service's token")).to_be_visible()
        page.get_by_label("token").fill(home.token())
        page.keyboard.press("Enter")
        expect(page.locator("ls-table .tr")).to_have_count(1)
        page.reload()
        expect(page.locator("ls-table .tr")).to_have_count(1)
        page = one.open("runs/one")
        assert home.token() not in page.evaluate("location.href") and page.evaluate("document.referrer") == ""
        assert all(home.token() not in url for url in asked)
        # Another tab has nothing of it.
        other = one.page.context.new_page()
        other.goto(f"{one.base}/#/runs")
        expect(other.get_by_text("This page needs the service's token")).to_be_visible()
        log = home.home / "service" / "service.log"
        assert not log.exists() or home.token() not in log.read_text()
        one.check()
