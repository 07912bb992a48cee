"""`lockstep jobs`: the server's jobs from a terminal."""

import json
import pathlib
import subprocess

import pytest
from image_service import ImageServer
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

LONG = ("--prompt", "three green stars", "--steps", "1000", "--size", "256x256")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ImageServer(tmp_path_factory.mktemp("terminal"))
    yield made
    made.close()


def jobs(server, *words, status=0, text=False):
    done = subprocess.run(
        [PROGRAM, *([] if text else ["--json"]), "jobs", *words],
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout if text else [json.loads(line) for line in done.stdout.splitlines()]


def test_a_job_from_its_creation_to_its_pictures(server):
    (job,) = jobs(server, "create", "--prompt", "three green stars", "--steps", "3", "--seed", "4")
    (done,) = jobs(server, "show", job["id"], "--max-wait", "60")
    assert done["status"] == "completed" and done["images"][0]["seed"] == 4
    shown = jobs(server, "show", job["id"], text=True)
    url = shown.split()[-1]
    assert (
        url.startswith(server.url)
        and server.request("GET", url.removeprefix(server.url), headers={"Authorization": None})[0] == 200
    )
    (listed,) = jobs(server, "list", "--status", "completed")
    assert job["id"] in [one["id"] for one in listed["data"]]
    assert job["id"] in jobs(server, "list", text=True)
    watched = jobs(server, "watch", job["id"], text=True)  # it has ended: said, and no more waited for
    assert "completed" in watched


def test_a_job_is_followed_and_cancelled(server):
    (job,) = jobs(server, "create", *LONG)
    with subprocess.Popen(
        [PROGRAM, "--json", "jobs", "watch", job["id"]], env=server.environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert json.loads(watching.stdout.readline())["event"].startswith("job.")
        assert jobs(server, "cancel", job["id"])[0]["status"] == "cancelled"
        events = [json.loads(line) for line in watching.stdout]
    assert events[-1]["event"] == "job.cancelled" and events[-1]["id"] == job["id"] and watching.returncode == 1


def test_what_is_wrong_is_said(server):
    refused = subprocess.run(
        [PROGRAM, "jobs", "watch", "job_000000000000000000000000"],
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 2 and "there is no job" in refused.stderr
    refused = subprocess.run(
        [PROGRAM, "jobs", "create", "--prompt", "x", "--size", "7x7"],
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 2 and "size" in refused.stderr
