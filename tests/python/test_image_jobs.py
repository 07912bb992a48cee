"""Jobs: they go on without their client, are told of as they go, stop when told, and outlive the server."""

import base64
import concurrent.futures
import json
import pathlib
import socket
import time

import numpy as np
import pytest
from debug_service import wait_until
from image_service import EventStream, ImageServer, data_url, opened, picture_of, png
from PIL import Image
from program import PROGRAM
from system import resident_bytes, thread_count

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

PROMPT = "three green stars"
LONG = {"prompt": PROMPT, "steps": 1000, "size": "256x256"}  # minutes, were it not cancelled


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ImageServer(tmp_path_factory.mktemp("jobs"))
    yield made
    made.close()


def picture(server, image):
    status, _, data = server.request("GET", image["url"], headers={"Authorization": None})
    assert status == 200
    return opened(data)


def test_a_job_goes_its_way(server):
    job = server.job(prompt=PROMPT, seed=4, n=2, steps=3)
    assert job["object"] == "job" and job["status"] in ("queued", "running") and job["type"] == "generate"
    done = server.ended(job["id"])
    assert done["status"] == "completed" and done["timings"]["denoise_s"] > 0 and done["usage"]["output_tokens"] == 128
    assert [image["seed"] for image in done["images"]] == [4, 5]
    assert [picture(server, image).info["seed"] for image in done["images"]] == ["4", "5"]
    assert job["id"] in [one["id"] for one in server.json("GET", "/v1/jobs")["data"]]
    assert server.json("GET", "/v1/jobs?status=completed&limit=1")["data"][0]["status"] == "completed"
    assert server.json("GET", "/v1/jobs/job_000000000000000000000000", status=404)["error"]["code"] == "not_found"
    assert server.json("GET", "/v1/jobs/../secret", status=404)


def test_everything_that_edit_can_do(server):
    photo = png(Image.new("RGB", (128, 128), "white"))
    job = server.job(
        prompt="a blue circle",
        images=[data_url(photo)],
        seed=1,
        steps=2,
        dtype="bf16",
        image_positions="mrope",
        output_format="webp",
    )
    done = server.ended(job["id"])
    assert (
        done["status"] == "completed" and done["type"] == "edit" and picture(server, done["images"][0]).format == "WEBP"
    )
    started = server.job(
        prompt="a blue circle",
        type="edit",
        model="tiny",
        images=[data_url(photo)],
        strength=0.5,
        steps=4,
        schedule="lightning",
    )
    assert server.ended(started["id"])["status"] == "completed"
    scheduled = server.job(
        prompt=PROMPT, sigmas=["1.0", "0.5"], vae_tiling=True, quantize="8", guidance_run="passes", max_prompt_tokens=64
    )
    assert server.ended(scheduled["id"])["steps"] == 2
    for wrong, parameter in (
        ({"layers": 3}, "layers"),
        ({"sigmas": ["x"]}, "sigmas"),
        ({"mask": data_url(photo)}, "mask"),
        ({"size": "1x1"}, "size"),
        ({"size": 5}, "size"),
        ({"n": 0}, "n"),
        ({"partial_images": 1}, "partial_images"),
    ):
        assert server.json("POST", "/v1/jobs", {"prompt": PROMPT, **wrong}, status=400)["error"]["param"] == parameter
    assert "prompt" in server.json("POST", "/v1/jobs", {"promt": PROMPT}, status=400)["error"]["hint"]


def test_the_newest_jobs_that_ended_are_kept(tmp_path):
    server = ImageServer(tmp_path)
    try:
        long = server.job(prompt=PROMPT, steps=1000, size="256x256")[
            "id"
        ]  # it runs all the while, and is never dropped
        ids = []
        for _ in range(260):
            ids.append(server.job(prompt=PROMPT)["id"])
            server.json("POST", f"/v1/jobs/{ids[-1]}/cancel")
        kept = [job["id"] for job in server.json("GET", "/v1/jobs?limit=500")["data"]]
        assert kept == [*ids[:-257:-1], long]
        assert server.json("GET", f"/v1/jobs/{ids[3]}", status=404)["error"]["code"] == "not_found"
        folders = {path.name for path in (server.home / "studio" / "jobs").iterdir()}
        assert folders == set(kept)
        server.json("POST", f"/v1/jobs/{long}/cancel")
    finally:
        server.close()


def test_events_tell_everything_in_order_and_go_on(server):
    stream = EventStream(server)
    job = server.job(prompt=PROMPT, steps=40, size="256x256")["id"]
    seen = []
    while not seen or seen[-1]["event"] != "job.completed":
        event = stream.next()
        if event["data"]["id"] == job:
            seen.append(event)
    stream.close()
    topics = [event["event"] for event in seen]
    assert topics[:2] == ["job.queued", "job.started"] and topics[-1] == "job.completed"
    assert seen[0]["data"]["position"] == 1 and seen[0]["data"]["eta_s"] >= 0
    progress = [event["data"] for event in seen if event["event"] == "job.progress"]
    steps = [one["step"] for one in progress if one["stage"] == "denoise"]
    assert steps == sorted(steps) and steps[-1] == 40 and all(one["eta_s"] >= 0 for one in progress)
    preview = next(event["data"] for event in seen if event["event"] == "job.preview")
    assert picture_of(preview["b64_json"]).size == (32, 32) and preview["step"] < 40
    assert seen[-1]["data"]["images"][0]["url"]
    numbers = [int(event["id"]) for event in seen]
    assert numbers == sorted(set(numbers))
    again = EventStream(server, headers=[("Last-Event-ID", seen[1]["id"])])
    told = [again.next() for _ in range(3)]
    again.close()
    assert [event["id"] for event in told] == [event["id"] for event in seen[2:5]]
    assert EventStream(server, headers=[("Last-Event-ID", "x")]).status == 400


def test_a_running_job_is_cancelled_at_once_and_others_go_on(server):
    job = server.job(**LONG)["id"]
    server.happened("job.progress", job, step=2)
    other = server.job(prompt=PROMPT, seed=9, steps=3)["id"]
    assert server.json("POST", f"/v1/jobs/{job}/cancel")["status"] == "cancelled"
    assert server.ended(other)["status"] == "completed"
    assert server.json("GET", f"/v1/jobs/{job}")["error"]["code"] == "cancelled"
    assert server.json("POST", f"/v1/jobs/{job}/cancel")["status"] == "cancelled"  # again: nothing happens
    assert server.json("POST", f"/v1/jobs/{other}/cancel")["status"] == "completed"
    assert server.metric("lockstep_last_cancel_seconds") < 1
    assert server.metric("lockstep_last_cancel_layers") <= 1


@pytest.mark.parametrize("stage", ["text encoder", "denoise", "decode"])
def test_no_layer_is_begun_after_a_cancel_whatever_the_stage(server, stage):
    """The one that runs is finished; the flag may be set between the question and the layer, which is then that one."""
    job = server.job(prompt="a red circle " * 30, steps=2, size="512x512")["id"]
    stream = EventStream(server, headers=[("Last-Event-ID", "0")])
    while (event := stream.next()) and not (event["data"]["id"] == job and event["data"].get("stage") == stage):
        assert event["event"] != "job.completed" or event["data"]["id"] != job, f"no stage {stage}"
    if server.json("POST", f"/v1/jobs/{job}/cancel")["status"] == "cancelled":
        while (event := stream.next())["event"] != "job.cancelled" or event["data"]["id"] != job:
            pass
        server.ended(server.job(prompt=PROMPT, steps=2, size="64x64")["id"])  # the thread is free
        assert server.metric("lockstep_last_cancel_layers") <= 1
    stream.close()


def one_that_is_drawn(server):
    """What comes after it waits until it is cancelled."""
    job = server.job(**LONG)["id"]
    server.happened("job.started", job)
    return job


def next_started(events):
    while (event := events.next())["event"] != "job.started":
        pass
    return event["data"]["id"]


def test_a_waiting_request_that_is_cancelled_is_no_409(server):
    events = EventStream(server)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.request, "POST", "/v1/images/generations", LONG)
        server.json("POST", f"/v1/jobs/{next_started(events)}/cancel")
        status, _, data = answer.result(30)
    assert status == 410 and json.loads(data)["error"]["code"] == "job_cancelled"
    stream = EventStream(server, "/v1/images/generations", "POST", {**LONG, "stream": True})
    server.json("POST", f"/v1/jobs/{next_started(events)}/cancel")
    events.close()
    event = stream.next()
    assert event["event"] == "error" and event["data"]["error"]["code"] == "job_cancelled" and stream.next() is None


def test_who_hangs_up_cancels_and_a_job_goes_on(server):
    events = EventStream(server)
    stream = EventStream(server, "/v1/images/generations", "POST", {**LONG, "stream": True})
    waited = next_started(events)
    stream.close()
    events.close()
    server.happened("job.cancelled", waited)
    job = server.job(prompt=PROMPT, steps=20)["id"]  # its connection is closed by now
    assert server.ended(job)["status"] == "completed"


def test_clients_take_turns(server):
    blocker = one_that_is_drawn(server)
    many = [server.job(prompt=PROMPT, steps=2, user="anna", seed=i)["id"] for i in range(5)]
    one = server.job(prompt=PROMPT, steps=4, user="ben")["id"]
    assert server.json("GET", f"/v1/jobs/{one}")["position"] == 2
    assert [server.json("GET", f"/v1/jobs/{job}")["position"] for job in many] == [1, 3, 4, 5, 6]
    server.json("POST", f"/v1/jobs/{blocker}/cancel")
    ends = {job: server.ended(job) for job in (*many, one)}
    assert all(end["status"] == "completed" for end in ends.values())


def test_bits_are_the_same_alone_together_and_with_previews(server):
    # A size of its own: what other tests drew would decide whether two at a time are worth another try.
    fields = {"prompt": PROMPT, "steps": 4, "seed": 100, "size": "64x112"}
    alone = [server.ended(server.job(**{**fields, "seed": 100 + i})["id"])["images"][0] for i in range(4)]
    alone = [np.asarray(picture(server, image)) for image in alone]
    batched = server.metric("lockstep_pictures_batched_total")
    together = server.ended(server.job(**fields, n=4)["id"])["images"]
    assert server.metric("lockstep_pictures_batched_total") == batched + 4  # two and two, to see what that takes
    for expected, image in zip(alone, together, strict=True):
        assert np.array_equal(expected, np.asarray(picture(server, image)))
    blocker = one_that_is_drawn(server)
    stream = EventStream(server)
    jobs = [server.job(**{**fields, "seed": 100 + i, "user": f"u{i}"})["id"] for i in range(4)]
    dropped = server.job(**{**fields, "user": "u9"})["id"]
    server.json("POST", f"/v1/jobs/{blocker}/cancel")
    server.json("POST", f"/v1/jobs/{dropped}/cancel")
    for expected, job in zip(alone, jobs, strict=True):
        assert np.array_equal(expected, np.asarray(picture(server, server.ended(job)["images"][0])))
    stream.close()


def test_a_picture_dropped_from_a_batch_leaves_the_others_as_they_are(server):
    fields = {"prompt": PROMPT, "steps": 60, "seed": 300}
    expected = np.asarray(picture(server, server.ended(server.job(**fields)["id"])["images"][0]))
    blocker = one_that_is_drawn(server)
    kept, dropped = server.job(**fields, user="a")["id"], server.job(**{**fields, "seed": 301}, user="b")["id"]
    server.json("POST", f"/v1/jobs/{blocker}/cancel")
    server.happened("job.progress", kept, step=3)
    server.json("POST", f"/v1/jobs/{dropped}/cancel")
    assert np.array_equal(expected, np.asarray(picture(server, server.ended(kept)["images"][0])))


def test_metrics_are_what_prometheus_reads(server):
    status, headers, data = server.request("GET", "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = data.decode().splitlines()
    for line in lines:
        assert line.startswith("# ") or (len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0)
    for name in (
        "lockstep_jobs_running",
        "lockstep_jobs_waiting",
        "lockstep_queue_wait_seconds_count",
        "lockstep_step_seconds_sum",
        'lockstep_stage_seconds_sum{stage="denoise"}',
        "lockstep_jobs_cancelled_total",
        "lockstep_pictures_total",
        "process_resident_memory_bytes",
        "lockstep_tensor_bytes",
    ):
        assert any(line.startswith(name + " ") for line in lines), name


def test_killed_in_the_middle_nothing_is_lost_or_half_written(tmp_path):
    server = ImageServer(tmp_path)
    try:
        done = server.ended(server.job(prompt=PROMPT, steps=2, seed=1)["id"])
        running = server.job(**LONG)["id"]
        photo = png(Image.new("RGB", (128, 128), "white"))
        waiting = [server.job(prompt=PROMPT, steps=2, seed=50 + i)["id"] for i in range(3)]
        waiting.append(server.job(prompt="a blue circle", steps=2, images=[data_url(photo)])["id"])
        server.happened("job.started", running)
        held = EventStream(server, "/v1/images/generations", "POST", {"prompt": PROMPT, "stream": True, **{"steps": 2}})
        server.kill()
        held.close()
        jobs = server.home / "studio" / "jobs"
        for state in jobs.glob("*/state.json"):
            json.loads(state.read_text())
        (jobs / waiting[0] / "state.json.tmp-1-2").write_text("{")  # as a kill in the middle of a write leaves it
        (jobs / "job_0123456789abcdef01234567").mkdir()
        server.start()
        again = server.json("GET", f"/v1/jobs/{running}")
        assert again["status"] == "failed" and again["error"]["code"] == "interrupted"
        for job in waiting:
            assert server.ended(job)["status"] == "completed"
        assert [picture(server, server.ended(job)["images"][0]).info["seed"] for job in waiting[:3]] == [
            "50",
            "51",
            "52",
        ]
        assert picture(server, server.json("GET", f"/v1/jobs/{done['id']}")["images"][0]).info["seed"] == "1"
        assert not list(jobs.glob("*/*.tmp-*")) and not (jobs / "job_0123456789abcdef01234567").exists()
    finally:
        server.close()


def test_api_keys_open_pictures_and_nothing_else(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-key-of-somebody\nsecond-key-of-another\n")
    keys.chmod(0o600)
    server = ImageServer(tmp_path, "--api-key", keys, "--client-jobs", "2", "--client-pictures", "3")
    try:
        first, second = ({"Authorization": f"Bearer {key}"} for key in keys.read_text().split())
        assert server.json("GET", "/v1/models", headers=first)["data"]
        for path in ("/v1/debug/status", "/v1/runs/list", "/mcp", "/v1/tensors/info?path=/etc/passwd", "/v1/clean"):
            assert server.request("GET", path, headers=first)[0] == 403
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer first-key-of-somebodz"})[0] == 401
        blocker = one_that_is_drawn(server)
        server.json("POST", "/v1/jobs", {"prompt": PROMPT, "steps": 2, "n": 3}, headers=first)
        refused = server.json("POST", "/v1/jobs", {"prompt": PROMPT}, headers=first, status=429)["error"]
        assert refused["code"] == "too_many_pictures" and refused["type"] == "rate_limit_error"
        server.json("POST", "/v1/jobs", {"prompt": PROMPT, "steps": 2}, headers=second)
        server.json("POST", "/v1/jobs", {"prompt": PROMPT, "steps": 2}, headers=second)
        assert (
            server.json("POST", "/v1/jobs", {"prompt": PROMPT}, headers=second, status=429)["error"]["code"]
            == "too_many_requests"
        )
        server.json("POST", f"/v1/jobs/{blocker}/cancel")
    finally:
        server.close()
    keys.chmod(0o644)
    refused = __import__("subprocess").run(
        [PROGRAM, "serve", "--api-key", str(keys)], env=server.environment, capture_output=True, text=True, timeout=30
    )
    assert refused.returncode == 2 and "others can read" in refused.stderr


def test_pages_elsewhere_are_refused_unless_named(tmp_path):
    server = ImageServer(tmp_path, "--allow-origin", "https://page.example")
    try:
        page, other = {"Origin": "https://page.example"}, {"Origin": "https://other.example"}
        assert server.request("GET", "/v1/models", headers=other)[0] == 403
        status, headers, _ = server.request("GET", "/v1/models", headers=page)
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://page.example"
        status, headers, _ = server.request(
            "OPTIONS", "/v1/images/generations", headers={**page, "Authorization": None}
        )
        assert status == 204 and "Authorization" in headers["Access-Control-Allow-Headers"]
        assert server.request("GET", "/v1/debug/status", headers=page)[0] == 403
        assert server.request("OPTIONS", "/v1/images/generations", headers={**other, "Authorization": None})[0] == 403
    finally:
        server.close()


def test_bodies_are_bounded_by_route(server):
    def head(path, length, kind):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            text = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            return int(connection.recv(4096).split()[1])

    form = "multipart/form-data; boundary=x"
    assert head("/v1/images/generations", 73 << 20, "application/json") == 413
    assert head("/v1/images/edits", 853 << 20, form) == 413
    assert head("/v1/images/edits", 73 << 20, "application/json") == 413
    assert head("/v1/jobs", 73 << 20, "application/json") == 413
    assert head("/v1/debug/start", 5 << 20, "application/json") == 413
    assert head("/v1/images/edits", 800 << 20, form) == 400  # it does not come
    large = b"".join(
        [
            b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n',
            b"\0" * ((50 << 20) + 1),
            b"\r\n--x--\r\n",
        ]
    )
    before = resident_bytes(server.process.pid)
    status, _, data = server.request("POST", "/v1/images/edits", large, {"Content-Type": form})
    assert status == 413 and b"50 MB" in data
    assert resident_bytes(server.process.pid) - before < 20 << 20  # it went to disk
    many = (
        b"".join(
            b'--x\r\nContent-Disposition: form-data; name="image[]"; filename="../../../etc/x"\r\n\r\nx\r\n'
            for _ in range(18)
        )
        + b"--x--\r\n"
    )
    assert server.request("POST", "/v1/images/edits", many, {"Content-Type": form})[0] == 413
    for wrong in (
        b"",
        b"--x",
        b"--x\r\n\r\n",
        many[:200],
        b'--x\r\nContent-Disposition: form-data; name="n"\r\n\r\nmany\r\n--x--\r\n',
    ):
        assert server.request("POST", "/v1/images/edits", wrong, {"Content-Type": form})[0] == 400
    wait_until(lambda: not list((server.home / "studio" / "spool").glob("*")))


def test_models_stay_loaded_within_the_budget(tmp_path):
    """With little memory parts are swapped in turn, with enough they are loaded once; the pictures are the same."""
    bits = {}
    for name, options in (
        ("enough", ()),
        ("little", ("--memory-limit", "60MB")),
        ("none kept", ("--keep-loaded", "0")),
    ):
        (tmp_path / name).mkdir()
        server = ImageServer(tmp_path / name, *options)
        try:
            images = []
            for seed in range(3):
                images.append(server.ended(server.job(prompt=PROMPT, steps=2, seed=seed)["id"])["images"][0])
                if name == "none kept":
                    wait_until(
                        lambda: (
                            server.metric("lockstep_model_loads_total") > 0
                            and b"lockstep_model_part_bytes{" not in server.request("GET", "/metrics")[2]
                        )
                    )
            bits[name] = [np.asarray(picture(server, image)) for image in images]
            loads = server.metric("lockstep_model_loads_total")
            assert loads == 4 if name == "enough" else loads > 6, (name, loads)
        finally:
            server.close()
    for name in ("little", "none kept"):
        assert all(np.array_equal(a, b) for a, b in zip(bits["enough"], bits[name], strict=True))


def test_named_models_are_served_and_wrong_ones_refused_at_the_start(tmp_path):
    root = pathlib.Path(PROGRAM).resolve().parents[2] / "models"
    server = ImageServer(tmp_path, "--model", f"mine={root / 'tiny'}", "--preview", "vae")
    try:
        assert [model["id"] for model in server.json("GET", "/v1/models")["data"]] == ["mine"]
        stream = EventStream(
            server,
            "/v1/images/generations",
            "POST",
            {"prompt": PROMPT, "stream": True, "partial_images": 1, "steps": 4},
        )
        preview = stream.next()["data"]
        assert (
            picture_of(preview["b64_json"]).size == (128, 128) and len(base64.b64decode(preview["b64_json"])) <= 30000
        )
        stream.close()
    finally:
        server.close()
    for model in ("x=/nowhere", "no-folder", "a b=/tmp"):
        refused = __import__("subprocess").run(
            [PROGRAM, "serve", "--model", model], env=server.environment, capture_output=True, text=True, timeout=30
        )
        assert refused.returncode == 2, refused.stderr


def test_idle_streams_cost_no_thread(server):
    threads = thread_count(server.process.pid)
    streams = [EventStream(server) for _ in range(100)]
    assert server.request("GET", "/v1/health")[0] == 200
    assert thread_count(server.process.pid) <= threads + 1
    job = server.job(prompt=PROMPT, steps=2)["id"]
    for stream in streams:
        assert stream.next()["data"]["id"] == job
        stream.close()
    began = time.monotonic()
    wait_until(lambda: server.metric("lockstep_event_streams") == 0)
    assert time.monotonic() - began < 20
