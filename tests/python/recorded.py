"""How tests record a program whose source they write: one call, and what came of it."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
from program import PROGRAM

# Tensors this small cost more to share out than to compute.
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")},
    "OMP_NUM_THREADS": "1",
}


class Recorded:
    def __init__(self, done, path):
        self.done = done
        self.path = pathlib.Path(path)
        self.manifest = json.loads((self.path / "run.json").read_text("utf-8"))
        log = self.path / "records.jsonl"
        self.records = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []

    def names(self, role=None):
        return [record["name"] for record in self.records if role in (None, record["role"])]

    def values(self, name, hit=0):
        record = next(record for record in self.records if record["name"] == name and record["hit"] == hit)
        return np.load(self.path / record["file"])


def record(folder, source, *options, arguments=(), environment=None, program=None):
    """Runs the source, or another program, under `lockstep record` with its home in folder/home."""
    script = folder / "their_script.py"
    script.write_text(source, "utf-8")
    command = [PROGRAM, "--json", "--home", str(folder / "home"), "record", *options, "--"]
    command += program or [sys.executable, str(script), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**ENVIRONMENT, **(environment or {})}, cwd=folder
    )
    assert done.stdout, done.stderr
    return Recorded(done, json.loads(done.stdout)["path"])
