"""Every view of the page in a real browser, each with a real run or a real session: what a reader sees and can do."""

import json
import shutil

import numpy as np
import pytest
from debug_service import Home, wait_until
from page_browser import expect, needs_browser, started, tab, view  # noqa: F401

pytestmark = needs_browser

SQUARES = """import time
def square(i):
    value = i * i
    return value

total = 0
for i in range(4):
    total += square(i)
    print("step", i, total)
print("<b>done</b>", total)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two runs of the engine that start from other noise, and a service."""
    home = Home(tmp_path_factory.mktemp("page"))
    for name, seed in (("good", 1), ("port", 2)):
        home.run(
            "--debug",
            "generate",
            "--prompt",
            "three green stars",
            "--seed",
            seed,
            "--steps",
            3,
            "--run-name",
            name,
            "--output",
            f"{name}.png",
        )
    home.ensure()
    yield home
    home.close()


def run_id(home, name):
    return next(r["id"] for r in home.get("runs/list", limit=100)["runs"] if r["name"] == name)


def test_runs_are_listed_and_opened(view, place):
    page = view.open("runs")
    rows = page.locator("ls-table .tr")
    expect(rows).to_have_count(2)
    page.get_by_label("filter runs").fill("port")
    expect(rows).to_have_count(1)
    expect(page.get_by_text("1 of 2")).to_be_visible()
    assert "filter=port" in page.evaluate("location.href"), "what one sees is in the address"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1.title")).to_have_text("port")
    page.go_back()
    expect(page.get_by_label("filter runs")).to_have_value("port")
    page.get_by_role("button", name="name", exact=True).press("Enter")
    wait_until(lambda: "sort=0" in page.evaluate("location.href"))
    page.get_by_label("filter runs").fill("")
    expect(rows.first).to_contain_text("good")
    page.reload()
    expect(rows.first).to_contain_text("good")
    expect(page.get_by_role("columnheader", name="name")).to_have_attribute("aria-sort", "ascending")
    page.get_by_label("filter runs").fill("port")
    page.locator("ls-table .tr").first.click()
    page.get_by_role("button", name="Open").click()
    # A step of the history is taken only once it is there: the browser may not know of it when the click returns.
    expect(page.locator("h1.title")).to_have_text("port")
    page.go_back()
    expect(page.locator("h1.title")).to_have_text("Runs")
    page.go_forward()
    expect(page.locator("h1.title")).to_have_text("port")


def cells(page, selector="ls-heat canvas"):
    """How many different colours the heat map has."""
    return page.evaluate("""s => { const c = document.querySelector(s); if (!c || !c.width) return 0;
        return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size; }""", selector)  # fmt: skip


def test_a_tensor_is_looked_into(view, place):
    page = view.open(f"runs/{run_id(place, 'good')}")
    page.get_by_label("filter tensors").fill("transformer*")
    page.locator("ls-table .tr", has_text="transformer").first.click()
    wait_until(lambda: cells(page) > 10)
    expect(page.get_by_role("img", name="histogram", exact=False)).to_be_visible()
    first = page.locator("ls-heat figcaption").inner_text()
    page.locator("ls-heat .frame").focus()
    page.keyboard.press("+")
    wait_until(lambda: page.locator("ls-heat figcaption").inner_text() != first)
    assert "rows" in page.locator("ls-heat figcaption").inner_text() and "window=" in page.evaluate("location.href")
    shown = page.evaluate("location.href")
    page.locator("ls-heat .frame").hover()
    expect(page.locator("ls-heat .value")).to_contain_text("row")
    # The address restores the very part that is seen.
    page.reload()
    wait_until(lambda: cells(page) > 10)
    assert page.evaluate("location.href") == shown and "rows" in page.locator("ls-heat figcaption").inner_text()
    # Over the steps: the same tensor at each, and keys that go between them.
    expect(page.get_by_text("Over the steps")).to_be_visible()
    before = page.evaluate("location.hash")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("]")
    wait_until(lambda: page.evaluate("location.hash") != before)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download .npy").click()
    array = np.load(saved.value.path())
    assert array.size > 0


def test_two_runs_part(view, place):
    a, b = run_id(place, "good"), run_id(place, "port")
    page = view.open(f"compare?reference={a}&candidate={b}")
    expect(page.locator("#verdict")).to_have_text("Mismatch")
    expect(page.locator(".divergence")).to_contain_text("initial_latents_packed")
    wait_until(lambda: "row=" in page.evaluate("location.href"))
    wait_until(lambda: cells(page, "figure:nth-child(3) ls-heat canvas") > 10)
    at = lambda: int(page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('row')"))  # noqa: E731
    first = at()
    page.keyboard.press("n")
    wait_until(lambda: at() > first)
    page.keyboard.press("N")
    wait_until(lambda: at() == first)
    page.keyboard.press("j")
    assert at() == first + 1
    page.keyboard.press("k")
    # Tree, card and curve follow the one selection.
    expect(page.locator("ls-table .tr.chosen")).to_have_count(1)
    expect(page.locator(".right .card .mono").first).to_contain_text("initial_latents")
    assert page.evaluate("document.querySelector('ls-curve').chosen") == first
    # A part of one map is shown in all three, and the address has it.
    page.locator("ls-heat .frame").first.focus()
    page.keyboard.press("+")
    wait_until(lambda: "window=" in page.evaluate("location.href"))
    page.reload()
    parts = "[...document.querySelectorAll('ls-heat')].map(h => h.map && h.window?.rows)"
    wait_until(
        lambda: (lambda seen: len(seen) == 3 and len(set(seen)) == 1 and seen[0] and seen[0] < 64)(page.evaluate(parts))
    )
    for mode in ("Flicker", "Difference", "Side by side", "Slider"):
        page.get_by_role("button", name=mode).first.click()
    assert page.evaluate("[...document.querySelectorAll('ls-picture img')].every(i => i.naturalWidth > 0)")


def test_a_map_is_saved_and_used(started, place):
    """Two runs that share no names: what is proposed is mended by hand, saved, and pairs them."""
    good = place.home / "runs" / run_id(place, "good")
    renamed = place.home / "runs" / "20260101-000000-renamed"
    shutil.copytree(good, renamed)
    manifest = json.loads((renamed / "run.json").read_text())
    manifest.update(id=renamed.name, name="renamed")
    (renamed / "run.json").write_text(json.dumps(manifest))
    lines = [json.loads(line) for line in (renamed / "records.jsonl").read_text().splitlines()]
    for line in lines:
        line["name"] = "zz_" + line["name"]
    (renamed / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        with tab(started, place) as one:
            page = one.open(f"compare?reference={good.name}&candidate={renamed.name}")
            page.locator("summary", has_text="Map of names").click()
            page.get_by_role("button", name="Add a rule").click()
            page.locator(".map-rules tbody tr").last.get_by_label("candidate").fill("zz_*")
            page.locator(".map-rules tbody tr").last.get_by_label("reference").fill("*")
            page.get_by_label("name of the map file").fill("mine")
            page.get_by_role("button", name="Save and compare").click()
            wait_until(lambda: "map=" in page.evaluate("location.href"))
            expect(page.locator("#verdict")).to_have_text("Match")
            assert json.loads((place.home / "maps" / "mine.json").read_text())["rules"]
            one.check()
    finally:
        shutil.rmtree(renamed)


def test_a_program_is_stopped_and_looked_into(view, place):
    script = place.write("squares.py", SQUARES)
    session = place.call_started(script)
    page = view.open(f"debug/{session['id']}")
    expect(page.locator(".line.now")).to_contain_text("import time")
    page.get_by_label("breakpoint at line 8").click()
    expect(page.locator(".line.stop, .line.pending")).to_contain_text("total += square(i)")
    page.keyboard.press("F5")
    expect(page.locator(".line.now")).to_contain_text("total += square(i)")
    expect(page.get_by_label("Variables")).to_contain_text("total")
    page.keyboard.press("F11")
    expect(page.locator(".line.now")).to_contain_text("value = i * i")
    expect(page.get_by_label("Stack").locator("button")).to_have_count(2)
    page.get_by_label("Stack").locator("button").nth(1).click()
    expect(page.locator(".line.now.outer")).to_contain_text("total += square(i)")
    page.get_by_label("evaluate", exact=True).fill("total, i")
    page.keyboard.press("Enter")
    expect(page.locator(".console")).to_contain_text("0, 0")
    page.get_by_label("expression to watch").fill("i * 100")
    page.keyboard.press("Enter")
    expect(page.locator("section[aria-label=Watch]")).to_contain_text("0")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("pre.output")).to_contain_text("step 0 0")
    page.get_by_label("breakpoint at line 3").click()
    page.locator("section[aria-label=Breakpoints]").get_by_role("button", name="Why?").first.click()
    expect(page.locator("section[aria-label=Breakpoints]").locator(".card")).to_be_visible()
    for number in (8, 3):
        page.get_by_label(f"breakpoint at line {number}").click()
    page.get_by_role("button", name="Continue").click()
    # What a program prints is text, whatever it looks like.
    expect(page.locator("pre.output")).to_contain_text("<b>done</b> 14")
    expect(page.locator(".debug .head")).to_contain_text("ended")


def test_the_server_tells_of_itself(view, place):
    page = view.open("server")
    expect(page.locator(".chips").first).to_contain_text("version")
    expect(page.get_by_text("compiler")).to_be_visible()
    expect(page.locator(".charts canvas").first).to_be_visible()


def test_keys_reach_everything(view, place):
    page = view.open("runs")
    expect(page.locator("ls-table .tr").first).to_be_visible()
    for key, title in (("s", "Server"), ("c", "Compare two runs"), ("b", "Debug"), ("r", "Runs")):
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("h1.title")).to_have_text(title)
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_contain_text("next run")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("port")
    expect(page.locator("dialog[open] li").first).to_contain_text("port")
    page.keyboard.press("Enter")
    expect(page.locator("h1.title")).to_have_text("port")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
