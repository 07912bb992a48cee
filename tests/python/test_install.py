"""An installed program finds the model that comes with it."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parents[1]


def test_an_installation_draws_without_its_source_tree(tmp_path):
    if not (ROOT / "models/tiny/model_index.json").exists() or not shutil.which("cmake"):
        pytest.skip("no embedded model, or no cmake")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(tmp_path / "usr")], check=True, capture_output=True)
    program = tmp_path / "usr/bin/lockstep"
    done = subprocess.run([program, "generate", "--prompt", "a red circle", "--steps", "2", "--output", "x.png", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "usr/share/lockstep/models/tiny") in done.stdout
