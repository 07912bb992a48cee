"""`doctor`, help, and the rules that hold for every command."""

import pathlib

from program import PROGRAM, run, run_json


def test_doctor_agrees_with_the_system():
    done, facts = run_json("doctor")
    assert done.returncode == 0
    flags = next((line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "").split()
    for name in ("avx2", "avx512f", "avx512_bf16", "amx_tile"):
        assert facts["cpu"]["features"][name] == (name in flags), name
    total = next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert facts["memory"]["total_bytes"] == int(total.split()[1]) * 1024
    for name in ("fmt", "oneDNN", "libpng", "Highway"):
        assert facts["libraries"][name][0].isdigit(), name
    assert facts["libraries"]["oneDNN"].split(".")[0] in run("doctor").stdout


def every_command():
    """All commands, found by walking the help."""
    waiting, found = [[]], []
    while waiting:
        path = waiting.pop()
        text = run(*path, "--help").stdout
        found.append((path, text))
        if "\nCommands\n" in text:
            block = text.split("\nCommands\n")[1].split("\n\n")[0]
            waiting += [path + [line.split()[0]] for line in block.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    return found


def test_every_command_has_help_with_examples_first():
    commands = every_command()
    assert len(commands) > 12
    for path, text in commands:
        assert text.strip(), path
        if "Examples" in text:
            assert text.index("Examples") < text.index("Usage"), path
        for example in (line.strip() for line in text.splitlines() if line.startswith("  lockstep ")):
            words = example.split()[1:]
            known = [p for p, _ in commands]
            assert any(words[: len(p)] == p for p in known if p) or words[0].startswith(("-", "COMMAND")), example


def test_usage_errors_exit_with_2():
    for arguments in ([], ["nonsense"], ["tensors"], ["doctor", "--nonsense"], ["tensors", "show"], ["doctor", "--color", "pink"]):
        done = run(*arguments)
        assert done.returncode == 2 and done.stderr and not done.stdout, arguments


def test_version_and_global_options_anywhere():
    assert run("--version").stdout.startswith("lockstep ")
    assert run("--json", "doctor").stdout[0] == "{"
    assert pathlib.Path(PROGRAM).exists()
