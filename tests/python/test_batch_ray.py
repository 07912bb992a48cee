"""lockstep batch --engine ray, with Ray's own cluster of two nodes, of which one is killed in the middle.

Ray is heavy and is not among the tests' requirements: LOCKSTEP_RAY_PYTHON names a Python that has it, else .venv-ray.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from test_batch import Batch, counts, picture_job, until, whole

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("LOCKSTEP_RAY_PYTHON", str(HERE.parents[1] / ".venv-ray/bin/python"))
if not os.path.exists(PYTHON):
    pytest.skip("no Python with Ray", allow_module_level=True)


@pytest.fixture
def cluster():
    process = subprocess.Popen(
        [PYTHON, HERE / "ray_cluster.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert line, process.stderr.read()
    process.address = json.loads(line)["address"]
    yield process
    process.stdin.close()
    process.wait(timeout=60)


def test_every_job_is_done_once_although_a_node_is_killed(cluster, tmp_path):
    jobs = [picture_job(number, steps=6) for number in range(30)]
    batch = Batch(tmp_path, jobs)
    program = batch.start("--engine", "ray", "--address", cluster.address, "--python", PYTHON, "--retries", "4")
    until(lambda: len(batch.results()) >= 4, program)
    cluster.stdin.write("kill\n")
    cluster.stdin.flush()
    assert json.loads(cluster.stdout.readline())["killed"]
    assert len(batch.results()) < 30, "the node was killed too late to matter"
    said, errors = program.communicate(timeout=240)
    assert program.returncode == 0, errors + (batch.output / "ray.log").read_text()
    assert counts(json.loads(said)) == (30, 0, 0)
    whole(batch, jobs)
    assert counts(batch.run("--engine", "ray", "--address", cluster.address, "--python", PYTHON)) == (0, 30, 0)


def test_a_wrong_job_fails_alone(cluster, tmp_path):
    batch = Batch(tmp_path, [picture_job(1), picture_job(2, stepz=3)])
    assert counts(batch.run("--engine", "ray", "--address", cluster.address, "--python", PYTHON, status=3)) == (1, 0, 1)
    (failed,) = [result for result in batch.results() if result["status"] == "failed"]
    assert failed["id"] == "picture-2" and "stepz" in failed["error"]["message"]


def test_without_ray_it_says_what_is_missing(tmp_path):
    batch = Batch(tmp_path, [picture_job(1)])
    done = subprocess.run(
        batch.command("--engine", "ray", "--python", sys.executable),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if subprocess.run([sys.executable, "-c", "import ray"], capture_output=True).returncode == 0:
        pytest.skip("this Python has Ray")
    assert done.returncode == 3 and "ray.log" in done.stderr
    assert "pip install ray" in (batch.output / "ray.log").read_text()
