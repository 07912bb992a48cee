"""Checkpoints inside what torch.compile makes of a program."""

import subprocess
import sys

import pytest
from program import ROOT
from recorded import ENVIRONMENT, record

pytest.importorskip("torch")

FORWARD = """
def forward(x):
    x = checkpoint("a", x + 1)
    y, z = checkpoint("pair", y=x * 2, z=x * 3, step=1)
    checkpoint("b", only=y, tags={"kind": "t"})
    checkpoint()
    debug_checkpoint("c", hidden=z)
    return checkpoint("sum", y + z)
"""
BEFORE, AFTER = "import torch\nimport torch._dynamo\n", "import torch\n"
LOCKSTEP = "from lockstep import checkpoint, debug_checkpoint\n"


@pytest.mark.parametrize("imports", [LOCKSTEP + AFTER, BEFORE + LOCKSTEP], ids=["before torch", "after torch"])
def test_off_is_no_obstacle_in_a_whole_graph(tmp_path, imports):
    """dynamo cannot trace functions of C: fullgraph=True raised although nothing was recorded."""
    source = (
        imports
        + FORWARD
        + """
compiled = torch.compile(forward, fullgraph=True, backend="eager")
x = torch.arange(3.0)
assert torch.equal(compiled(x), (x + 1) * 5), compiled(x)
print("same")
"""
    )
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", source], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "same\n", done.stderr


def test_what_was_compiled_off_is_recorded_once_that_is_on(tmp_path):
    source = (
        LOCKSTEP
        + AFTER
        + FORWARD
        + """
import lockstep
compiled = torch.compile(forward, backend="eager")
lockstep._set_off(True)
compiled(torch.arange(3.0))
lockstep._set_off(False)
assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 10.0))
"""
    )
    run = record(tmp_path, source, "--tap", "a,pair.*,sum")
    assert run.done.returncode == 0, run.done.stderr
    assert [(one["name"], one["hit"]) for one in run.records] == [("a", 0), ("pair.y", 0), ("pair.z", 0), ("sum", 0)]
    assert run.values("sum").tolist() == [10.0] * 3
    assert all(one["where"]["file"].endswith("their_script.py") for one in run.records)
