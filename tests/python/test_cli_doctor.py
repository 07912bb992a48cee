"""`doctor`, help, and the rules that hold for every command."""

import pathlib
import re
import shlex

import numpy as np
import pytest
from program import PROGRAM, run, run_json
from system import linux_only


@linux_only
def test_doctor_agrees_with_the_system():
    done, facts = run_json("doctor")
    assert done.returncode == 0
    flags = next(
        (line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), ""
    ).split()
    for name in ("avx2", "avx512f", "avx512_bf16", "amx_tile"):
        assert facts["cpu"]["features"][name] == (name in flags), name
    total = next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert facts["memory"]["total_bytes"] == int(total.split()[1]) * 1024
    for name in ("fmt", "oneDNN", "libpng", "Highway"):
        assert facts["libraries"][name][0].isdigit(), name
    assert facts["libraries"]["oneDNN"].split(".")[0] in run("doctor").stdout


def test_doctor_says_what_mlx_it_found_or_why_not(tmp_path, monkeypatch):
    mlx = run_json("doctor")[1]["mlx"]
    assert mlx["version"][0].isdigit() if mlx["usable"] else mlx["why"]
    monkeypatch.setenv("LOCKSTEP_MLX_LEAF", str(tmp_path / "none.so"))
    mlx = run_json("doctor")[1]["mlx"]
    assert not mlx["usable"] and "none.so" in mlx["why"]
    assert f"MLX             not usable: {mlx['why']}" in run("doctor").stdout
    refused = run("generate", "--prompt", "x", "--device", "mlx", "--steps", 2, "--output", "x.png", cwd=tmp_path)
    assert refused.returncode == 3 and "none.so" in refused.stderr and "--device cpu" in refused.stderr


def every_command():
    """All commands, found by walking the help."""
    waiting, found = [[]], []
    while waiting:
        path = waiting.pop()
        text = run(*path, "--help").stdout
        found.append((path, text))
        if "\nCommands\n" in text:
            block = text.split("\nCommands\n")[1].split("\n\n")[0]
            waiting += [
                path + [line.split()[0]]
                for line in block.splitlines()
                if line.startswith("  ") and not line.startswith("   ")
            ]
    return found


def test_every_command_has_help_with_examples_first():
    commands = every_command()
    assert len(commands) > 12
    helps = {tuple(path): text for path, text in commands}
    for path, text in commands:
        assert text.index("Examples") < text.index("Usage"), path
        examples = text.split("\nExamples\n")[1].split("\n\n")[0].splitlines()
        assert examples, path
        for example in examples:
            words = shlex.split(example)
            runs_program = "--" in words  # whole, though the command may have others below it
            words = words[: words.index("--")] if runs_program else words
            assert words[: len(path) + 1] == ["lockstep", *path], f"{path} shows somebody else's example: {example}"
            deepest = max((known for known in helps if tuple(words[1 : len(known) + 1]) == known), key=len)
            assert runs_program or "\nCommands\n" not in helps[deepest], f"no whole command: {example}"
            for option in (word for word in words if word.startswith("--")):
                assert re.search(rf"(^|[ ,]){option}\b", helps[deepest] + helps[()], re.M), f"no such option: {example}"


def test_usage_errors_exit_with_2():
    for arguments in (
        [],
        ["nonsense"],
        ["tensors"],
        ["doctor", "--nonsense"],
        ["tensors", "show"],
        ["doctor", "--color", "pink"],
    ):
        done = run(*arguments)
        assert done.returncode == 2 and done.stderr and not done.stdout, arguments


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "tensors list FILE",
        "tensors info FILE",
        "tensors info FILE a",
        "tensors show FILE a [0]",
        "tensors stats FILE",
        "tensors diff FILE FILE",
        "tensors export FILE --output OUT",
        "weights list FILE",
        "weights search FILE a",
        "weights show FILE a",
        "weights report FILE",
        "weights diff FILE FILE",
    ],
)
def test_every_command_speaks_json(tmp_path, command):
    np.savez(tmp_path / "x.npz", a=np.arange(4, dtype=np.float32))
    words = [
        {"FILE": tmp_path / "x.npz", "OUT": tmp_path / "out.safetensors"}.get(word, word) for word in command.split()
    ]
    done, document = run_json(*words)
    assert done.returncode == 0 and isinstance(document, dict) and document, done.stderr
    failed, document = run_json(*(tmp_path / "none.npz" if word == tmp_path / "x.npz" else word for word in words))
    if "FILE" in command:
        assert failed.returncode == 2 and document["error"]["code"] == "not_found", "and so do errors"


def test_version_and_global_options_anywhere():
    assert run("--version").stdout.startswith("lockstep ")
    assert run("--json", "doctor").stdout[0] == "{"
    assert pathlib.Path(PROGRAM).exists()
