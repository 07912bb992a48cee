"""Numbers and names at the edge of what a checkpoint can hold: kept right, or refused with a word."""

import json
import pathlib
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import lockstep  # noqa: E402


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))


def records_of(run):
    return [json.loads(line) for line in pathlib.Path(run.path, "records.jsonl").read_text("utf-8").splitlines()]


def test_numbers_that_do_not_fit_are_refused_not_cut(capfd):
    """2**70 was recorded as 0, and step 2**40 as step 0."""
    with lockstep.run("t") as run:
        lockstep.checkpoint("largest", 2**63 - 1)
        assert lockstep.checkpoint("integer", 2**70) == 2**70
        lockstep.checkpoint("step", torch.ones(1), step=2**40)
    (only,) = records_of(run)
    assert only["name"] == "largest" and int(np.load(pathlib.Path(run.path, only["file"]))) == 2**63 - 1
    warned = capfd.readouterr().err
    assert "integer is not recorded" in warned and "step is not recorded" in warned


def test_locals_are_recorded_whatever_they_are_called():
    def block(hidden):
        _normed, _ = hidden * 2, hidden * 3
        lockstep.checkpoint("block")

    with lockstep.run("t") as run:
        block(torch.ones(1))
    assert [one["name"] for one in records_of(run)] == ["block.hidden", "block._normed", "block._"]
