"""`lockstep tutorial`: every lesson works as it says, with the commands it tells people to type."""

import json
import os
import pathlib
import pty
import subprocess
import sys

import pytest
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def environment(tmp_path):
    return {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "LOCKSTEP_PYTHON": sys.executable,
        "LOCKSTEP_HOME": str(tmp_path / "untouched"),
    }


def run(tmp_path, *words, status=0):
    done = subprocess.run(
        [PROGRAM, *words],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


LESSONS = ["compare", "debug", "coverage", "prune", "agents"]


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_plays_itself(tmp_path, lesson):
    shown = run(tmp_path, "tutorial", lesson, "--auto").stdout
    assert (
        shown.count("$ lockstep ")
        == json.loads(run(tmp_path, "--json", "tutorial", "--list").stdout)["lessons"][LESSONS.index(lesson)]["steps"]
    )
    assert not list(tmp_path.iterdir()), "nothing is left behind, and the user's own home is not touched"


def test_lessons_are_listed_and_misspelt_ones_refused(tmp_path):
    assert [line.split()[0] for line in run(tmp_path, "tutorial", "--list").stdout.splitlines()] == LESSONS
    assert "compare" in run(tmp_path, "tutorial", "compar", "--auto", status=2).stderr
    assert "--auto" in run(tmp_path, "tutorial", "compare", status=2).stderr


def test_a_person_types(tmp_path):
    """Something wrong is met with help, Enter types the command, quit leaves."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "--color", "never", "tutorial", "compare"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"ls\nlockstep runs list\nlockstep record --name reference -- 'reference.py'\n\nquit\n")
    out, err = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 0, err
    assert "Here you type lockstep commands" in out and "That is not quite it." in out
    assert out.count("4 records") == 2 and "[3/5]" in out and "lockstep tutorial compare" in out
    assert not list(tmp_path.glob("lockstep-tutorial-*"))
