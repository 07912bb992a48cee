"""`lockstep clean` and `lockstep kill-all`: what is left of earlier work goes, and nothing else does."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from debug_service import PROGRAM, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

DAY = 24 * 3600

RECORDED = """
import numpy, lockstep
lockstep.checkpoint("x", numpy.arange(6.0, dtype="float32"))
"""

# Waits until it is ended; says when it is ready, and has a child that does not listen to SIGTERM.
WAITING = """
import pathlib, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
signal.pause()
"""


def record(home, name):
    script = home.write(f"{name}.py", RECORDED)
    return json.loads(home.run("--json", "record", "--name", name, "--", sys.executable, script).stdout)["run"]


def clean(home, *words):
    return json.loads(home.run("--json", "clean", *words).stdout)


def runs(home):
    return [run["id"] for run in json.loads(home.run("--json", "runs", "list").stdout)["runs"]]


def made_days_ago(home, run, days):
    (folder,) = home.home.glob(f"*/{run}")  # in the archive, where a newer one of its name was recorded
    for path in (folder, folder / "run.json"):
        os.utime(path, (time.time() - days * DAY,) * 2)


def test_a_plan_removes_nothing(home):
    run = record(home, "one")
    plan = clean(home)
    assert [(item["kind"], item["id"], item["name"]) for item in plan["items"]] == [("runs", run, "one")]
    assert plan["removed"] is False and plan["bytes"] == plan["items"][0]["bytes"] > 0
    shown = home.run("clean").stdout
    assert run in shown and "would remove 1 items" in shown and "--yes" in shown
    assert runs(home) == [run]


def test_age_and_number_choose(home):
    old, newer, newest = (record(home, "port") for _ in range(3))
    other = record(home, "reference")
    for run, days in ((old, 9), (newer, 8), (newest, 1), (other, 30)):
        made_days_ago(home, run, days)
    assert {item["id"] for item in clean(home, "--older-than", "7d")["items"]} == {old, newer, other}
    assert {item["id"] for item in clean(home, "--older-than", "7d", "--keep-last", "1")["items"]} == {old, newer}
    assert {item["id"] for item in clean(home, "--keep-last", "2")["items"]} == {old}
    done = clean(home, "--older-than", "8.5d", "--keep-last", "1", "--yes")
    assert done["removed"] and [item["id"] for item in done["items"]] == [old]
    assert set(runs(home)) == {newer, newest, other}
    assert not (home.home / "trash").exists()


def test_kinds_are_told_apart(home):
    kept, archived = record(home, "kept"), record(home, "archived")
    home.run("runs", "archive", archived)
    home.start(home.write("short.py", "print(1)\n"), options=["--run"])
    home.debug("wait")
    home.debug("terminate")
    (home.home / "saved").mkdir()
    np.save(home.home / "saved" / "x.npy", np.zeros(3, "float32"))
    broken = home.home / "runs" / "20200101-000000-000000"
    broken.mkdir()
    os.utime(broken, (time.time() - DAY,) * 2)
    kinds = {item["kind"] for item in clean(home)["items"]}
    assert kinds == {"runs", "archive", "sessions", "leftovers"}, "what a program saved by name is not old work"
    assert {item["kind"] for item in clean(home, "--only", "archive,sessions")["items"]} == {"archive", "sessions"}
    assert [item["name"] for item in clean(home, "--only", "saved")["items"]] == ["x"]
    clean(home, "--only", "archive,sessions,leftovers", "--yes")
    assert runs(home) == [kept] and not broken.exists() and not any((home.home / "sessions").iterdir())


@pytest.mark.parametrize(
    "words", [["--older-than", "7"], ["--older-than", "soon"], ["--only", "run"], ["--keep-last", "-1"]]
)
def test_what_is_misspelt_is_refused(home, words):
    record(home, "one")
    done = home.run("clean", "--yes", *words, check=False)
    assert done.returncode == 2 and done.stderr and len(runs(home)) == 1


def test_what_is_in_use_stays(home):
    ready = home.folder / "ready"
    script = home.write(
        "waiting.py",
        "import numpy, lockstep, sys, pathlib, signal\nlockstep.checkpoint('x', numpy.zeros(3))\npathlib.Path(sys.argv[1]).touch()\nsignal.pause()\n",
    )
    recorder = subprocess.Popen(
        [PROGRAM, "record", "--", sys.executable, script, ready], env=home.environment, cwd=home.folder
    )
    try:
        wait_until(ready.exists)
        home.start(home.write("paused.py", "x = 1\ny = 2\n"))
        done = clean(home, "--yes")
        assert done["items"] == [] and {item["kind"] for item in done["in_use"]} == {"runs", "sessions"}
        assert all(item["in_use"] for item in done["in_use"])
        assert len(runs(home)) == 1
    finally:
        home.run("kill-all", "--yes")
        recorder.wait(30)


def test_links_are_removed_and_not_followed(home, tmp_path):
    run = record(home, "one")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    (home.home / "runs" / run / "tensors" / "link").symlink_to(outside)
    (home.home / "runs" / "elsewhere").symlink_to(outside)
    os.utime(home.home / "runs" / "elsewhere", (time.time() - DAY,) * 2, follow_symlinks=False)
    clean(home, "--yes")
    assert (outside / "precious").read_text() == "mine" and runs(home) == []
    assert not (home.home / "runs" / "elsewhere").is_symlink()


def test_killed_on_the_way_a_run_is_whole_or_gone(home):
    first = record(home, "one")
    source = home.home / "runs" / first
    for i in range(30):
        name = f"20240101-0000{i:02}-abcdef"
        copy = home.home / "runs" / name
        (copy / "tensors").mkdir(parents=True)
        for part in source.rglob("*"):
            if part.is_file() and part.name != "lock":
                os.link(part, copy / part.relative_to(source))
        for extra in range(60):
            (copy / "tensors" / f"extra{extra}").write_bytes(b"x")
    before = runs(home)
    process = subprocess.Popen(
        [PROGRAM, "clean", "--yes"], env=home.environment, cwd=home.folder, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: process.poll() is not None or len(list((home.home / "runs").iterdir())) < len(before) - 3)
    process.kill()
    process.wait()
    left = runs(home)
    assert set(left) <= set(before)
    for run in left:
        assert len(list((home.home / "runs" / run / "tensors").glob("extra*"))) in (0 if run == first else 60, 60)
    for path in home.home.glob("trash/*"):
        os.utime(path, (time.time() - DAY,) * 2)
    clean(home, "--yes")
    assert runs(home) == [] and not (home.home / "trash").exists()


def start_waiting(home, name):
    """A recorded program with a child, both waiting: the recorder, and the child's number."""
    ready = home.folder / f"{name}.ready"
    recorder = subprocess.Popen(
        [PROGRAM, "record", "--name", name, "--", sys.executable, home.write(f"{name}.py", WAITING), ready],
        env=home.environment,
        cwd=home.folder,
    )
    wait_until(lambda: ready.exists() and ready.read_text())
    return recorder, int(ready.read_text())


def test_everything_that_was_started_is_ended_with_its_children(home):
    recorder, child = start_waiting(home, "waiting")
    debugged = home.start(home.write("paused.py", "x = 1\ny = 2\n"))
    pid = home.debug("status")["pid"]
    plan = json.loads(home.run("--json", "kill-all", "--dry-run").stdout)
    assert {program["kind"] for program in plan["programs"]} == {"recorded run", "debug session"} and plan[
        "done"
    ] is False
    assert [c["pid"] for program in plan["programs"] for c in program["children"]] == [child]
    assert alive(child) and alive(pid) and debugged
    assert "would end 3 processes" in home.run("kill-all").stdout and alive(child)
    done = json.loads(home.run("--json", "kill-all", "--yes", "--grace", "0.5").stdout)
    assert child in done["killed"], "it does not listen to SIGTERM"
    assert not done["left"] and not alive(child) and not alive(pid)
    assert recorder.wait(30) == 128 + signal.SIGTERM
    assert "nothing that Lockstep started is running" in home.run("kill-all", "--yes").stdout


def test_a_number_that_was_given_again_is_not_touched(home):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        run = record(home, "ended")
        facts = home.home / "runs" / run / "process.json"
        assert not facts.exists(), "there is nothing to end any more"
        facts.write_text(json.dumps({"pid": stranger.pid, "start_ticks": 1}))  # left by a recorder that was killed
        done = json.loads(home.run("--json", "kill-all", "--yes").stdout)
        assert done["programs"] == [] and stranger.poll() is None
        for nonsense in ("", "[]", '{"pid": -1, "start_ticks": 1}', '{"pid": 1, "start_ticks": 0}', '{"pid": "1"}'):
            facts.write_text(nonsense)
            assert json.loads(home.run("--json", "kill-all", "--yes").stdout)["programs"] == []
    finally:
        stranger.kill()
        stranger.wait()


def test_other_programs_are_listed_and_ended_only_by_their_number(home, tmp_path):
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 4096)
    holding = "import mmap, sys, time; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(flush=True); time.sleep(600)"
    stranger = subprocess.Popen([sys.executable, "-c", holding, library], stdout=subprocess.PIPE)
    try:
        stranger.stdout.readline()
        listed = json.loads(home.run("--json", "kill-all", "--frameworks", "torch,mlx", "--yes").stdout)
        mine = [other for other in listed["others"] if other["pid"] == stranger.pid]
        assert mine and mine[0]["frameworks"] == ["torch"] and stranger.poll() is None
        refused = home.run("kill-all", "--force", stranger.pid, "--yes", check=False)
        assert refused.returncode == 2 and "--frameworks" in refused.stderr and stranger.poll() is None
        refused = home.run("kill-all", "--frameworks", "jax", "--force", stranger.pid, "--yes", check=False)
        assert refused.returncode == 2 and stranger.poll() is None, "it has no JAX"
        done = json.loads(
            home.run("--json", "kill-all", "--frameworks", "torch", "--force", stranger.pid, "--yes").stdout
        )
        assert stranger.pid in done["ended"] and stranger.wait(30) == -signal.SIGTERM
        assert home.run("kill-all", "--frameworks", "tensor", check=False).returncode == 2
    finally:
        stranger.kill()
        stranger.wait()


def test_both_are_operations_of_the_service(home):
    run = record(home, "one")
    home.ensure()
    assert [item["id"] for item in home.call("clean")["items"]] == [run]
    assert home.call("kill-all")["programs"] == []
    assert [item["id"] for item in home.call("clean", yes=True)["items"]] == [run] and runs(home) == []
