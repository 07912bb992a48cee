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


def told(cluster, word):
    cluster.stdin.write(word + "\n")
    cluster.stdin.flush()
    return json.loads(cluster.stdout.readline())


def stamps(batch):
    """Which file it is, and when it was written: a picture that is made twice has another."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in batch.output.glob("*.png")}


def test_every_job_is_done_once_although_a_node_is_killed(cluster, tmp_path):
    """The second node stands still with a job in its hands, and is gone for good once the first has gone on. That job is lost with
    it: only a retry on the other node does it."""
    jobs = [picture_job(number, steps=6) for number in range(30)]
    batch = Batch(tmp_path, jobs)
    batch.output.mkdir()
    # What an earlier node left: half a picture is no picture.
    (batch.output / "picture-3.png").write_bytes(b"\x89PNG half")
    program = batch.start("--engine", "ray", "--address", cluster.address, "--python", PYTHON, "--retries", "4")
    until(lambda: len(batch.results()) >= 4, program)
    until(lambda: told(cluster, "stop")["stopped"], program)  # a node without a worker would prove nothing
    before = len(batch.results())
    until(lambda: len(batch.results()) >= before + 3, program)  # the first node goes on
    made = stamps(batch)
    assert len(batch.results()) < 28, "the node was killed too late to matter"
    assert told(cluster, "kill")["killed"]
    said, errors = program.communicate(timeout=240)
    assert program.returncode == 0, errors + (batch.output / "ray.log").read_text()
    assert counts(json.loads(said)) == (30, 0, 0)
    whole(batch, jobs)
    after = stamps(batch)
    finished = {f"{result['id']}.png" for result in batch.results()}
    again = {name for name in made if made[name] != after[name]}
    assert not again - {"picture-3.png"} and made.keys() <= finished, "done twice"
    assert counts(batch.run("--engine", "ray", "--address", cluster.address, "--python", PYTHON)) == (0, 30, 0)
    assert stamps(batch) == after


def test_a_node_that_is_lost_without_retries_is_told(cluster, tmp_path):
    """The other way round: were the killed node's job done by luck, the test above would prove nothing."""
    jobs = [picture_job(number, steps=6) for number in range(12)]
    batch = Batch(tmp_path, jobs)
    program = batch.start("--engine", "ray", "--address", cluster.address, "--python", PYTHON, "--retries", "0")
    until(lambda: len(batch.results()) >= 3, program)
    until(lambda: told(cluster, "stop")["stopped"], program)
    before = len(batch.results())
    until(lambda: len(batch.results()) >= before + 2, program)
    told(cluster, "kill")
    said, errors = program.communicate(timeout=240)
    assert program.returncode == 3 and counts(json.loads(said)) == (11, 0, 1), said + errors


def test_many_short_jobs_share_tasks_and_a_wrong_one_among_them_fails_alone(cluster, tmp_path):
    """40 on two cores: the first ones go two by two."""
    jobs = [picture_job(number) for number in range(39)] + [picture_job(39, stepz=3)]
    jobs[0], jobs[39] = jobs[39], jobs[0]
    batch = Batch(tmp_path, jobs)
    assert counts(batch.run("--engine", "ray", "--address", cluster.address, "--python", PYTHON, status=3)) == (
        39,
        0,
        1,
    )
    assert sorted(result["id"] for result in batch.results()) == sorted(job["id"] for job in jobs)


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
