"""What a session costs in machine instructions, counted by valgrind: the same on a busy machine as on a silent one.

    python benchmarks/debugger/instructions.py [--python PATH] [--part loops|import|all] [--json FILE]

Of the main thread alone: our own wakes once a second, and under valgrind a second is short. A loop is run at two lengths, and an import
beside a program that imports nothing but the breakpoint's file, so that starting does not count.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("LOCKSTEP_TEST_PATIENCE", "3600")
os.environ["PYTHONHASHSEED"] = "0"  # the layout of dicts would differ from run to run
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "python")]
from dap import line_of  # noqa: E402
from debug_client import Session  # noqa: E402

LOOPS = """\
import sys

def add(a, b):
    return a + b

def calls(turns):
    total = 0
    if total < 0:
        total = 0  # COLD in the caller
    for i in range(turns):
        total = add(total, i)

def lines(turns):
    total = 0
    for i in range(turns):
        total += i
        if total < 0:
            total = 0  # COLD in the loop

globals()[sys.argv[1]](int(sys.argv[2]))
"""
NOTHING = "import os, textwrap\nos._exit(0)  # its end does not count either\n"
IMPORT = "import diffusers, torch, transformers\nfrom diffusers import QwenImageTransformer2DModel\n" + NOTHING
SHORT, LONG = 50_000, 150_000


class Counter:
    """Runs programs in one Python under valgrind."""

    def __init__(self, python, folder):
        self.folder = pathlib.Path(folder)
        self.python = self.folder / "python"
        self.python.write_text(f"#!/bin/sh\nexec {shutil.which('valgrind')} --tool=callgrind --separate-threads=yes "
                               f"--callgrind-out-file={self.folder}/counted --log-file=/dev/null {python} \"$@\"\n")  # fmt: skip
        self.python.chmod(0o755)

    def count(self, form, script, words, line):
        """form: bare, attached, or cold: with a breakpoint at the line, which is never reached."""
        if form == "bare":
            subprocess.run([self.python, script, *words], check=True)
        else:
            points = [{"file": str(file), "line": number} for file, number in [line]] if form == "cold" else []
            with Session(
                script, *words, python=str(self.python), options={"run": True, "breakpoints": points}
            ) as session:
                session.process.wait()
        return int(
            re.search(r"^totals: (\d+)", (self.folder / "counted-01").read_text(errors="replace"), re.M).group(1)
        )


def show(title, counted):
    row = {
        "item": title,
        **counted,
        **{f"{form}_ratio": counted[form] / counted["bare"] for form in ("attached", "cold")},
    }
    print(
        f"{title:<44} bare {row['bare']:>16,.1f}   attached x{row['attached_ratio']:.4f}   cold breakpoint x{row['cold_ratio']:.4f}",
        flush=True,
    )
    return row


def loops(counter):
    script = counter.folder / "loops.py"
    script.write_text(LOOPS)
    for name, mark in (("calls", "# COLD in the caller"), ("lines", "# COLD in the loop")):
        place = (script, line_of(script, mark))
        slope = {form: (counter.count(form, script, [name, str(LONG)], place) - counter.count(form, script, [name, str(SHORT)], place)) / (LONG - SHORT)
                 for form in ("bare", "attached", "cold")}  # fmt: skip
        yield show(f"instructions of a turn: {name}", slope)


def imports(counter):
    import textwrap

    nothing, everything = counter.folder / "nothing.py", counter.folder / "everything.py"
    nothing.write_text(NOTHING)
    everything.write_text(IMPORT)
    place = (textwrap.__file__, line_of(textwrap.__file__, "w = TextWrapper(width=width, max_lines=1"))
    yield show("import of torch, diffusers, transformers",
               {form: counter.count(form, everything, [], place) - counter.count(form, nothing, [], place) for form in ("bare", "attached", "cold")})  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--part", choices=["loops", "import", "all"], default="loops")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("[instructions] valgrind counts them, and it is not on the PATH; try apt install valgrind")
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        counter = Counter(chosen.python, folder)
        rows = [
            row
            for part in (loops, imports)
            if chosen.part in (part.__name__.replace("imports", "import"), "all")
            for row in part(counter)
        ]
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
