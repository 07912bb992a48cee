"""`lockstep prune` ended by SIGKILL at any moment: the originals are as they were, and the copy is whole or not there."""

import subprocess
import sys
import time

import pytest
from test_prune import PROGRAM, SCRIPT, checkout, files, fingerprint, home, prune, pytestmark  # noqa: F401


@pytest.mark.parametrize("kind", ["into", "branch"])
def test_killed_at_any_moment_the_copy_is_whole_or_not_there(home, checkout, kind):  # noqa: F811
    def place(name):
        return home.folder / name if kind == "into" else name

    def held(name):
        if kind == "into":
            return files(home.folder / name)
        return set(checkout("ls-tree", "-r", "--name-only", name).splitlines())

    began = time.monotonic()
    prune(home, SCRIPT, f"--{kind}", place("whole"))
    lasted, whole = time.monotonic() - began, held("whole")
    before = (
        fingerprint(home.folder / "lib/reference"),
        checkout("rev-parse", "HEAD"),
        checkout("status", "--porcelain"),
    )
    killed = 0
    for turn in range(8):
        name = f"copy{turn}"
        running = subprocess.Popen(
            [
                PROGRAM,
                "prune",
                "--packages",
                "reference",
                f"--{kind}",
                place(name),
                "--",
                sys.executable,
                home.folder / "port.py",
            ],
            cwd=home.folder,
            env=home.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            running.wait(lasted * (turn + 1) / 8.5)  # the moment differs from run to run, and none may harm
        except subprocess.TimeoutExpired:
            killed += 1
            running.kill()
            running.wait()
        home.run("kill-all", "--yes", "--grace", "0")
        now = (
            fingerprint(home.folder / "lib/reference"),
            checkout("rev-parse", "HEAD"),
            checkout("status", "--porcelain"),
        )
        assert now == before
        there = (home.folder / name).exists() if kind == "into" else checkout("branch", "--list", name)
        if there:
            assert held(name) == whole
        else:
            prune(home, SCRIPT, f"--{kind}", place(name))
            assert held(name) == whole and not list(home.folder.glob(f".{name}.pruning-*"))
    assert killed >= 4
