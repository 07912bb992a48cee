"""An installed program finds the model and the Python package that come with it, wherever it was put."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from debug_client import pythons

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    prefix = tmp_path_factory.mktemp("installed") / "usr"
    done = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return prefix


def built_for(python):
    suffix = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"], capture_output=True, text=True).stdout.strip()
    return (BUILD / "lib" / f"_lockstep_agent{suffix}").exists()


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_an_installation_debugs_with_its_own_agent(installed, tmp_path, version):
    python = pythons().get(tuple(int(part) for part in version.split(".")))
    if python is None:
        pytest.skip(f"no Python {version}")
    script = tmp_path / "steps.py"
    script.write_text("x = 1\ny = 2\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON", "VIRTUAL_ENV"))}
    environment["LOCKSTEP_HOME"] = str(tmp_path / "home")

    def lockstep(*words):
        done = subprocess.run([installed / "bin/lockstep", "--json", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else None

    try:
        began = lockstep("debug", "start", "--python", python, str(script))
        assert began["python"].startswith(version) and began["state"] == "stopped"
        assert began["native"] is built_for(python), began
        loaded = Path(f"/proc/{began['pid']}/maps").read_text()
        assert str(ROOT / "build") not in loaded
        if began["native"]:
            assert str(installed / "share/lockstep/python/lockstep/agent/_lockstep_agent") in loaded
        assert lockstep("debug", "next")["stop"]["location"]["line"] == 2
        lockstep("debug", "terminate", "--force")
    finally:
        subprocess.run([installed / "bin/lockstep", "serve", "--stop"], cwd=tmp_path, env=environment, capture_output=True)


def test_an_installation_records(installed, tmp_path):
    script = tmp_path / "saves.py"
    script.write_text("import array, lockstep\nlockstep.checkpoint('x', memoryview(array.array('f', [1, 2, 3])))\nprint(lockstep.__file__)\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))}
    environment["LOCKSTEP_HOME"] = str(tmp_path / "home")
    done = subprocess.run([installed / "bin/lockstep", "record", "--", sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(installed / "share/lockstep/python") in done.stdout
    assert list((tmp_path / "home" / "runs").glob("*/tensors/x.npy"))


def test_an_installation_draws_without_its_source_tree(tmp_path):
    if not (ROOT / "models/tiny/model_index.json").exists() or not shutil.which("cmake"):
        pytest.skip("no embedded model, or no cmake")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(tmp_path / "usr")], check=True, capture_output=True)
    program = tmp_path / "usr/bin/lockstep"
    done = subprocess.run([program, "generate", "--prompt", "a red circle", "--steps", "2", "--output", "x.png", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "usr/share/lockstep/models/tiny") in done.stdout
