"""Substitution for a port that has names of its own: `record --map` and `ledger --map`."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from debug_service import PROGRAM
from recorded import ENVIRONMENT

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

# Three stages; `second` is wrong in the port by `error`, and `first` lies transposed there.
SOURCE = """
import numpy as np
from lockstep import checkpoint
x = np.arange(12, dtype=np.float32).reshape(3, 4)
first = checkpoint({first!r}, {turn})
second = checkpoint({second!r}, {back} * 2 + {error})
third = checkpoint({third!r}, second - 5)
print(third.sum())
"""
REFERENCE = SOURCE.format(
    first="net.0.first", second="net.0.second", third="net.0.third", turn="np.sin(x)", back="first", error=0
)
PORT = SOURCE.format(
    first="my.0.a", second="my.0.b", third="my.0.c", turn="np.sin(x).T.copy()", back="first.T", error=0.5
)
MAP = {"rules": [{"candidate": "my.*.a", "reference": "net.*.first", "permute": [1, 0]}, {"candidate": "my.*.b", "reference": "net.*.second"},
                 {"candidate": "my.*.c", "reference": "net.*.third"}]}  # fmt: skip


@pytest.fixture
def port(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "port.py").write_text(PORT)
    (tmp_path / "map.json").write_text(json.dumps(MAP))
    assert lockstep(tmp_path, "record", "--name", "reference", "--", sys.executable, "reference.py").returncode == 0
    return tmp_path


def lockstep(folder, *words):
    command = [PROGRAM, "--home", str(folder / "home"), *words]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def test_record_substitutes_by_the_map(port):
    words = [
        "record",
        "--name",
        "port",
        "--reference",
        "latest:reference",
        "--substitute",
        "my.*.b",
        "--map",
        "map.json",
        "--",
        sys.executable,
        "port.py",
    ]
    done = lockstep(port, *words)
    assert done.returncode == 0, done.stderr
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert float(done.stdout) == pytest.approx(float((np.sin(x) * 2 - 5).sum()), rel=1e-6)  # the port's 0.5 is gone
    assert not list((port / "home").glob("substitutes-*"))
    words[6] = "my.*.a"  # transposed back and forth: its values are right, and stay so
    done = lockstep(port, *words)
    assert float(done.stdout) == pytest.approx(float((np.sin(x) * 2 + 0.5 - 5).sum()), rel=1e-6)
    assert done.stderr.count("not substituted") == 0, done.stderr


def test_a_map_without_anything_to_replace_is_refused(port):
    done = lockstep(port, "record", "--map", "map.json", "--", sys.executable, "port.py")
    assert done.returncode == 125 and "--substitute" in done.stderr  # record's own failures


def test_the_ledger_of_a_renamed_port_names_its_source(port):
    done = lockstep(port, "--json", "ledger", "latest:reference", "--map", "map.json", "--", sys.executable, "port.py")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert answer["sources"] == ["net.0.second"] and answer["missing"] == [], answer
    assert {entry["name"]: entry["word"] for entry in answer["entries"]} == {
        "net.0.first": "clean", "net.0.second": "source", "net.0.third": "healer"}  # fmt: skip
    assert not list((port / "home").glob("substitutes-*"))
    without = lockstep(port, "ledger", "latest:reference", "--", sys.executable, "port.py")
    assert without.returncode == 2 and "--map" in without.stderr
