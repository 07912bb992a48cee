"""The package `lockstep` in a program of its own: what it imports, what failing costs, and how an end is recorded."""

import json
import os
import pathlib
import subprocess

import pytest
from package_program import ROOT, run_python

LIBRARY = pathlib.Path(os.environ.get("LOCKSTEP_LIBRARY", ROOT / "build" / "lib" / "liblockstep_capture.so"))
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def test_nothing_is_imported(home):
    done = run_python(
        "import sys\nfrom lockstep import checkpoint\ncheckpoint('x', [1])\n"
        "print([m for m in ('torch', 'numpy', 'mlx', 'jax') if m in sys.modules])",
        home,
        LOCKSTEP_RECORD="1",
    )
    assert done.stdout.strip() == "[]", done.stderr
    assert "not recorded" in done.stderr


@pytest.mark.parametrize("target", ["a file", "a missing library"])
def test_what_fails_costs_one_warning(home, target):
    home.parent.mkdir(exist_ok=True)
    environment = {"LOCKSTEP_RECORD": "1"}
    if target == "a file":
        (home.parent / "file").write_text("x")
        environment["LOCKSTEP_HOME"] = str(home.parent / "file" / "inside")
    else:
        environment["LOCKSTEP_LIBRARY"] = "/nowhere/lib.so"
    done = run_python(
        "import array\nfrom lockstep import checkpoint\nx = array.array('d', [1])\n"
        "for i in range(50): assert checkpoint('x', x) is x\nprint('same')",
        home,
        **environment,
    )
    assert done.stdout == "same\n" and done.returncode == 0
    assert done.stderr.count("lockstep:") == 1


def test_status_of_a_program(home):
    source = "import array\nfrom lockstep import checkpoint\ncheckpoint('x', array.array('d', [1]))\n"
    for tail, status in (("", "finished"), ("raise ValueError", "failed"), ("import os; os._exit(0)", "killed")):
        run_python(source + tail, home, LOCKSTEP_RECORD="state")
        binary = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
        shown = subprocess.run(
            [binary, "--json", "--home", str(home), "runs", "show", "latest:state"],
            capture_output=True,
            text=True,
            check=True,
        )
        document = json.loads(shown.stdout)
        assert (document["run"]["status"], document["summary"]["records"]) == (status, 1), tail
