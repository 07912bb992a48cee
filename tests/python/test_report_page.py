"""The report in a real browser: what a reader sees and can do once its script has run."""

import json

import numpy as np
import pytest
from browser import PROGRAM as BROWSER
from browser import Browser
from test_compare import block, compare, normal, write_run

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")
STEPS, BLOCKS, PARTS = 10, 60, 5


def write_steps(folder, bad):
    """3,000 tensors: 10 steps of 60 blocks of 5 parts, and the image. `bad`: wrong from block 20 of step 4 on."""
    records, pixels = [], np.zeros((32, 32, 3), np.uint8)
    for step in range(STEPS):
        for index in range(BLOCKS):
            for part in range(PARTS):
                x = normal(2, 24, 32, seed=index * PARTS + part)
                if bad and (step, index) >= (4, 20):
                    x[:, 16:] *= 1.5
                elif bad:
                    x = x * np.float32(1 + 2e-7)
                records.append((f"transformer.blocks.{index}.part{part}", step, x))
    pixels[8:24, 8:24] = (200, 40, 40) if not bad else (40, 200, 40)
    write_run(folder, [(name, "output", x) for name, _, x in records] + [("image", "checkpoint", pixels)])
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line, (_, step, _) in zip(lines, records):
        line["step"], line["tags"] = step, {"pass": "cond" if line["seq"] % 2 else "uncond"}
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    a, b = write_steps(folder / "a", False), write_steps(folder / "b", True)
    done = compare(a, b, "--report", folder / "out.html")
    assert done.returncode == 1, done.stderr
    return folder / "out.html"


@pytest.fixture
def page(large, tmp_path):
    with Browser(tmp_path) as browser:
        opened(browser, large)
        yield browser
        assert browser.errors == []


def opened(page, path):
    page.open(path)
    page.run("ready")  # rows and maps are unpacked


def text(page, selector):
    return page.run(f"document.querySelector({json.dumps(selector)}).textContent")


def test_the_verdict_is_on_top_and_nothing_is_fetched(page, large):
    assert text(page, "#verdict") == "Mismatch"
    assert "transformer.blocks.20.part0" in text(page, "#divergence") and "step 4" in text(page, "#divergence")
    assert page.run("performance.getEntriesByType('resource').length") == 0
    assert large.stat().st_size < 3_000_000
    # In view without scrolling: verdict, divergence and the beginning of the cause.
    assert page.run("document.querySelector('#divergence .card').getBoundingClientRect().bottom") < 900


def test_the_curve_zooms_moves_and_chooses(page):
    assert page.run("$('curve').view.join()") == "0,3001"
    page.wheel("#curve .plot", -300, across=0.3)
    first = page.run("$('curve').view")
    assert first[1] - first[0] < 3001 and first[0] > 0
    page.drag("#curve .plot", 0.6, 0.3)
    assert page.run("$('curve').view[0]") > first[0] and page.run(
        "$('curve').view[1] - $('curve').view[0]"
    ) == pytest.approx(first[1] - first[0])
    for _ in range(40):
        page.wheel("#curve .plot", -300)
    assert page.run("$('curve').view[1] - $('curve').view[0]") == 8  # and not closer
    page.click("#curve .plot", across=0.5)
    inside = page.run("[report.chosen, ...$('curve').view]")
    assert inside[1] <= inside[0] <= inside[2]
    assert text(page, "#chosen").startswith(page.run("report.rows.at(report.chosen)[NAME]"))
    page.click("#curve .reset")
    assert page.run("$('curve').view.join()") == "0,3001"
    page.click("#curve .zoom-in")
    assert page.run("Math.round($('curve').view[1] - $('curve').view[0])") in (1500, 1501)
    page.pick("#curve .curve-step", "4")
    assert page.run("$('curve').shown.length") == BLOCKS * PARTS
    page.hover("#curve .plot", across=0.5)
    assert "step 4" in text(page, "#tip") and page.run("getComputedStyle($('tip')).display") == "block"
    # The first bad stage is drawn in the colour of errors, in its place.
    page.click("#curve .reset")
    drawn = page.run("""(() => {
        const e = $('curve'), c = e.plot, view = e.view, k = e.shown.indexOf(report.rows.first), x = LEFT + (k + .5 - view[0]) / (view[1] - view[0]) * (c.clientWidth - LEFT - RIGHT);
        return [...c.getContext('2d').getImageData(Math.round(x), 100, 1, 1).data];
    })()""")
    assert drawn[0] > 150 and drawn[1] < 120 and drawn[3] > 0


def test_any_tensor_has_maps_and_a_histogram(page):
    assert page.run("report.maps.length") == 3001 and page.run("report.maps.every(m => m && m.histogram)")
    assert page.run("report.chosen === report.rows.first")
    shown = lambda: page.run("[...document.querySelectorAll('#tensor figure')].map(f => f.textContent)")  # noqa: E731
    assert len(shown()) == 4 and "48 × 32" in shown()[0] and "difference" in shown()[2]
    # Only tokens 16 and later differ: the upper part of the difference of each batch item is white, the rest is not.
    colours = page.run("""(() => {
        const c = document.querySelectorAll('#tensor canvas.map')[2], g = c.getContext('2d'), out = [];
        for (let y = 0; y < c.height; ++y) out.push([...g.getImageData(0, y, c.width, 1).data].every(v => v === 255));
        return out;
    })()""")
    assert [all(colours[:16]), any(colours[16:24]), all(colours[24:40]), any(colours[40:])] == [
        True,
        False,
        True,
        False,
    ]
    bars = page.run("""(() => {
        const c = document.querySelector('canvas.bars'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return d.filter((v, i) => i % 4 === 3 && v > 0).length / (c.width * c.height);
    })()""")
    assert 0.1 < bars < 0.95
    page.click("#next")
    assert page.run("report.chosen === report.rows.first + 1") and len(shown()) == 4
    page.click("#previous")
    page.click("#previous")
    assert page.run("report.chosen === report.rows.first - 1") and page.run(
        "document.querySelector('#all .tr.chosen') !== null"
    )
    page.click("#to-first")
    assert page.run("report.chosen === report.rows.first")
    page.hover("#tensor canvas.map", across=0.5, down=0.9)
    assert text(page, "#tip").startswith("row 4")


def test_filters_and_order_of_the_table(page):
    def count():
        return text(page, "#all .count")

    assert count() == "3001 of 3001"
    assert 10 < page.run("document.querySelectorAll('#all .tr').length") < 100, "only the rows in view exist"
    page.type_into("#all .search", "blocks.7.")
    assert count() == f"{STEPS * PARTS} of 3001"
    page.type_into("#all .search", "*.blocks.?.part0")
    assert count() == f"{STEPS * 10} of 3001"
    page.pick("#all .step", "3")
    assert count() == "10 of 3001"
    page.click("#all .clear")
    page.pick("#all .state", "mismatch")
    assert count() == f"{(STEPS - 5) * BLOCKS * PARTS + (BLOCKS - 20) * PARTS + 1} of 3001"
    page.pick("#all .pass", "cond")
    page.type_into("#all .least", "10")
    assert count() == "0 of 3001"
    page.click("#all .clear")
    page.click("#all .thead > :nth-child(2)")  # by error, the largest first
    errors = page.run("$('all').order.map(i => num(report.rows.at(i)[ERROR]))")
    assert errors == sorted(errors, reverse=True)
    page.run(
        "$('all').table.scroller.scrollTop = 1e9, new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    last = page.run("report.rows.at($('all').order.at(-1))[NAME]")
    assert last in text(page, "#all .tr[data-k='3000']")
    page.click("#all .tr[data-k='3000']")
    assert page.run("report.chosen === $('all').order.at(-1)")


def test_stages_and_steps(page):
    assert page.run("!$('steps').hidden && $('grid').stages.length") == BLOCKS * PARTS * 1
    page.click("#grid canvas", across=0.2 + 0.8 * 0.45, down=0.5)
    assert page.run("report.rows.at(report.chosen)[STEP]") == 4
    assert page.run("report.rows.at(report.chosen)[NAME].split('.')[2] > 25")


def test_pictures_stand_side_by_side(page):
    captions = page.run("[...document.querySelectorAll('#pictures figcaption')].map(c => c.textContent)")
    assert captions == ["reference", "yours", "difference × 4"]
    tops = page.run("[...document.querySelectorAll('#pictures figure')].map(f => f.getBoundingClientRect().top)")
    assert len(set(tops)) == 1
    assert "PSNR" in text(page, "#pictures")
    middle = page.run(
        "[...document.querySelector('#pictures canvas').getContext('2d').getImageData(16, 16, 1, 1).data]"
    )
    assert middle == [200, 40, 40, 255]


def test_odd_tensors_and_names(tmp_path):
    """NaN, infinity, empty, 0-d, one row of a million, a name that is markup: the page stands."""
    wide = normal(1, 1_000_000)
    nan = normal(4, 4)
    nan[1, 2], nan[3, 3] = np.nan, np.inf
    records = [("<img src=x onerror=alert(1)>", "output", normal(3, 3)), ("empty", "output", np.empty((0, 4), np.float32)),
               ("scalar", "output", np.float32(3) * np.ones((), np.float32)), ("wide", "output", wide), ("nan", "output", nan),
               ("shape", "output", normal(2, 6)), ("zeros", "output", np.zeros((5, 5), np.float32))]  # fmt: skip
    other = [
        (name, role, (x * 2 if name in ("wide", "nan") else normal(3, 7) if name == "shape" else x))
        for name, role, x in records
    ]
    a, b = write_run(tmp_path / "a", records), write_run(tmp_path / "b", other)
    assert compare(a, b, "--report", tmp_path / "out.html").returncode == 1
    with Browser(tmp_path) as page:
        opened(page, tmp_path / "out.html")
        for i in range(len(records)):
            page.run(f"report.choose({i})")
            name = records[i][0]
            assert text(page, "#chosen") == name
            figures = page.run("document.querySelectorAll('#tensor figure').length")
            assert figures == {"empty": 0, "shape": 3, "wide": 4, "nan": 4}.get(name, 2 if name != "empty" else 0), name
        page.run("report.choose(4)")
        assert "not finite" in text(page, "#tensor")
        assert page.errors == []


def test_a_match_and_nothing_compared(tmp_path):
    records = block(normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2))
    a, b = write_run(tmp_path / "a", records), write_run(tmp_path / "b", records)
    assert compare(a, b, "--report", tmp_path / "match.html").returncode == 0
    c = write_run(tmp_path / "c", [("other", "output", normal(2))])
    assert compare(a, c, "--report", tmp_path / "nothing.html").returncode == 2
    with Browser(tmp_path) as page:
        opened(page, tmp_path / "match.html")
        assert text(page, "#verdict") == "Match" and "identical" in text(page, "#tensor")
        opened(page, tmp_path / "nothing.html")
        assert text(page, "#verdict") == "Nothing compared" and text(page, "#all .count") == "0 of 0"
        assert page.errors == []


def test_the_cause_is_told(tmp_path):
    x, shift, scale = normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2)
    a = write_run(tmp_path / "a", block(x, shift, scale))
    b = write_run(tmp_path / "b", block(x, shift, scale, exchanged=True))
    assert compare(a, b, "--report", tmp_path / "out.html").returncode == 1
    with Browser(tmp_path) as page:
        opened(page, tmp_path / "out.html")
        assert "modulate.shift_scale_exchanged" in text(page, "#divergence")
        assert page.errors == []


def test_another_layout_is_shown_as_the_reference_lays_it_out(tmp_path):
    """The difference of a channels-last port is a map like any other; without its axes moved there would be none."""
    x = normal(1, 48, 16, 12)
    y = x.copy()
    y[:, :, 0] += 1
    a = write_run(tmp_path / "a", [("conv1", "output", x), ("out", "output", x[0, :4])])
    b = write_run(tmp_path / "b", [("conv1", "output", y.transpose(0, 2, 3, 1)), ("out", "output", y[0, :4])])
    assert compare(a, b, "--report", tmp_path / "out.html").returncode == 1
    with Browser(tmp_path) as page:
        opened(page, tmp_path / "out.html")
        shown = page.run("[...document.querySelectorAll('#tensor figure')].map(f => f.textContent)")
        assert (
            len(shown) == 4 and shown[0].split(":")[1] == shown[1].split(":")[1] and shown[2].startswith("difference")
        )
        assert page.errors == []
