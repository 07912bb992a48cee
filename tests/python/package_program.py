"""A program that uses the package `lockstep`, run in a Python of its own."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_python(source, home, **environment):
    script = home.parent / "script.py"
    script.write_text(source, "utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "LOCKSTEP_HOME": str(home), **environment},
        capture_output=True,
        text=True,
    )
