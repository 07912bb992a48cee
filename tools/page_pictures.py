"""Pictures of every view of the page, with real runs, a real session and real jobs: docs/images/page_*.png.

.venv/bin/python tools/page_pictures.py [FOLDER]     default: docs/images
"""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from debug_service import Home, wait_until  # noqa: E402
from page_browser import browser, expect, tab  # noqa: E402
from PIL import Image  # noqa: E402

SCRIPT = """import numpy as np


def attention(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ v


rng = np.random.default_rng(0)
x = rng.standard_normal((48, 64))
x += 2 * np.sin(np.arange(48)[:, None] / 6 + np.arange(64) / 9)
for step in range(4):
    x = x + attention(x, x, x)
    print("step", step, "largest", abs(x).max())
"""


def run_id(home, name):
    return next(r["id"] for r in home.get("runs/list", limit=100)["runs"] if r["name"] == name)


def save(page, folder, name, width):
    path = folder / f"page_{name}{'' if width == 1280 else '_narrow'}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(
        256, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE
    ).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1000} KB")


def heat_is_there(page, selector="ls-heat"):
    wait_until(lambda: page.evaluate("s => [...document.querySelectorAll(s)].some(h => h.map)", selector))


def take(home, started, folder, width, scheme):
    good, port = run_id(home, "good"), run_id(home, "port")
    script = home.write("attention.py", SCRIPT)
    with tab(started, home, width=width, scheme=scheme) as one:
        page = one.open("runs")
        expect(page.locator("ls-table .tr").first).to_be_visible()
        save(page, folder, "runs", width)
        page = one.open(f"runs/{good}")
        rows = home.get("runs/tensors", run=good, limit=100000)["rows"]
        seq = next(r[0] for r in rows if r[8] and r[3] == 1 and len(r[7]) == 3 and "attn" in r[1])
        page = one.open(f"runs/{good}?tensor={seq}")
        heat_is_there(page)
        page.wait_for_timeout(1500)
        page.evaluate(
            "document.querySelectorAll('.head > div > .mono.dim').forEach(e => e.remove())"
        )  # a path of this machine
        save(page, folder, "tensor", width)
        page = one.open(f"compare?reference={good}&candidate={port}")
        heat_is_there(page, "figure:nth-child(3) ls-heat")
        page.wait_for_timeout(1500)
        save(page, folder, "compare", width)
        session = home.call_started(script)
        page = one.open(f"debug/{session['id']}")
        expect(page.locator(".line.now")).to_be_visible()
        page.get_by_label("breakpoint at line 7").click()
        page.keyboard.press("F5")
        expect(page.locator(".line.now")).to_contain_text("weights /=")
        page.mouse.move(0, 0)
        page.get_by_label("evaluate", exact=True).fill("weights.sum(-1)[:4]")
        page.keyboard.press("Enter")
        page.wait_for_timeout(1500)
        save(page, folder, "debug", width)
        home.call("debug/terminate", session=session["id"], force=True)
        page = one.open("draw")
        page.get_by_label("Prompt", exact=True).fill("a red circle left of a blue square")
        page.get_by_label("Steps").fill("60")
        page.get_by_role("button", name="Draw").click()
        page.locator("img.preview[data-step]").wait_for()
        page.wait_for_timeout(700)
        save(page, folder, "draw", width)
        expect(page.locator(".live-words")).to_contain_text("drawn in", timeout=120_000)
        page = one.open("server")
        expect(page.get_by_text("compiler")).to_be_visible()
        page.wait_for_timeout(5000)
        page.evaluate(
            "document.querySelectorAll('dd').forEach(e => e.textContent.includes('/') && e.previousElementSibling.textContent === 'python' && (e.textContent = e.textContent.split(' (')[0]))"
        )
        page.evaluate(
            "document.querySelectorAll('.chip').forEach(e => e.textContent.startsWith('home ') && (e.textContent = 'home .lockstep'))"
        )
        save(page, folder, "server", width)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        home = Home(place)
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
        try:
            for prompt, seed in (
                ("three green stars", 1),
                ("a yellow triangle above a purple square", 2),
                ("the word HI in red", 3),
                ("two blue circles", 4),
            ):
                home.call("jobs", prompt=prompt, seed=seed, max_wait=60)
            with browser() as started:
                take(home, started, folder, 1280, "light")
                take(home, started, folder, 390, "dark")
        finally:
            home.close()


if __name__ == "__main__":
    main()
