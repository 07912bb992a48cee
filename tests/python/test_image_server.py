"""Pictures for an unmodified OpenAI client: what it asks for is what it gets, and what cannot be is refused by name."""

import base64
import io
import json
import pathlib
import subprocess
import threading

import numpy as np
import pytest
from debug_service import wait_until
from image_service import THREADS, EventStream, ImageServer, data_url, opened, picture_of, png
from PIL import Image
from program import PROGRAM

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

PROMPT = "a red circle left of a blue square"
QUICK = {"steps": 3}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ImageServer(tmp_path_factory.mktemp("images"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(server):
    return server.openai()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Pixels of `lockstep generate`, by seed and steps."""
    folder = tmp_path_factory.mktemp("generated")

    def draw(seed, steps=3, prompt=PROMPT, size=(128, 128)):
        path = folder / f"{seed}-{steps}-{size[0]}.png"
        if not path.exists():
            words = [
                "generate",
                "--prompt",
                prompt,
                "--seed",
                seed,
                "--steps",
                steps,
                "--width",
                size[0],
                "--height",
                size[1],
                "--output",
                path,
                *THREADS,
            ]
            subprocess.run([PROGRAM, "--quiet", *map(str, words)], check=True, timeout=120)
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB")), dict(picture.info)

    return draw


def pixels(b64):
    return np.asarray(picture_of(b64).convert("RGB"))


def test_the_client_lists_the_embedded_models(client):
    assert [model.id for model in client.models.list()] == ["tiny", "tiny-edit"]
    assert client.models.retrieve("tiny-edit").owned_by == "lockstep"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-image-1")
    assert refused.value.code == "model_not_found"


def test_a_picture_has_the_bits_of_the_command(client, drawn):
    answer = client.images.generate(model="tiny", prompt=PROMPT, extra_body={"seed": 7, **QUICK})
    ours, told = drawn(7)
    assert np.array_equal(pixels(answer.data[0].b64_json), ours)
    info = picture_of(answer.data[0].b64_json).info
    assert {name: info[name] for name in ("prompt", "seed", "steps", "size", "guidance")} == {
        name: told[name] for name in ("prompt", "seed", "steps", "size", "guidance")
    }
    assert (answer.size, answer.output_format, answer.quality) == ("128x128", "png", "auto")
    assert answer.usage.output_tokens == 64 and answer.usage.input_tokens > 0
    assert answer.data[0].seed == 7 and answer.timings["denoise_s"] > 0 and answer.created > 1.7e9


def test_several_pictures_formats_and_sizes(client, drawn):
    answer = client.images.generate(prompt=PROMPT, n=3, extra_body={"seed": 20, **QUICK})
    assert [image.seed for image in answer.data] == [20, 21, 22]
    for image in answer.data:
        assert np.array_equal(pixels(image.b64_json), drawn(image.seed)[0])
    for output_format, found in (("jpeg", "JPEG"), ("webp", "WEBP")):
        answer = client.images.generate(
            prompt=PROMPT, size="160x96", output_format=output_format, output_compression=80, extra_body=QUICK
        )
        picture = picture_of(answer.data[0].b64_json)
        assert (picture.format, picture.size) == (found, (160, 96)) and answer.output_format == output_format
    low = client.images.generate(prompt=PROMPT, quality="low")
    assert picture_of(low.data[0].b64_json).info["steps"] == "8" and low.quality == "low"


def test_latents_seeds_and_negative_prompts_are_ours(client, drawn):
    noise = np.random.default_rng(0).standard_normal((1, 64, 64)).astype("f4")
    file = io.BytesIO()
    np.save(file, noise)
    ours = {"latents": base64.b64encode(file.getvalue()).decode(), **QUICK}
    one = client.images.generate(prompt=PROMPT, extra_body={**ours, "seed": 1})
    two = client.images.generate(prompt=PROMPT, extra_body={**ours, "seed": 2})
    assert np.array_equal(pixels(one.data[0].b64_json), pixels(two.data[0].b64_json))
    away = client.images.generate(
        prompt=PROMPT,
        extra_body={"seed": 7, "negative_prompt": "a red circle", "true_cfg_scale": 5.5, "num_inference_steps": 3},
    )
    assert not np.array_equal(pixels(away.data[0].b64_json), drawn(7)[0])
    assert picture_of(away.data[0].b64_json).info["negative_prompt"] == "a red circle"


def test_a_url_answer_is_a_signed_link(server, client):
    answer = client.images.generate(prompt=PROMPT, response_format="url", extra_body={"seed": 3, **QUICK})
    url = answer.data[0].url
    assert url.startswith(server.url + "/v1/images/img_") and answer.data[0].b64_json is None
    path = url.removeprefix(server.url)
    status, headers, data = server.request("GET", path, headers={"Authorization": None})
    assert status == 200 and headers["Content-Type"] == "image/png" and opened(data).info["seed"] == "3"
    bare, query = path.split("?")
    expires, signature = query.split("&")
    other = signature[:-1] + ("0" if signature[-1] != "0" else "1")
    later = f"expires={int(expires.split('=')[1]) + 1}"
    for wrong in (
        bare,
        f"{bare}?{expires}",
        f"{bare}?{expires}&{other}",
        f"{bare}?{later}&{signature}",
        bare.replace("/content", ""),
    ):
        assert server.request("GET", wrong, headers={"Authorization": None})[0] == 401
    assert server.request("GET", bare)[0] == 200
    assert server.request("GET", "/v1/images/img_000000000000000000000000_0/content")[0] == 404


def test_a_stream_carries_previews_and_the_picture(client, drawn):
    events = list(
        client.images.generate(prompt=PROMPT, stream=True, partial_images=3, extra_body={"seed": 7, "steps": 8})
    )
    assert [event.type for event in events] == ["image_generation.partial_image"] * 3 + ["image_generation.completed"]
    assert [event.partial_image_index for event in events[:3]] == [0, 1, 2]
    assert [event.step for event in events[:3]] == [2, 4, 6] and all(
        event.steps == 8 and event.image_index == 0 for event in events
    )
    last = picture_of(events[-1].b64_json)
    assert np.array_equal(np.asarray(last.convert("RGB")), drawn(7, 8)[0])  # previews change nothing
    assert events[-1].usage.total_tokens > 0 and events[-1].size == "128x128"
    small = np.asarray(last.convert("RGB").resize((16, 16), Image.BOX), float)
    seen = np.asarray(picture_of(events[2].b64_json).convert("RGB"), float)
    assert seen.shape == small.shape and np.abs(seen - small).mean() < 40
    assert all(len(base64.b64decode(event.b64_json)) <= 30000 for event in events[:3])


def test_nothing_else_is_in_a_stream(server):
    stream = EventStream(
        server,
        "/v1/images/generations",
        "POST",
        {"prompt": PROMPT, "stream": True, "n": 2, "partial_images": 1, **QUICK},
    )
    assert stream.status == 200 and "text/event-stream" in stream.head
    seen = []
    while event := stream.next():
        assert set(event) == {"event", "data"} and event["event"] == event["data"]["type"]
        seen.append((event["event"].split(".")[1], event["data"]["image_index"]))
    assert sorted(seen) == [("completed", 0), ("completed", 1), ("partial_image", 0), ("partial_image", 1)]
    for line in stream.raw.decode().splitlines():
        assert line == "" or line.startswith((":", "event: image_generation.", "data: {"))


WRONG = {
    "prompt": {"prompt": ""},
    "prompt of 32,001 characters": {"prompt": "x" * 32001},
    "n": {"n": 11},
    "n of zero": {"n": 0},
    "size": {"size": "100x100"},
    "size too large": {"size": "3856x2160"},
    "size without a number": {"size": "16x"},
    "background": {"background": "transparent"},
    "output_format": {"output_format": "gif"},
    "output_compression": {"output_compression": 50},
    "response_format": {"response_format": "path"},
    "quality": {"quality": "best"},
    "style": {"style": "vivid"},
    "moderation": {"moderation": "low"},
    "steps": {"steps": 0},
    "num_inference_steps": {"num_inference_steps": 1.5},
    "true_cfg_scale": {"true_cfg_scale": "4"},
    "seed": {"seed": -1},
    "latents": {"latents": "/etc/passwd"},
    "partial_images": {"partial_images": 2},
    "stream": {"stream": "yes"},
    "image": {"image": "/etc/passwd"},
    "model": {"model": 5},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_supported_is_refused_by_name(client, name):
    with pytest.raises(openai.BadRequestError) as refused:
        client.images.generate(
            **{"prompt": PROMPT, **{key: value for key, value in WRONG[name].items() if key == "prompt"}},
            extra_body=WRONG[name],
        )
    error = refused.value.body
    assert set(error) == {"message", "type", "param", "code", "hint"}
    assert error["param"] == name.split()[0] and error["type"] == "invalid_request_error"


def test_errors_are_those_that_the_client_knows(server, client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.images.generate(model="dall-e-3", prompt=PROMPT)
    assert refused.value.code == "model_not_found" and refused.value.param == "model"
    with pytest.raises(openai.AuthenticationError):
        server.openai(api_key="no").images.generate(prompt=PROMPT)
    with pytest.raises(openai.BadRequestError) as refused:
        list(client.images.generate(prompt=PROMPT, stream=True, n=99))
    assert refused.value.param == "n"
    assert server.request("GET", "/v1/images/generations")[0] == 405
    assert server.request("POST", "/v1/images/generations", b"{}", {"Content-Type": "text/plain"})[0] == 415
    for body in (b"{", b"[]", b"", b'{"prompt": "a", "prompt": "b"}', b"\xff\xfe"):
        assert server.request("POST", "/v1/images/generations", body, {"Content-Type": "application/json"})[0] == 400


@pytest.fixture(scope="module")
def photo(drawn):
    return png(Image.fromarray(drawn(7, 20)[0]))


def test_one_picture_is_edited_as_the_command_does(client, photo, tmp_path):
    (tmp_path / "photo.png").write_bytes(photo)
    answer = client.images.edit(
        model="tiny-edit", image=("photo.png", photo), prompt="make the circle blue", extra_body={"seed": 5}
    )
    words = [
        "edit",
        "--input-image",
        "photo.png",
        "--prompt",
        "make the circle blue",
        "--seed",
        "5",
        "--output",
        "blue.png",
        *THREADS,
    ]
    subprocess.run([PROGRAM, "--quiet", *words], check=True, cwd=tmp_path, timeout=120)
    with Image.open(tmp_path / "blue.png") as picture:
        assert np.array_equal(pixels(answer.data[0].b64_json), np.asarray(picture.convert("RGB")))
    assert picture_of(answer.data[0].b64_json).info["pictures"] == "1"


def test_three_pictures_and_a_mask(client, photo):
    three = [("a.png", photo), ("b.png", photo), ("c.png", photo)]
    answer = client.images.edit(
        image=three, prompt="the shape of picture 1 in the color of picture 2", extra_body={"seed": 5, "steps": 2}
    )
    assert picture_of(answer.data[0].b64_json).info["pictures"] == "3"
    # 128 x 128 pictures have 8 x 8 tokens, whether their size was told or not.
    assert answer.size == "128x128" and answer.usage.output_tokens == 64
    assert answer.usage.input_tokens_details.image_tokens == 3 * 64
    mask = Image.new("L", (128, 128), 0)
    mask.paste(255, (64, 0, 128, 128))
    answer = client.images.edit(
        image=("photo.png", photo),
        mask=("mask.png", png(mask)),
        prompt="a green star",
        extra_body={"seed": 5, "strength": 1.0},
    )
    before, after = np.asarray(opened(photo).convert("RGB"), int), pixels(answer.data[0].b64_json).astype(int)
    left, right = (np.abs(before - after)[:, part].mean() for part in (slice(0, 48), slice(80, 128)))
    assert left < 8 and right > left  # outside the mask the picture is kept
    events = list(
        client.images.edit(
            image=("photo.png", photo), prompt="make it blue", stream=True, partial_images=1, extra_body={"steps": 4}
        )
    )
    assert [event.type for event in events] == ["image_edit.partial_image", "image_edit.completed"]


def test_edits_of_one_job_have_the_same_bits_alone_and_together(server, photo):
    body = {"prompt": "make the circle blue", "images": [{"image_url": data_url(photo)}], "steps": 2}
    alone = [server.json("POST", "/v1/images/edits", {**body, "seed": 60 + i})["data"][0] for i in range(4)]
    batched = server.metric("lockstep_pictures_batched_total")
    together = server.json("POST", "/v1/images/edits", {**body, "seed": 60, "n": 4})["data"]
    assert server.metric("lockstep_pictures_batched_total") == batched + 4
    for one, other in zip(alone, together, strict=True):
        assert one["seed"] == other["seed"]
        assert np.array_equal(pixels(one["b64_json"]), pixels(other["b64_json"]))


def test_edits_in_json_take_data_urls_and_fetch_nothing(server, photo):
    body = {"prompt": "make the circle blue", "images": [{"image_url": data_url(photo)}], "seed": 5, "steps": 2}
    assert server.json("POST", "/v1/images/edits", body)["data"][0]["seed"] == 5
    for url in (
        "http://127.0.0.1:1/x.png",
        "https://example.com/x.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "data:image/png,abc",
        "data:image/png;base64,!!",
    ):
        wrong = server.json("POST", "/v1/images/edits", {**body, "images": [{"image_url": url}]}, status=400)["error"]
        assert wrong["param"] == "images"
    wrong = server.json("POST", "/v1/images/edits", {**body, "images": [{"file_id": "file-1"}]}, status=400)["error"]
    assert wrong["param"] == "images"
    for mask, parameter in (({"image_url": data_url(b"GIF89a")}, "mask"), ("/etc/passwd", "mask")):
        assert (
            server.json("POST", "/v1/images/edits", {**body, "mask": mask}, status=400)["error"]["param"] == parameter
        )
    seventeen = {**body, "images": body["images"] * 17}
    assert server.json("POST", "/v1/images/edits", seventeen, status=400)["error"]["param"] == "images"


def test_hostile_pictures_are_refused(server, client, photo):
    header = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + (60000).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    import zlib

    bomb = header + zlib.crc32(header[12:]).to_bytes(4, "big") + b"\x00\x00\x00\x00IEND\xaeB`\x82"
    for data in (bomb, photo[:100], b"", b"not a picture"):
        with pytest.raises(openai.BadRequestError) as refused:
            client.images.edit(image=("x.png", data), prompt="x")
        assert refused.value.param == "image"
    spool = server.home / "studio" / "spool"
    wait_until(lambda: not list(spool.glob("*")))


def test_a_timeout_of_the_client_cancels(server, client):
    before = server.metric("lockstep_jobs_cancelled_total")
    with pytest.raises(openai.APITimeoutError):
        client.images.generate(prompt=PROMPT, timeout=0.2, extra_body={"steps": 1000, "true_cfg_scale": 4})
    wait_until(lambda: server.metric("lockstep_jobs_cancelled_total") == before + 1)
    wait_until(lambda: server.metric("lockstep_jobs_running") == 0)


def test_the_client_comes_again_when_the_queue_is_full(tmp_path):
    server = ImageServer(tmp_path, "--queue", "1")
    try:
        running = server.job(prompt=PROMPT, steps=1000, size="256x256")["id"]
        server.happened("job.started", running)
        waiting = server.job(prompt=PROMPT, steps=2)["id"]
        status, headers, data = server.request("POST", "/v1/images/generations", {"prompt": PROMPT, **QUICK})
        error = json.loads(data)["error"]
        assert (status, error["code"]) == (429, "queue_full") and 1 <= int(headers["Retry-After"]) <= 60
        with pytest.raises(openai.RateLimitError):
            server.openai().images.generate(prompt=PROMPT, extra_body=QUICK)
        freed = threading.Timer(0.3, lambda: server.json("POST", f"/v1/jobs/{running}/cancel"))
        freed.start()
        answer = server.openai(max_retries=5).images.generate(prompt=PROMPT, extra_body=QUICK)
        freed.join()
        assert answer.data[0].b64_json and server.ended(waiting)["status"] == "completed"
    finally:
        server.close()
