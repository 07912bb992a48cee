"""./dev runs on a Mac with bash 3.2 and BSD's tools: what they do not know stands in no script that runs there."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEV = ROOT / "tools" / "dev"
# These start Debian's own tools, or need a GPU of NVIDIA's.
LINUX_ONLY = {
    "arm64.sh",
    "bare_debian.sh",
    "bare_tree.sh",
    "device-test.sh",
    "device_test_run.sh",
    "macos.sh",
    "tsan.sh",
    "wheel.sh",
}
SCRIPTS = [ROOT / "dev", *sorted(path for path in DEV.glob("*.sh") if path.name not in LINUX_ONLY)]

TOO_NEW = {
    "mapfile": r"\b(mapfile|readarray)\b",
    "case of a variable": r"\$\{\w+(\[[^]]*\])?(,|\^)",
    "transformation of a variable": r"\$\{\w+@",
    "associative arrays or references": r"\b(declare|local|typeset)\s+-\w*[An]",
    "wait -n": r"\bwait\s+-n\b",
    "coproc": r"\bcoproc\b",
    "&>>": r"&>>",
    "|&": r"\|&",
    "negative index": r"\$\{\w+\[-\d",
    "nproc": r"\bnproc\b",
    "timeout": r"(?<![-\w])timeout\s+[\"$\d]",
    "sed -i": r"\bsed\s+(-\w+\s+)*-i",
    "find -executable, -printf": r"\bfind\b.*-(executable|printf)\b",
    "stat -c": r"\bstat\s+-c\b",
    "date -d": r"\bdate\s+(-u\s+)?-d\b",
    "readlink -f": r"\breadlink\s+-f\b",
    "grep -P": r"\bgrep\s+-\w*P",
    "xargs -r, -d": r"\bxargs\s+(-\w+\s+)*-[rd]\b",
    "an array that may be empty": r"^\s*\w+\s+\"\$\{(missing|programs|targets)\[@\]\}\"$",
}


def faults_of(text):
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        found += [f"{number}: {name}: {line.strip()}" for name, pattern in TOO_NEW.items() if re.search(pattern, line)]
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_keep_to_bash_3_and_bsd(script):
    text = script.read_text()
    if script.name == "portable.sh":  # it is there to know both
        text = text.replace("nproc 2>/dev/null || sysctl -n hw.ncpu", "").replace('timeout "$secs" "$@"', "")
    assert faults_of(text) == []


@pytest.mark.parametrize(
    "line",
    [
        "mapfile -t x < <(ls)",
        'echo "${name,,}"',
        "declare -A table",
        "JOBS=$(nproc)",
        'timeout "$secs" x',
        "sed -i s/a/b/ f",
        "find . -type f -executable",
        "stat -c %s f",
        "x=$(date -d yesterday)",
        "readlink -f .",
        "ls | xargs -r rm",
    ],
)
def test_the_check_sees_what_it_forbids(line):
    assert faults_of(line)


def packages():
    names = set()
    for file in DEV.glob("packages*.txt"):
        names |= {
            line.split()[0] for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")
        }
    return names


def formulas():
    rows = [
        line.split(None, 1) for line in (DEV / "homebrew.txt").read_text().splitlines() if line[:1] not in ("#", "")
    ]
    assert all(len(row) == 2 for row in rows), "a package without a formula or a reason"
    return rows


def test_every_debian_package_has_a_formula_or_a_reason():
    rows = formulas()
    names = [name for name, _ in rows if name != "-"]
    assert sorted(names) == sorted(packages())
    for name, formula in rows:
        assert re.fullmatch(r"none: .{8,}|[a-z0-9@.+-]+", formula.strip()), (name, formula)


def run_as_on_a_mac(tmp_path, script, tools):
    """With Darwin's names, without GNU's timeout and nproc; `tools` stand in for what the system would have."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in {"uname": "echo Darwin", "sysctl": "echo 10"}.items() | tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    for name in ("bash", "sh", "awk", "cat", "perl", "sleep", "env"):
        (folder / name).symlink_to(shutil.which(name))
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; . tools/dev/portable.sh; {script}"],
        cwd=ROOT,
        env={"PATH": str(folder), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )


def test_cores_and_limits_without_gnu(tmp_path):
    done = run_as_on_a_mac(
        tmp_path, "cores; at_most 20 sh -c 'exit 3' || echo $?; at_most 1 sleep 20 || echo ended", {}
    )
    assert done.stdout.split() == ["10", "3", "ended"], done.stderr


@pytest.mark.parametrize(("tools", "chosen"), [({"python3.12": ":"}, "python3.12"), ({}, "python3")])
def test_python_of_a_mac_is_the_formulas_where_there_is_one(tmp_path, tools, chosen):
    done = run_as_on_a_mac(tmp_path, "any_python", tools)
    assert done.stdout.split() == [chosen], done.stderr


def test_setup_on_a_mac_asks_homebrew_for_what_is_missing(tmp_path):
    log = tmp_path / "brew.log"
    brew = f'if [ "$1" = list ]; then [ "$3" != fmt ] && [ "$3" != libomp ]; else echo "$@" >>{log}; fi'
    main = (DEV / "main.sh").read_text()
    functions = "".join(
        re.search(rf"^{name}\(\) {{.*?^}}\n", main, re.M | re.S).group(0)
        for name in ("install_packages", "install_formulas")
    )
    (tmp_path / "functions.sh").write_text("say() { :; }\n" + functions)
    done = run_as_on_a_mac(tmp_path, f". {tmp_path}/functions.sh; install_packages packages-test.txt", {"brew": brew})
    assert done.returncode == 0, done.stderr
    assert log.read_text() == "install libomp fmt\n"


def test_workflows_call_the_two_commands_and_nothing_else():
    for name in ("linux.yml", "macos.yml"):
        text = (ROOT / ".github" / "workflows" / name).read_text()
        assert re.findall(r"^\s*- run: (.*)$", text, re.M) == ["./dev demo", "./dev test"]
