"""Who sees badly or has no mouse: axe on every view, and our own check of names and contrast where axe is not there."""

import numpy as np
import pytest
from debug_service import Home
from many_records import write_many
from page_browser import expect, needs_browser, started, tab  # noqa: F401

pytestmark = needs_browser

SCRIPT = "import numpy as np\nx = np.arange(12.0).reshape(3, 4)\ny = x * 2\nprint(y.sum())\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("access"))
    for name, factor in (("a", 1), ("b", 2)):
        write_many(
            home.home / "runs" / name,
            ["net.one", "net.two"],
            [np.arange(64, dtype=np.float32).reshape(8, 8) * np.float32(factor)],
            steps=3,
        )
    home.ensure()
    home.call("jobs", prompt="a red circle", size="32x32", steps=2, max_wait=20)
    yield home
    home.close()


@pytest.fixture(scope="module")
def views(place):
    """Route, and what is there once the view has everything."""
    session = place.call_started(place.write("p.py", SCRIPT))["id"]
    twin = place.call(
        "debug/twin/start",
        reference=str(place.write("r.py", SCRIPT)),
        candidate=str(place.write("c.py", SCRIPT)),
        name="pair",
        python=place.python,
        cwd=str(place.folder),
    )["twin"]
    return (
        ("runs", "ls-table .tr"),
        ("runs/a", ".multiples canvas"),
        ("compare?reference=a&candidate=b", "ls-heat figcaption .scale"),
        ("compare", "form"),
        ("debug", "table"),
        (f"debug/{session}", ".line.now"),
        (f"debug/twin:{twin}", "pre.named"),
        ("server", "section[aria-label=Machine] .facts"),
        ("draw", ".drawn img[src]"),
    )


NAMES = """() => {
  const out = [], shown = e => e.getClientRects().length && getComputedStyle(e).visibility !== 'hidden';
  for (const e of document.querySelectorAll('button, a[href], input, select, textarea, [role=img], [role=grid], summary')) {
    if (!shown(e) || e.closest('[hidden]')) continue;
    const label = e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent.trim() || e.title || e.placeholder;
    if (!label) out.push('no name: ' + e.outerHTML.slice(0, 120));
  }
  const lum = c => { const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const rgb = s => { const c = (s.match(/[\\d.]+/g) || []).map(Number); return s.startsWith('color(') ? [...c.slice(0, 3).map(v => v * 255), ...c.slice(3)] : c; };
  const back = e => { for (let p = e; p; p = p.parentElement) { const c = rgb(getComputedStyle(p).backgroundColor); if (c.length === 3 || c[3] > .5) return c.slice(0, 3); } return [255, 255, 255]; };
  for (const e of document.querySelectorAll('body *')) {
    const words = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!words || !shown(e) || e.closest('[hidden], :disabled, noscript, option, script')) continue;
    const style = getComputedStyle(e), a = lum(rgb(style.color).slice(0, 3)), b = lum(back(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) out.push(`contrast ${ratio.toFixed(2)}: ${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`);
  }
  if (document.querySelectorAll('h1').length !== 1) out.push('not one h1: ' + document.querySelectorAll('h1').length);
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const id of new Set(ids)) if (ids.filter(i => i === id).length > 1) out.push('id twice: ' + id);
  return out;
}"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_view_passes_axe(started, place, views, scheme, width):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = {}
    with tab(
        started, place, width=width, scheme=scheme, bypass_csp=True
    ) as one:  # axe is a script of the test's, not of the page's
        for route, ready in views:
            page = one.open(route)
            page.locator(ready).first.wait_for()
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            wrong = axe.run(page).response["violations"]
            for key, box in (("?", "dialog.help"), ("Control+k", "dialog.palette")) if route == "runs" else ():
                page.keyboard.press(key)
                page.locator(box).wait_for()
                wrong += axe.run(page).response["violations"]
                page.keyboard.press("Escape")
            if wrong:
                found[route] = sorted(
                    {
                        f"{w['id']} ({w['impact']}): {n['html'][:160]} -- {n['failureSummary'][:200]}"
                        for w in wrong
                        for n in w["nodes"]
                    }
                )
        assert not one.errors
    assert not found, "\n".join(f"{route}: {line}" for route, lines in found.items() for line in lines)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_roles_and_contrast(started, place, views, scheme):  # noqa: F811
    with tab(started, place, scheme=scheme) as one:
        for route, ready in views:
            page = one.open(route)
            page.locator(ready).first.wait_for()
            assert page.evaluate(NAMES) == [], route
        one.check()


def test_the_keyboard_reaches_everything(started, place, views):  # noqa: F811
    """Every button, link and field of a view has its turn with Tab, and shows that it has it."""
    with tab(started, place) as one:
        for route, ready in views:
            page = one.open(route)
            page.locator(ready).first.wait_for()
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            wanted = page.evaluate("""() => { const all = [...document.querySelectorAll('main button, main a[href], main input, main select, main textarea, main summary')]
                .filter(e => e.getClientRects().length && !e.disabled && e.tabIndex >= 0 && e.type !== 'file'); window.wanted = new Set(all); return all.length; }""")
            for _ in range(wanted + 40):
                page.keyboard.press("Tab")
                left = page.evaluate(
                    "() => { const e = document.activeElement; wanted.delete(e); return [wanted.size, e === document.body || getComputedStyle(e).outlineStyle !== 'none', e.outerHTML.slice(0, 120)]; }"
                )
                assert left[1], f"{route}: no ring on {left[2]}"
                if not left[0]:
                    break
            assert page.evaluate("[...wanted].filter(e => e.isConnected).map(e => e.outerHTML.slice(0, 120))") == [], (
                route
            )
        one.check()


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_every_view_is_seen_in_the_bar(started, place, width):  # noqa: F811
    with tab(started, place, width=width) as one:
        page = one.open("runs")
        expect(page.locator("ls-table .tr").first).to_be_visible()
        links = page.locator("#nav a")
        assert links.count() == 5
        for link in links.all():
            box = link.bounding_box()
            bar = page.locator("#nav").bounding_box()
            assert box["x"] >= max(0, bar["x"] - 1), link.inner_text()
            assert box["x"] + box["width"] <= min(width, bar["x"] + bar["width"] + 1), link.inner_text()
