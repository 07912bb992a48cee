"""The page in the browser, on loopback: bytes, first view, selection to heat map, scrolling, reload, preview, and a report's size.

./dev bench page                    all rows
./dev bench page views --rounds 5   some of them: views, heat, scrolling, preview, report
./dev bench page heat --written     the tensor of 10 GB written to disk too, read from there and from memory
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from debug_service import Home, wait_until  # noqa: E402
from many_records import manifest, write_many  # noqa: E402
from page_browser import browser  # noqa: E402
from quiet_moments import QuietMoments  # noqa: E402

BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
FAILED = []


def row(words, value, unit, bar, worst=None):
    met = value <= bar if unit != "frames/s" else value >= bar
    if not met:
        FAILED.append(words)
    print(
        f"{words:<52} {value:9.1f} {unit:<8} bar {bar:g}{'' if worst is None else f', worst {worst:.1f}'}  {'met' if met else 'MISSED'}",
        flush=True,
    )


HUGE = (819200, 3072)  # 10 GB


def huge_run(folder, count):
    """A run whose tensors are huge; their values are zero, and nowhere on the disk."""
    write_many(folder, [f"transformer.blocks.{k}.attn" for k in range(count)], [np.zeros((1, 1), np.float32)] * count)
    records = folder / "records.jsonl"
    records.write_text(records.read_text().replace("[1, 1]", f"[{HUGE[0]}, {HUGE[1]}]"))
    files = sorted((folder / "tensors").iterdir())
    for file in files:
        with file.open("wb") as out:
            np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": HUGE})
            out.truncate(out.tell() + HUGE[0] * HUGE[1] * 4)
    return files


def fill(file):
    """Random values all over a huge tensor's file."""
    block = np.random.default_rng(3).standard_normal(1 << 24).astype(np.float32).tobytes()
    with file.open("r+b") as out:
        end = out.seek(0, os.SEEK_END)
        out.seek(128)
        while out.tell() < end:
            out.write(block[: end - out.tell()])
        os.fsync(out.fileno())


def forget(file):
    """Out of memory: the next read is from the disk."""
    with file.open("rb") as held:
        os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def prepare(home):
    runs = home.home / "runs"
    rng = np.random.default_rng(0)
    tensors = [rng.standard_normal((1088, 3072)).astype(np.float32) for _ in range(8)]
    write_many(runs / "pictures", [f"transformer.blocks.{k}.attn" for k in range(8)], tensors)
    huge_run(runs / "huge", 8)  # the files have holes, so that they take no room
    names = [f"transformer.blocks.{b}.{part}.{k}" for b in range(100) for part in ("attn", "mlp") for k in range(50)]
    write_many(runs / "large", names, [np.ones((3, 5), np.float32)])
    small = [np.arange(64, dtype=np.float32).reshape(8, 8) + k for k in range(4)]
    for name, factor in (("a", 1), ("b", 2)):
        write_many(runs / name, [f"net.layer{k}" for k in range(100)], [x * np.float32(factor) for x in small], steps=3)
    for k in range(1000):
        folder = runs / f"r{k:04d}"
        folder.mkdir()
        (folder / "run.json").write_text(manifest(folder.name))
        (folder / "records.jsonl").write_text("")


# Until the view shows what it was asked for, and then until it has answered a key. `ready` and `answered` are what one sees.
# It runs in the page from its beginning and tells by the console: a question by Playwright would first load its own script there.
INTERACTIVE = """(([ready, key, answered]) => {
  let before = '';
  const seen = what => what === 'address' ? location.hash !== before : document.querySelector(what);
  const until = (what, then) => { const look = () => seen(what) ? then() : setTimeout(look, 1); look(); };
  until(ready, () => {
    before = location.hash;
    document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
    until(answered, () => requestAnimationFrame(() => console.info('interactive ' + performance.now())));
  });
})(%s)"""
VIEWS = (
    ("1,000 runs", "runs", "ls-table .tr", "j", "ls-table .tr.chosen"),
    ("a run of 8 tensors", "runs/pictures", "ls-table .tr.chosen", "j", "address"),
    ("a run of 10,000 tensors", "runs/large", "ls-table .tr.chosen", "j", "address"),
    ("a comparison", "compare?reference=a&candidate=b", "ls-table .tr.chosen", "j", "address"),
    ("a stopped program", "debug/{session}", ".line.now", "e", "input[aria-label=evaluate]:focus"),
    ("Draw", "draw", "select[name=model] option", "p", "textarea[name=prompt]:focus"),
    ("Server", "server", ".charts .value", "?", "dialog[open]"),
)
# From the click until the heat map is painted, and until the histogram and the channels are too.
HEAT = """k => new Promise(done => {
  const heat = document.querySelector('ls-heat'), row = [...document.querySelectorAll('ls-table .tr')].find(r => r.textContent.includes(`blocks.${k}.attn`));
  let painted = 0;
  heat.addEventListener('shown', () => requestAnimationFrame(() => painted = performance.now() - begun), {once: true});
  const whole = () => painted && document.querySelector('canvas.bars') && [...document.querySelectorAll('figcaption')].some(c => c.textContent.includes('standard deviation'));
  const look = () => whole() ? requestAnimationFrame(() => done([painted, performance.now() - begun])) : setTimeout(look, 1);
  const begun = performance.now();
  row.click(), look();
})"""
SCROLL = """secs => new Promise(done => {
  const box = document.querySelector('ls-table .scroll'), long = [];
  const watch = new PerformanceObserver(l => l.getEntries().forEach(e => long.push(e.duration)));
  watch.observe({type: 'longtask'});
  const begun = performance.now();
  let frames = 0, last = begun, worst = 0;
  const tick = now => {
    ++frames, worst = Math.max(worst, now - last), last = now;
    const part = (now - begun) / 1000 / secs;
    box.scrollTop = (part * 3 % 1) * (box.scrollHeight - box.clientHeight);
    if (part < 1) requestAnimationFrame(tick);
    else watch.disconnect(), done({fps: frames / secs, worst, long: Math.max(0, ...long)});
  };
  requestAnimationFrame(tick);
})"""
PAINTED = """new Promise(done => {
  const look = () => document.querySelector('ls-heat')?.map ? requestAnimationFrame(() => done(performance.now())) : setTimeout(look, 1);
  look();
})"""


EMPTY = b"""<!doctype html><title>empty</title><p id=ready>nothing
<script>addEventListener("keydown", () => history.replaceState(null, "", "#answered"))</script>"""


@contextlib.contextmanager
def empty_page():
    """What the browser itself takes: a page of one line, measured like the others."""

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = EMPTY if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def interactive(started, moments, address, ready, key, answered, look=None):
    """In a browser that has never seen the page: milliseconds (None: other programs ran), and what `look` finds there."""
    context = started.new_context(viewport={"width": 1280, "height": 860})
    try:
        page = context.new_page()
        page.add_init_script(INTERACTIVE % json.dumps([ready, key, answered]))
        moments.begin()
        with page.expect_console_message(lambda m: m.text.startswith("interactive ")) as told:
            page.goto(address, wait_until="commit")
        took = float(told.value.text.split()[1])
        return took if moments.was_quiet() else None, look(page) if look else None
    finally:
        context.close()


# What the page itself is: the values that it shows are beside it.
SENT = "performance.getEntriesByType('resource').filter(r => r.name.includes('/web/')).reduce((a, r) => a + r.transferSize, performance.getEntriesByType('navigation')[0].transferSize)"
ASKED = "performance.getEntriesByType('resource').map(r => r.name)"


def first_view(started, home, base, rounds, most_secs=300):
    """All views by turns, so that what else the machine does meets all of them."""
    session = home.call_started(home.write("p.py", "x = 1\nprint(x)\n"))["id"]
    times, sizes, outside = {words: [] for words in ("", *(view[0] for view in VIEWS))}, [], 0
    moments = QuietMoments(home.service()["pid"])
    until = time.monotonic() + most_secs
    with empty_page() as empty:
        while min(map(len, times.values())) < rounds and time.monotonic() < until:
            if len(times[""]) < rounds:
                times[""].append(interactive(started, moments, empty, "#ready", "x", "address")[0])
            for words, route, ready, key, answered in VIEWS:
                if len(times[words]) >= rounds:
                    continue
                address = f"{base}/#token={home.token()}/{route.format(session=session)}"
                took, (sent, asked) = interactive(
                    started,
                    moments,
                    address,
                    ready,
                    key,
                    answered,
                    lambda page: (page.evaluate(SENT), page.evaluate(ASKED)),
                )
                times[words].append(took)
                sizes.append(sent)
                outside += sum(not url.startswith(base) for url in asked)
            for each in times.values():
                while None in each:
                    each.remove(None)
    print(moments.words())
    row("an empty page: what the browser takes itself", statistics.median(times[""]), "ms", 300, max(times[""]))
    for words, *_ in VIEWS:
        row(f"interactive: {words}", statistics.median(times[words]), "ms", 300, max(times[words]))
    row("everything sent for the first view, the largest", max(sizes) / 1000, "KB", 150)
    row("requests that go outside", outside, "", 0)
    home.call("debug/terminate", session=session, force=True)


def run_page(started, home, base, run):
    page = started.new_page(viewport={"width": 1280, "height": 860})
    page.goto(f"{base}/#token={home.token()}/runs/{run}")
    page.get_by_label("filter tensors").fill("*")
    wait_until(lambda: page.evaluate("!!document.querySelector('ls-heat')?.map"))
    return page


def heat(started, home, base, rounds, written=False):
    whole = {}
    for run, words in (("pictures", "1088 x 3072"), ("huge", "a tensor of 10 GB")):
        page = run_page(started, home, base, run)
        times = [page.evaluate(HEAT, k % 8) for k in range(1, 1 + max(8, rounds))]
        maps, whole[run] = ([one[part] for one in times] for part in (0, 1))
        row(f"selection to heat map, {words}", statistics.median(maps), "ms", 100, max(maps))
        bar = max(100, statistics.median(whole["pictures"]))
        row(f"with histogram and channels, {words}", statistics.median(whole[run]), "ms", bar, max(whole[run]))
        if run == "pictures":
            reload_view(page, rounds)
        page.close()
    if written:
        huge_on_disk(started, home, base, rounds, max(100, statistics.median(whole["pictures"])))


def huge_on_disk(started, home, base, rounds, bar):
    files = huge_run(home.home / "runs" / "written", 2)
    fill(files[1])
    page = run_page(started, home, base, "written")
    for words, before in (("in memory", lambda file: None), ("read from the disk", forget)):
        times = []
        for _ in range(max(5, rounds // 2)):
            page.evaluate(HEAT, 0)
            before(files[1])
            times.append(page.evaluate(HEAT, 1))
        maps, whole = ([one[part] for one in times[1:]] for part in (0, 1))
        row(f"selection to heat map, 10 GB {words}", statistics.median(maps), "ms", 100, max(maps))
        row(f"with histogram and channels, 10 GB {words}", statistics.median(whole), "ms", bar, max(whole))
    page.close()
    for file in files:
        file.unlink()


def reload_view(page, rounds):
    reloads = []
    for _ in range(rounds):
        page.reload(wait_until="commit")
        reloads.append(page.evaluate(PAINTED))
    row("reload restores the view", statistics.median(reloads), "ms", 500, max(reloads))


def scrolling(started, home, base, rounds):
    for route, words in (("runs/large?filter=*", "list of 10,000 tensors"), ("runs", "list of 1,000 runs")):
        page = started.new_page(viewport={"width": 1280, "height": 860})
        page.goto(f"{base}/#token={home.token()}/{route}")
        page.locator("ls-table .tr").first.wait_for()
        page.wait_for_timeout(1000)
        told = page.evaluate(SCROLL, 4)
        row(f"{words}, scrolled", round(told["fps"]), "frames/s", 60, None)
        row(f"{words}, longest task", told["long"], "ms", 50)
        page.close()


def report_size(folder):
    rng = np.random.default_rng(1)
    names = [f"transformer.blocks.{k // 8}.part{k % 8}" for k in range(400)]
    arrays = [rng.standard_normal((2, 64, 96)).astype(np.float32) for _ in range(40)]
    a = write_many(folder / "a", names, arrays, steps=10)
    b = write_many(folder / "b", names, [x * np.float32(1.5) for x in arrays], steps=10)
    subprocess.run([BINARY, "compare", a, b, "--report", folder / "out.html"], capture_output=True, timeout=280)
    row("report of a 4,000-tensor comparison, all different", (folder / "out.html").stat().st_size / 1e6, "MB", 3)


DRAWN = """() => new Promise(done => {
  const seen = [], see = () => {
    const image = document.querySelector('img.preview');
    if (!image) return setTimeout(see, 1);
    new MutationObserver(() => {
      const step = Number(image.dataset.step);
      if (image.dataset.step === undefined || seen.some(s => s.step === step)) return;
      image.decode().then(() => requestAnimationFrame(() => seen.push({step, at: Date.now()})), () => {});
    }).observe(image, {attributes: true});
  };
  see();
  window.previews = () => seen;
  done();
})"""


def preview(started, home, base, rounds):
    """From the moment that another client of the stream hears of a preview to the frame in which the page shows it."""
    import urllib.request

    request = urllib.request.Request(f"{base}/v1/events", headers={"Authorization": f"Bearer {home.token()}"})
    try:
        stream = urllib.request.urlopen(request, timeout=60)
    except OSError:
        print("preview: this service does not draw")
        return
    heard = {}

    def listen():
        name = ""
        try:
            for line in stream:
                text = line.decode().rstrip()
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: ") and name == "job.preview":
                    body = json.loads(text[6:])
                    heard.setdefault((body["id"], body["step"]), time.time() * 1000)
        except (OSError, ValueError):
            pass

    threading.Thread(target=listen, daemon=True).start()
    page = started.new_page(viewport={"width": 1280, "height": 860})
    page.goto(f"{base}/#token={home.token()}/draw")
    page.get_by_label("Prompt", exact=True).fill("three green stars")
    page.get_by_label("Steps").fill("20")
    delays, reloads = [], []
    for _ in range(max(2, rounds // 3)):
        page.evaluate(DRAWN)
        page.get_by_role("button", name="Draw").click()
        wait_until(lambda: "job=" in page.evaluate("location.href"))
        job = page.evaluate("location.href").split("job=")[1].split("&")[0]
        wait_until(lambda: page.locator(".live-words").inner_text().find("drawn in") >= 0, 120)
        delays += [
            p["at"] - heard[(job, p["step"])] for p in page.evaluate("window.previews()") if (job, p["step"]) in heard
        ]
        page.reload(wait_until="commit")
        reloads.append(
            page.evaluate(
                "new Promise(done => { const look = () => document.querySelector('img.preview')?.naturalWidth ? requestAnimationFrame(() => done(performance.now())) : setTimeout(look, 1); look(); })"
            )
        )
    row("preview on screen after its step", statistics.median(delays), "ms", 100, max(delays))
    row("reload restores view and job", statistics.median(reloads), "ms", 500, max(reloads))


PARTS = {"views": first_view, "heat": heat, "scrolling": scrolling, "preview": preview}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}, report; none: all")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--written", action="store_true", help="write 10 GB to the disk and look at them")
    options = parser.parse_args()
    wanted = options.parts or [*PARTS, "report"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if "report" in wanted:
            report_size(folder)
        home = Home(folder)
        prepare(home)
        home.ensure()
        base = f"http://127.0.0.1:{home.service()['port']}"
        try:
            with browser() as started:
                for name, part in PARTS.items():
                    if name in wanted:
                        more = {"written": options.written} if name == "heat" else {}
                        part(started, home, base, options.rounds, **more)
        finally:
            home.close()
    print(f"missed: {', '.join(FAILED)}" if FAILED else "all bars met")


main()
