"""Draw in a real browser with real jobs of the embedded model: preview, queue, cancel, gallery, editing with a mask, reload."""

import io
import re

import pytest
from debug_service import Home, wait_until
from page_browser import expect, needs_browser, started, tab, view  # noqa: F401

pytestmark = needs_browser


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("draw"))
    home.ensure()
    yield home
    home.close()


def ask(page, prompt, **fields):
    page.get_by_label("Prompt", exact=True).fill(prompt)
    for label, value in fields.items():
        page.get_by_label(label).fill(str(value))
    page.get_by_role("button", name="Draw").click()


def test_a_picture_is_drawn_watched_and_kept(view, place):
    page = view.open("draw")
    expect(page.get_by_label("Model")).not_to_be_empty()
    seen = page.evaluate_handle("window.seen = []")
    page.evaluate("""new MutationObserver(() => { const p = document.querySelector('img.preview'); if (p?.dataset.step && !seen.includes(p.dataset.step)) seen.push(p.dataset.step); })
        .observe(document.body, {subtree: true, childList: true, attributes: true})""")
    ask(page, "three green stars", Steps=12, Seed=7)
    wait_until(lambda: "job=" in page.evaluate("location.href"))
    expect(page.locator(".live-words")).to_contain_text("drawn in", timeout=120_000)
    assert len(page.evaluate("seen")) >= 1, "a preview was on screen while it was drawn"
    seen.dispose()
    card = page.locator(".drawn").first
    expect(card).to_contain_text("seed 7")
    expect(card).to_contain_text("12 steps")
    card.scroll_into_view_if_needed()
    wait_until(lambda: page.evaluate("document.querySelector('.drawn img').naturalWidth") > 0)
    # A reload loses nothing: the job, its picture, the form.
    page.reload()
    expect(page.locator(".live-words")).to_contain_text("drawn in")
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("three green stars")
    expect(page.locator(".drawn").first).to_contain_text("seed 7")
    # Varied: another seed. Again: the same.
    before = page.locator(".drawn").count()
    page.locator(".drawn").first.get_by_role("button", name="Vary").click()
    wait_until(lambda: page.locator(".drawn").count() > before, 120)
    assert "seed 7 " not in page.locator(".drawn").first.inner_text()
    with page.expect_download() as saved:
        page.locator(".drawn").first.get_by_role("button", name="Download").click()
    from PIL import Image

    assert Image.open(saved.value.path()).size[0] >= 64
    for k in (0, 1):
        page.locator(".drawn").nth(k).get_by_label("mark for comparison").check()
    expect(page.get_by_text("Compare these two")).to_be_visible()
    page.get_by_role("button", name="Difference").click()
    wait_until(lambda: page.evaluate("[...document.querySelectorAll('ls-picture img')].every(i => i.naturalWidth > 0)"))
    page.reload()
    expect(page.get_by_text("Compare these two")).to_be_visible()


def test_the_device_is_chosen(started, place):
    """What the machine has is offered, and what was chosen draws."""
    with tab(started, place) as one:
        page = one.open("draw")
        expect(page.get_by_label("Model")).not_to_be_empty()
        doctor = place.get("doctor")
        there = ["auto", *(device["name"] for device in doctor["devices"])]
        assert there[:3] == ["auto", "cpu", "reference"]
        assert ("mlx" in there) == doctor["mlx"]["usable"]
        assert ("cuda:0" in there) == (doctor["cuda"]["usable"] and not doctor["cuda"]["devices"][0]["why"])
        wait_until(
            lambda: page.get_by_label("Device").locator("option").evaluate_all("all => all.map(o => o.value)") == there
        )
        for device in ("cpu", "reference", *(name for name in there if name == "mlx")):
            page.get_by_label("Device").select_option(device)
            ask(page, f"a green square by {device}", Steps=2, Seed=5, Size="32x32")
            card = page.locator(".drawn", has_text=f"a green square by {device}")
            expect(card).to_contain_text(f"tiny on {device}", timeout=120_000)
        page.reload()
        expect(page.get_by_label("Device")).to_have_value("mlx" if "mlx" in there else "reference")
        jobs = {j["device"]: j for j in place.get("jobs")["data"]}
        assert jobs["cpu"]["status"] == jobs["reference"]["status"] == "completed"
        # Another device's parts are loaded beside those that are there.
        metrics = place.http("GET", "/metrics")[2]
        assert 'part="reference/tiny/f32/transformer"' in metrics and 'part="cpu/tiny/f32/transformer"' in metrics, (
            metrics
        )
        status, _, refused = place.http("POST", "/v1/jobs", {"prompt": "x", "device": "cuda:77"})
        assert status == 400 and refused["error"]["param"] == "device" and "cpu" in refused["error"]["message"]
        one.check()


def test_a_queue_with_cancel(started, place):
    with tab(started, place) as one:
        page = one.open("draw")
        expect(page.get_by_label("Model")).not_to_be_empty()
        for k in range(3):
            ask(page, f"a red circle {k}", Steps=400)
        expect(page.locator(".queued")).to_have_count(3)
        for _ in range(3):
            page.locator(".queued").first.get_by_role("button", name="Cancel").click()
        expect(page.locator(".queued")).to_have_count(0, timeout=60_000)
        jobs = [j for j in place.get("jobs")["data"] if j["prompt"].startswith("a red circle")]
        assert {j["status"] for j in jobs} == {"cancelled"}
        # What the service refuses is told beside the field that is wrong.
        ask(page, "x", Steps=4, Size="33x17")
        expect(page.locator(".draw-form .error")).to_contain_text("size")
        one.check()


def test_an_edit_with_a_painted_mask(started, place):
    from PIL import Image

    picture = Image.new("RGB", (128, 128), (230, 230, 230))
    picture.paste((200, 40, 40), (40, 40, 90, 90))
    data = io.BytesIO()
    picture.save(data, "PNG")
    with tab(started, place) as one:
        page = one.open("draw")
        expect(page.get_by_label("Model")).not_to_be_empty()
        page.set_input_files(
            "input[type=file]", [{"name": "a.png", "mimeType": "image/png", "buffer": data.getvalue()}]
        )
        expect(page.locator(".input img")).to_have_count(1)
        assert "edit" in page.get_by_label("Model").input_value()
        page.locator("summary", has_text="Mask").click()
        page.locator("canvas.mask").scroll_into_view_if_needed()
        box = page.locator("canvas.mask").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.3)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7, steps=5)
        page.mouse.up()
        # It is still there after a reload.
        page.reload()
        expect(page.locator(".input img")).to_have_count(1)
        assert page.locator(".paint").count() == 1
        ask(page, "make the square blue", Steps=4, Seed=3)
        expect(page.locator(".live-words")).to_contain_text("drawn in", timeout=120_000)
        job = place.get("jobs")["data"][0]
        assert job["type"] == "edit" and job["pictures"] == 1
        one.check()


def test_two_tabs_share_one_stream(started, place):
    """The tab that reads tells the other, and when it closes the other goes on."""
    with tab(started, place) as one:
        first = one.open("draw")
        expect(first.get_by_label("Model")).not_to_be_empty()
        streams = []
        second = one.page.context.new_page()
        second.on("request", lambda r: streams.append(r.url) if r.url.endswith("/v1/events") else None)
        second.goto(f"{one.base}/#token={place.token()}/draw")
        expect(second.get_by_label("Model")).not_to_be_empty()
        ask(first, "a blue square", Steps=4)
        expect(second.locator(".drawn", has_text="a blue square")).to_have_count(1, timeout=120_000)
        assert streams == []
        # What the server tells of itself: times as means, counts as counts.
        server = one.page.context.new_page()
        server.goto(f"{one.base}/#token={place.token()}/server")
        times = server.get_by_role("region", name="Times")
        expect(times).to_contain_text("mean of")
        told = dict(re.findall(r"^lockstep_step_seconds_(sum|count) (\S+)$", place.http("GET", "/metrics")[2], re.M))
        expect(times.locator(".card", has_text="step")).to_contain_text(f"mean of {told['count']}")
        mean = float(told["sum"]) / float(told["count"])
        shown = times.locator(".card", has_text="step").locator(".value").inner_text()
        assert shown == (f"{round(mean * 1000)} ms" if mean < 1 else f"{mean:.1f} s"), (shown, mean)
        expect(server.get_by_role("region", name="Since the start")).to_contain_text(re.compile(r"pictures \d+(?! s)"))
        expect(server.get_by_role("region", name="Models")).to_contain_text("transformer")
        server.close()
        first.close()
        wait_until(lambda: (second.wait_for_timeout(20), len(streams) == 1)[1])
        ask(second, "a yellow star", Steps=4)
        expect(second.locator(".drawn", has_text="a yellow star")).to_have_count(1, timeout=120_000)
