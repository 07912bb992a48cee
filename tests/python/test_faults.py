"""A few of the planted faults, one an area, through the recorder and `lockstep compare`; ./dev bench faults runs them all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("diffusers")

FAULTS = [
    "text.rope_sign",
    "dit.shift_scale",
    "vae.residual_missing",
    "scheduler.sign",
    "pipeline.cfg_exchanged",
    "weights.transposed",
    "capture.strided",
]


def test_planted_faults_are_named(tmp_path):
    out = tmp_path / "out.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "faults.py"),
        "--no-clean",
        "--json",
        str(out),
        "--ids",
        ",".join(FAULTS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["id"]: row for row in json.loads(out.read_text())["faults"]}
    assert set(rows) == set(FAULTS)
    for row in rows.values():
        assert row["stage"] and row["first"], row
