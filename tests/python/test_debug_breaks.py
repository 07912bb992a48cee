"""Breakpoints on data and checkpoints, log and capture, as they are said on a terminal."""

import pathlib

import pytest
from debug_service import PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
STEPS = """\
import numpy
from lockstep import checkpoint, debug_checkpoint
def block(i, x):
    y = x * (i + 1)
    debug_checkpoint(f"block_{i % 2}", context={"block": i}, hidden=y)
    return checkpoint("out", y, tags={"pass": "cond" if i % 2 else "uncond"})
x = numpy.ones((2, 3), numpy.float32)
for i in range(6):
    x = block(i, x)
print(x.sum())
"""


def start(home):
    home.start(home.write("steps.py", STEPS), options=["--env", f"PYTHONPATH={ROOT / 'python'}"])


def test_checkpoints_by_name_glob_hit_and_context(home):
    start(home)
    home.debug("break", "--checkpoint", "block_*", "--hits", "3")
    stop = home.debug("continue")["stop"]
    assert stop["reason"] == "checkpoint" and stop["checkpoint"]["name"] == "block_0" and stop["checkpoint"]["hit"] == 2
    assert home.debug("eval", "i")["value"]["value"] == 2
    home.debug("clear")
    home.debug("break", "--checkpoint", "block_*", "--context", "block=4")
    home.debug("break", "--checkpoint", "out", "--when", "max > 700")
    assert home.debug("continue")["stop"]["checkpoint"]["context"] == {"block": "4"}
    stop = home.debug("continue")["stop"]
    assert stop["checkpoint"]["name"] == "out" and home.debug("eval", "i")["value"]["value"] == 5
    assert home.debug("continue")["end"]["how"] == "finished"


def test_a_condition_on_tensors_at_a_line_is_refused(home):
    """It was taken for a glob of modules, and the breakpoint waited for torch for ever."""
    start(home)
    for words in (["steps.py:5", "--when", "i == 2"], ["steps.py", "--nan"]):
        assert "--if" in home.error("break", *words)["message"]


def test_log_prints_and_goes_on(home):
    start(home)
    home.debug("break", "steps.py:5", "--log", "f'at {i}: {y.max()}'", "--if", "i > 3")
    assert home.debug("continue")["end"]["how"] == "finished"
    lines = home.debug("trace", "show", "--kind", "output", "--limit", "100")["lines"]
    assert [line["text"] for line in lines if line.get("category") == "log"] == ["at 4: 120.0", "at 5: 720.0"]
    printed = ["lockstep: breakpoint 1: at 4: 120.0", "lockstep: breakpoint 1: at 5: 720.0", "4320.0"]
    assert home.debug("log")["lines"] == printed and home.debug("status")["output_lines"] == 3
    assert [line["text"] for line in lines if line.get("category") != "log"] == printed[2:]  # told once


def test_capture_records_and_goes_on(home):
    start(home)
    home.debug("break", "steps.py:5", "--capture", "scaled=y * 2", "--if", "i == 5")
    assert home.debug("continue")["end"]["how"] == "finished"
    lines = home.debug("trace", "show", "--kind", "output", "--limit", "100")["lines"]
    (captured,) = [line for line in lines if line.get("category") == "capture"]
    assert captured["value"]["tensor"]["stats"]["max"] == 1440.0
    shown = home.run("tensors", "list", captured["run"]).stdout
    assert "scaled" in shown, shown
