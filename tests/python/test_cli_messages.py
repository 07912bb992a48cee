"""What commands say on stderr: --verbose, --quiet, and the questions of `tensors clear`."""

import os
import pty
import subprocess

import numpy as np
import pytest
from program import PROGRAM, run, run_json


@pytest.fixture
def array(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(12, dtype=np.float32))
    return path


@pytest.mark.parametrize(
    "command",
    [["tensors", "info"], ["tensors", "stats"], ["tensors", "show"], ["tensors", "list"], ["weights", "list"]],
)
def test_verbose_names_the_file_and_the_time(array, command):
    plain, chatty = run(*command, array), run(*command, array, "--verbose")
    assert plain.stderr == "" and plain.stdout == chatty.stdout, "results are the same"
    assert f"open: {array}" in chatty.stderr
    assert "exit status 0" in chatty.stderr.splitlines()[-1] and "processor time" in chatty.stderr
    before = run("--verbose", *command, array)
    assert f"open: {array}" in before.stderr, "before the command too"


def test_verbose_says_which_tolerance_was_chosen(array):
    done = run("tensors", "diff", array, array, "--verbose")
    assert "12 pairs of f32 and f32, tolerance" in done.stderr


def test_verbose_leaves_json_alone(array):
    done, document = run_json("tensors", "list", array, "--verbose")
    assert len(document["tensors"]) == 1 and "open:" in done.stderr


def test_the_command_is_found_behind_global_options(array, tmp_path):
    """Only its options are set up: a value that is called like a command must not be taken for one."""
    for words in (["--home", "compare"], ["--color", "never"], ["--home=zoom", "--quiet"], ["--json"]):
        done = run(*words, "tensors", "list", array, cwd=tmp_path)
        assert done.returncode == 0 and "12" in done.stdout, done.stderr
    wrong = run("--home", "compare", "tensors", "lst", array)
    assert wrong.returncode == 2 and "lockstep tensors has no command 'lst'; try list" in wrong.stderr
    assert run("--bogus", "tensors").stderr.startswith("lockstep: [usage] lockstep has no option '--bogus'")
    assert run("--color", "never", "record").returncode == 125, "what record itself refuses"


def test_verbose_and_quiet_exclude_each_other(array):
    done = run("tensors", "list", array, "--verbose", "--quiet")
    assert done.returncode == 2 and "--quiet" in done.stderr and "--verbose" in done.stderr


def test_names_in_notes_cannot_command_the_terminal(tmp_path):
    path = tmp_path / "a\x1b[31m.npy"
    np.save(path, np.zeros(1, np.float32))
    assert "\x1b" not in run("tensors", "list", path, "--verbose", "--color", "never").stderr


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "home" / "saved"
    folder.mkdir(parents=True)
    for name in ("latents_1", "latents_2", "noise"):
        np.save(folder / f"{name}.npy", np.zeros(4, np.float32))
        (folder / f"{name}.json").write_text("{}")
    (folder / "notes.txt").write_text("mine")
    (tmp_path / "home" / "runs").mkdir()
    (tmp_path / "home" / "runs" / "kept.npy").write_bytes(b"x")
    return tmp_path / "home"


def left(home):
    return sorted(path.name for path in (home / "saved").iterdir())


def test_clear_asks_first(saved):
    everything = left(saved)
    refused = run("tensors", "clear", "--home", saved)
    assert refused.returncode == 2 and "--yes" in refused.stderr and left(saved) == everything


@pytest.mark.parametrize("answer, removed", [("n", False), ("", False), ("y", True)])
def test_clear_asks_on_a_terminal(saved, answer, removed):
    leader, follower = pty.openpty()
    os.write(leader, f"{answer}\n".encode())
    done = subprocess.run(
        [PROGRAM, "tensors", "clear", "noise", "--home", str(saved)],
        stdin=follower,
        capture_output=True,
        text=True,
        timeout=60,
    )
    os.close(follower), os.close(leader)
    assert done.returncode == 0 and "remove 1 saved tensors" in done.stderr
    assert ("noise.npy" not in left(saved)) == removed


def test_clear_removes_what_was_chosen_and_nothing_else(saved):
    done, result = run_json("tensors", "clear", "latents*", "--yes", "--home", saved)
    assert done.returncode == 0 and result["removed"] == ["latents_1", "latents_2"]
    assert left(saved) == ["noise.json", "noise.npy", "notes.txt"]
    unknown = run("tensors", "clear", "nois", "--yes", "--home", saved)
    assert unknown.returncode == 2 and "noise" in unknown.stderr
    assert run("tensors", "clear", "--yes", "--home", saved).returncode == 0
    assert left(saved) == ["notes.txt"] and (saved / "runs" / "kept.npy").exists()
    assert run("tensors", "clear", "--yes", "--home", saved).returncode == 0, "nothing left is no error"
