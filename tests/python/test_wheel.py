"""The package as a user gets it: built offline, unpacked elsewhere, recording there."""

import array
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

pytest.importorskip("setuptools")
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (ROOT / "build" / "build.ninja").exists(), reason="no build folder")
def test_a_wheel_records_on_its_own(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = "import lockstep, array; lockstep.checkpoint('x', memoryview(array.array('f', [1, 2, 3]))); print(lockstep.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "LOCKSTEP_HOME": str(tmp_path / "home"), "LOCKSTEP_RECORD": "1"}
    environment.pop("LOCKSTEP_LIBRARY", None)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0 and str(tmp_path / "site") in done.stdout, done.stderr
    (values,) = (tmp_path / "home" / "runs").glob("*/tensors/x.npy")
    names = zipfile.ZipFile(wheel).namelist()
    assert "lockstep/agent/bootstrap.py" in names and "lockstep/agent/_lockstep_agent" + sysconfig.get_config_var("EXT_SUFFIX") in names
    assert values.read_bytes().endswith(array.array("f", [1, 2, 3]).tobytes())
    # The debugger takes this package's agent when it is told to.
    (tmp_path / "steps.py").write_text("x = 1\n")
    environment = {**environment, "LOCKSTEP_PYTHON_PACKAGE": str(tmp_path / "site")}
    environment.pop("LOCKSTEP_RECORD")
    command = [str(ROOT / "build/bin/lockstep"), "--json", "debug"]
    if not pathlib.Path(command[0]).exists():
        return
    done = subprocess.run([*command, "start", "--python", sys.executable, "steps.py"], capture_output=True, text=True, env=environment, cwd=tmp_path)
    try:
        began = json.loads(done.stdout)
        assert began["native"] is True and str(tmp_path / "site/lockstep/agent/_lockstep_agent") in pathlib.Path(f"/proc/{began['pid']}/maps").read_text()
    finally:
        subprocess.run([*command, "terminate", "--force"], capture_output=True, env=environment, cwd=tmp_path)
        subprocess.run([command[0], "serve", "--stop"], capture_output=True, env=environment, cwd=tmp_path)
