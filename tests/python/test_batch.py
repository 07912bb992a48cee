"""lockstep batch: every job done once, whatever ends in the middle, and what is whole is not done again."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from system import children_of, is_running

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
if not (ROOT / "models/tiny/model_index.json").exists():
    pytest.skip("no embedded model", allow_module_level=True)


def picture_job(number, **fields):
    return {
        "id": f"picture-{number}",
        "kind": "generate",
        "prompt": "a red circle",
        "size": "64x64",
        "steps": 2,
        "seed": number,
        **fields,
    }


class Batch:
    def __init__(self, folder, jobs):
        self.folder, self.output = folder, folder / "out"
        self.home = {"LOCKSTEP_HOME": str(folder / "home")}
        self.write(jobs)

    def write(self, jobs):
        (self.folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))

    def command(self, *options):
        return [LOCKSTEP, "--json", "batch", "jobs.jsonl", "--output", "out", *options]

    def run(self, *options, status=0):
        done = subprocess.run(
            self.command(*options),
            cwd=self.folder,
            env={**os.environ, **self.home},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout) if status != 2 else done.stderr

    def start(self, *options):
        return subprocess.Popen(
            self.command(*options),
            cwd=self.folder,
            env={**os.environ, **self.home},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def results(self):
        file = self.output / "results.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def pictures(self):
        return {path.name: path.read_bytes() for path in self.output.glob("*.png")}


def counts(answer):
    return answer["done"], answer["done_before"], answer["failed"]


def whole(batch, jobs):
    """One line for each job, a picture for each, and nothing that was left half written."""
    results = batch.results()
    assert sorted(result["id"] for result in results) == sorted(job["id"] for job in jobs)
    assert all(result["status"] == "done" for result in results)
    assert sorted(batch.pictures()) == sorted(f"{job['id']}.png" for job in jobs)
    assert all(
        picture.startswith(b"\x89PNG") and picture.endswith(b"IEND\xaeB`\x82") for picture in batch.pictures().values()
    )
    assert not list(batch.output.glob("*.tmp-*"))


def test_jobs_are_done_as_the_commands_do_them(tmp_path):
    batch = Batch(tmp_path, [picture_job(1), picture_job(2, n=2, output_format="webp")])
    assert counts(batch.run("--workers", "2")) == (2, 0, 0)
    command = [
        LOCKSTEP,
        "generate",
        "--prompt",
        "a red circle",
        "--width",
        "64",
        "--height",
        "64",
        "--steps",
        "2",
        "--seed",
        "1",
        "--output",
        "alone.png",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "alone.png").read_bytes() == (batch.output / "picture-1.png").read_bytes()
    result = {result["id"]: result for result in batch.results()}["picture-2"]
    assert [(made["file"], made["seed"]) for made in result["files"]] == [
        ("picture-2-0.webp", 2),
        ("picture-2-1.webp", 3),
    ]
    assert result["tries"] == 1 and all(
        (batch.output / made["file"]).stat().st_size == made["bytes"] for made in result["files"]
    )


def test_only_what_is_not_whole_is_done_again(tmp_path):
    jobs = [picture_job(number) for number in range(5)]
    batch = Batch(tmp_path, jobs)
    assert counts(batch.run()) == (5, 0, 0)
    before = batch.pictures()
    assert counts(batch.run()) == (0, 5, 0)
    (batch.output / "picture-0.png").unlink()
    (batch.output / "picture-1.png").write_bytes(before["picture-1.png"][:100])
    (batch.output / "picture-2.json").write_text("{half")
    jobs[3]["seed"] = 33
    batch.write(jobs)
    assert counts(batch.run()) == (4, 1, 0)
    whole(batch, jobs)
    after = batch.pictures()
    assert {name for name in after if after[name] != before[name]} == {"picture-3.png"}


def test_edits_and_comparisons(tmp_path):
    command = [
        LOCKSTEP,
        "--debug",
        "generate",
        "--prompt",
        "a red circle",
        "--width",
        "64",
        "--height",
        "64",
        "--steps",
        "2",
    ]
    for seed, name in (("1", "one"), ("1", "same"), ("2", "other")):
        words = [*command, "--seed", seed, "--run-name", name, "--output", f"{name}.png"]
        subprocess.run(
            words,
            cwd=tmp_path,
            env={**os.environ, "LOCKSTEP_HOME": str(tmp_path / "home")},
            check=True,
            capture_output=True,
        )
    batch = Batch(
        tmp_path,
        [
            {"id": "blue", "kind": "edit", "image": "one.png", "prompt": "make the circle blue", "seed": 1, "steps": 2},
            {"id": "same", "kind": "compare", "reference": "latest:one", "candidate": "latest:same"},
            {"id": "other", "kind": "compare", "reference": "latest:one", "candidate": "latest:other"},
        ],
    )
    assert counts(batch.run("--workers", "2")) == (3, 0, 0)
    verdicts = {result["id"]: result.get("verdict") for result in batch.results()}
    assert verdicts["same"] == "match" and verdicts["other"] not in ("match", None)
    assert json.loads((batch.output / "other.comparison.json").read_text())["verdict"] == verdicts["other"]
    assert (batch.output / "blue.png").exists()


def test_a_wrong_job_fails_alone_and_is_not_tried_again(tmp_path):
    batch = Batch(tmp_path, [picture_job(1), picture_job(2, stepz=3), picture_job(3)])
    assert counts(batch.run(status=3)) == (2, 0, 1)
    (failed,) = [result for result in batch.results() if result["status"] == "failed"]
    assert failed["id"] == "picture-2" and "stepz" in failed["error"]["message"] and failed["tries"] == 1


def test_what_may_succeed_later_is_tried_again(tmp_path):
    batch = Batch(tmp_path, [picture_job(1)])
    (batch.output / "picture-1.png").mkdir(parents=True)  # a file cannot take its place
    assert counts(batch.run("--retries", "3", status=3)) == (0, 0, 1)
    assert batch.results()[0]["tries"] == 4
    (batch.output / "picture-1.png").rmdir()
    assert counts(batch.run()) == (1, 0, 0)


@pytest.mark.parametrize(
    "lines, said",
    [
        ('{"kind": "generate", "prompt": "x"}\n{"kind": "draw"}\n', "line 2: there is no such kind of job"),
        ('{"kind": "generate", "id": "../x"}\n', "line 1: the id cannot be a file's name"),
        ('{"kind": "generate", "id": "a"}\n\n{"kind": "edit", "id": "a"}\n', "line 3: the id 'a' was used before"),
        ("[1]\n", "line 1 is no JSON object"),
    ],
)
def test_a_wrong_file_of_jobs_is_refused_before_anything_is_done(tmp_path, lines, said):
    batch = Batch(tmp_path, [])
    (tmp_path / "jobs.jsonl").write_text(lines)
    assert said in batch.run(status=2)
    assert not batch.output.exists()


def until(condition, program):
    while not condition():
        assert program.poll() is None, program.communicate()
        time.sleep(0.005)


def test_workers_that_are_killed_lose_no_job(tmp_path):
    jobs = [picture_job(number) for number in range(12)]
    batch = Batch(tmp_path, jobs)
    program = batch.start("--workers", "2", "--retries", "5")
    for ended in (1, 4):
        until(lambda: len(batch.results()) >= ended and children_of(program.pid), program)
        os.kill(children_of(program.pid)[0], signal.SIGKILL)
    said, errors = program.communicate(timeout=240)
    assert program.returncode == 0, errors
    assert counts(json.loads(said)) == (12, 0, 0)
    whole(batch, jobs)
    assert max(result["tries"] for result in batch.results()) >= 2


def test_a_worker_that_always_ends_is_a_failure_with_its_reason(tmp_path):
    batch = Batch(tmp_path, [picture_job(1)])
    answer = batch.run("--retries", "1", "--device", "no-such-device", status=3)
    assert counts(answer) == (0, 0, 1)
    assert "no-such-device" in batch.results()[0]["error"]["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_batch_that_was_ended_goes_on_where_it_was(tmp_path, number):
    jobs = [picture_job(number) for number in range(10)]
    batch = Batch(tmp_path, jobs)
    program = batch.start("--workers", "2")
    until(lambda: len(batch.results()) >= 2, program)
    workers = children_of(program.pid)
    program.send_signal(number)
    program.communicate(timeout=60)
    for worker in workers:  # they end with whoever gave them work
        while is_running(worker):
            time.sleep(0.005)
    answer = batch.run("--workers", "2")
    assert answer["done_before"] >= 2 and answer["done"] + answer["done_before"] == 10
    whole(batch, jobs)
