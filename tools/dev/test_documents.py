#!/usr/bin/env python3
"""Runs every command shown in Markdown files: lines that start with `$ ` in ```console and ```sh blocks.

Each file gets a scratch folder, in which its commands run in order, with build/bin and .venv/bin first in the PATH.
`./dev ...` and all of CONTRIBUTING.md run in the repository. A command must succeed; `# exit N` at its end names another
expected status, and `# not run` leaves one out. A trailing backslash continues a command on the next line. A ```sh block
whose lines lack the `$ ` is red, as nobody would run it; only in docs/cli.md, whose examples tests/python/test_cli_examples.py
and test_cli_doctor.py check, it is not. Ends with a line of totals.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(?:console|sh)\s*\n(.*?)^```", re.M | re.S)
EXIT = re.compile(r"\s+# exit (\d+)\s*$")
NOT_RUN = re.compile(r"\s+# not run\s*$")
MOST_SECS = 600


def commands(text):
    for block in FENCE.findall(text):
        lines = iter(block.splitlines())
        for line in lines:
            if not line.startswith("$ "):
                continue
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines, "").removeprefix("> ").strip()
            yield command


def forgotten(text):
    """Lines of ```sh blocks that look like commands and are none."""
    for block in re.findall(r"^```sh\s*\n(.*?)^```", text, re.M | re.S):
        if not block.startswith("$ "):
            yield block.splitlines()[0]


def left_out(command):
    # What fetches the repository, what is running right now, and the demo, whose parts other tests run.
    return (
        bool(NOT_RUN.search(command))
        or command.startswith("git clone")
        or re.match(r"(cd \S+ && )?\./dev (test|demo)\b", command)
    )


def run(command, scratch, in_repository):
    expected = EXIT.search(command)
    status = int(expected.group(1)) if expected else 0
    folder = ROOT if in_repository or command.startswith("./dev") else scratch
    environment = dict(
        os.environ,
        PATH=f"{ROOT}/build/bin:{ROOT}/.venv/bin:{os.environ['PATH']}",
        LOCKSTEP_HOME=str(scratch / ".lockstep"),
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOST_SECS,
    )
    return done.returncode == status, done


def main():
    passed = failed = skipped = 0
    for name in sys.argv[1:]:
        path = ROOT / name
        if not path.exists():
            continue
        with tempfile.TemporaryDirectory(prefix="lockstep-docs-") as scratch:
            for line in forgotten(path.read_text()) if name != "docs/cli.md" else ():
                failed += 1
                print(f"RED {name}: shown but not run: {line}")
            for command in commands(path.read_text()):
                if left_out(command):
                    skipped += 1
                    continue
                good, done = run(command, pathlib.Path(scratch), path.name == "CONTRIBUTING.md")
                passed += good
                failed += not good
                print(f"{'ok ' if good else 'RED'} {name}: {command}")
                if not good:
                    print(f"    exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
