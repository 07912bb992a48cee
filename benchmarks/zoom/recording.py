"""Records one call of a module with its operations, by `lockstep record`'s own recorder in this process: hundreds of calls need no hundreds of
program starts."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]
os.environ["LOCKSTEP_OPERATIONS"] = "*"

import lockstep  # noqa: E402  found by the path above
from lockstep.operations import Operations  # noqa: E402
from lockstep.recorder import install  # noqa: E402

RECORDER = install()  # before a framework is imported


def record(call, folder):
    """Runs call() and keeps the operations of the first module that it calls. Returns the run and that module's name."""
    folder = Path(folder)
    home = folder.with_name(folder.name + ".home")
    RECORDER.operations = Operations()
    try:
        with lockstep.run("run", home=str(home), budget_bytes=1 << 30) as session:
            call()
            path = session.path
        if folder.exists():
            shutil.rmtree(folder)
        Path(path).rename(folder)
    finally:
        RECORDER.operations = None
        shutil.rmtree(home, ignore_errors=True)
    return folder, name_of(folder)


def name_of(run):
    """The module that was traced there."""
    with open(Path(run) / "operations.jsonl") as lines:
        return json.loads(next(lines))["call"]
