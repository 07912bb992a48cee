"""Recorded programs that start others, and programs that record at once."""

import json
import resource
import subprocess
import sys

import pytest
from program import PROGRAM, ROOT, run, run_json
from recorded import ENVIRONMENT, record
from system import linux_only

HAND = """
import array, json, os, pathlib, subprocess, sys
from lockstep import checkpoint
checkpoint("x", array.array("f", [1.0, 2.0]))
"""


def test_a_child_leaves_the_run_of_its_parent_alone(tmp_path):
    """What the parent's run.json says is the parent's: a child found the run taken and wrote "failed" and no records."""
    source = (
        HAND
        + """
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    own = json.loads(pathlib.Path(os.environ["LOCKSTEP_RUN"], "run.json").read_text())
    print("SAYS", own["status"], "recorded" in own)
"""
    )
    parent = record(tmp_path, source, "--name", "parent")
    assert parent.done.returncode == 0, parent.done.stderr
    assert "SAYS running False" in (parent.path / "output.log").read_text()
    assert "archive" not in parent.done.stderr


def test_the_latest_run_of_a_name_is_the_programs_not_its_childs(tmp_path):
    source = HAND + "if len(sys.argv) < 2: subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    parent = record(tmp_path, source, "--name", "port")
    home = ["--home", tmp_path / "home"]
    assert run_json(*home, "runs", "show", "latest:port")[1]["path"] == str(parent.path)
    child = run_json(*home, "runs", "show", "latest:port.child")[1]
    assert child["path"] != str(parent.path) and child["summary"]["records"] == 1
    assert child["run"]["program"]["argv"][-1] == "child"  # who it was


def test_a_second_program_of_the_name_records_while_the_first_has_children(tmp_path):
    """Its recording was given up, and its program left running, when the first one's run could not be archived."""
    source = (
        HAND
        + """
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print("ready", flush=True)
    sys.stdin.read()
"""
    )
    script = tmp_path / "first.py"
    script.write_text(source)
    first = subprocess.Popen(
        [PROGRAM, "--home", tmp_path / "home", "record", "--name", "same", "--", sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        assert first.stdout.readline() == b"ready\n"
        second = record(tmp_path, HAND, "--name", "same")
        assert second.done.returncode == 0, second.done.stderr
        assert second.names() == ["x"]
    finally:
        first.stdin.close()
        assert first.wait(60) == 0, first.stderr.read()


def test_a_program_that_opens_its_run_itself_is_named_in_it(tmp_path):
    environment = {
        **ENVIRONMENT,
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_RECORD": "mine",
        "PYTHONPATH": str(ROOT / "python"),
    }
    subprocess.run([sys.executable, "-c", HAND, "an argument"], check=True, env=environment, cwd=tmp_path)
    program = json.loads((tmp_path / "home" / "latest" / "mine" / "run.json").read_text())["program"]
    assert program["argv"][0] == sys.executable and program["argv"][-1] == "an argument"
    assert program["cwd"] == str(tmp_path)


def test_modules_run_by_name_are_runs_of_that_name(tmp_path):
    (tmp_path / "their_module.py").write_text(HAND)
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "record", "--", sys.executable, "-m", "their_module"],
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert run_json("--home", tmp_path / "home", "runs", "show", "latest:their_module")[1]["summary"]["records"] == 1


@pytest.mark.parametrize("option", [("--steps", "3-x"), ("--budget", "much")])
def test_what_is_mistyped_is_said_before_the_program_runs(tmp_path, option):
    done = run("--home", tmp_path / "home", "record", *option, "--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
    assert done.returncode == 125 and "ran" not in done.stdout and "expected such as" in done.stderr


def test_a_run_that_cannot_be_made_costs_one_warning_and_leaves_nothing(tmp_path):
    """run.json does not fit: a limit on the size of files stands for a full disk."""
    environment = {
        **ENVIRONMENT,
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_RECORD": "1",
        "PYTHONPATH": str(ROOT / "python"),
    }
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n" + HAND + "print('went on')\n"
    done = subprocess.run(
        [sys.executable, "-c", limited], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "went on\n"
    assert done.stderr.count("\n") == 1 and "nothing is recorded" in done.stderr, done.stderr
    assert list((tmp_path / "home" / "runs").iterdir()) == []


def test_a_forked_worker_that_records_first_does_not_take_the_programs_run(tmp_path):
    """The workers of a data loader run modules before the program does: its own were in another run."""
    source = """
import array, os
from lockstep import checkpoint
worker = os.fork()
if worker == 0:
    checkpoint("worker", array.array("f", [1.0]))
    os._exit(0)
os.waitpid(worker, 0)
checkpoint("program", array.array("f", [2.0]))
"""
    program = record(tmp_path, source, "--name", "port")
    assert program.done.returncode == 0, program.done.stderr
    assert program.names() == ["program"]
    assert run_json("--home", tmp_path / "home", "runs", "show", "latest:port.child")[1]["summary"]["records"] == 1


def test_a_worker_of_multiprocessing_says_that_it_has_finished(tmp_path):
    source = """
import array, multiprocessing
from lockstep import checkpoint
def work():
    checkpoint("worker", array.array("f", [1.0]))
if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
"""
    record(tmp_path, source, "--name", "port")
    assert run_json("--home", tmp_path / "home", "runs", "show", "latest:port.child")[1]["run"]["status"] == "finished"


def without_a_store(kind, tmp_path):
    """The home, and how to start, so that no run can be made: what is no folder cannot be written to even by root."""
    if kind == "unwritable":
        (tmp_path / "file").write_text("")
        return tmp_path / "file" / "home", {}
    # Run.json does not fit: a limit on the size of files stands for a full disk.
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40)), "restore_signals": False}
    return tmp_path / "home", limit


@pytest.mark.parametrize("kind", ["unwritable", "full"])
def test_a_program_runs_unrecorded_where_no_run_can_be_made(tmp_path, kind):
    """It was refused, although what is recorded is worth less than the program's own results."""
    home, start = without_a_store(kind, tmp_path)
    program = ["record", "--", sys.executable, "-c", HAND + "print('its result')\nsys.exit(7)"]
    start = {"env": ENVIRONMENT, "cwd": tmp_path, "capture_output": True, "text": True, **start}
    done = subprocess.run([PROGRAM, "--home", home, *program], **start)
    assert (done.returncode, done.stdout) == (7, "its result\n"), done.stderr
    first, last = done.stderr.splitlines()
    assert first.startswith("lockstep: the program runs unrecorded: [") and str(home) in first
    assert last.startswith("lockstep: nothing was recorded of the program, which failed: [") and str(home) in last
    told = json.loads(subprocess.run([PROGRAM, "--json", "--home", home, *program], **start).stdout)
    assert (told["run"], told["status"], told["exit_code"], told["records"]) == ("", "failed", 7, 0)
    assert str(home) in told["not_recorded"]
    assert not list((tmp_path / "home").glob("runs/*"))


@linux_only
def test_a_disk_that_is_full_at_the_end_costs_one_warning(tmp_path):
    full = (
        HAND + "import resource\nresource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (40, 40))\nprint('its result')\n"
    )
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "record", "--", sys.executable, "-c", full],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        restore_signals=False,
    )
    assert (done.returncode, done.stdout) == (0, "its result\n"), done.stderr
    first, last = done.stderr.splitlines()
    assert "does not say how its program ended" in first and "finished, 1 records" in last


def test_values_are_substituted_where_no_run_can_be_made(tmp_path):
    reference = record(tmp_path, HAND, "--name", "reference")
    source = "import numpy\nfrom lockstep import checkpoint\nprint(checkpoint('x', numpy.full(2, 3, 'f')).tolist())\n"
    home, start = without_a_store("unwritable", tmp_path)
    options = ["--reference", reference.path, "--substitute", "x"]
    done = subprocess.run(
        [PROGRAM, "--home", home, "record", *options, "--", sys.executable, "-c", source],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        **start,
    )
    assert (done.returncode, done.stdout) == (0, "[1.0, 2.0]\n"), done.stderr


@pytest.mark.parametrize(
    "wrong",
    [("--steps", "3-x", "--", sys.executable), ("--", "no_such_program"), ("--reference", "none", "--", "true")],
)
def test_mistakes_are_refused_also_where_no_run_can_be_made(tmp_path, wrong):
    home, _ = without_a_store("unwritable", tmp_path)
    done = run("--home", home, "record", *wrong, cwd=tmp_path)
    assert done.returncode == 125 and done.stderr.splitlines()[-1].startswith("lockstep: ["), done.stderr
