"""What went into a call and what came out of it bear the same hit, whatever happens to other calls of the module."""

import pytest
from recorded import record

torch = pytest.importorskip("torch")

NET = """
import threading, torch
class Scale(torch.nn.Module):
    def forward(self, x):
        if x[0] < 0:
            raise ValueError("negative")
        return x * 10
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()
    def forward(self, x):
        return self.scale(x)
net = Net()
"""


def pairs(run, name):
    """(hit, first value) of inputs and outputs."""
    found = {"input": {}, "output": {}}
    for one in run.records:
        if one["name"] == name:
            assert one["hit"] not in found[one["role"]]
            found[one["role"]][one["hit"]] = one["stats"]["max"]
    return found["input"], found["output"]


def test_a_call_that_raised_has_a_hit_of_its_own(tmp_path):
    source = (
        NET
        + """
for value in (1.0, -1.0, 2.0):
    try:
        net(torch.full((2,), value))
    except ValueError:
        pass
"""
    )
    run = record(tmp_path, source, "--inputs")
    for name in ("Net", "Net.scale"):
        assert pairs(run, name) == ({0: 1.0, 1: -1.0, 2: 2.0}, {0: 10.0, 2: 20.0})


def test_calls_in_threads_and_inside_each_other(tmp_path):
    """The call that began first ends last."""
    source = (
        NET
        + """
class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.began, self.may_end = threading.Event(), threading.Event()
    def forward(self, x):
        if x[0] == 1:
            self.began.set()
            self.may_end.wait()
        elif x[0] == 3:
            self(x + 1)
        return x * 10
nested = Nested()
slow = threading.Thread(target=lambda: nested(torch.full((2,), 1.0)))
slow.start()
nested.began.wait()
nested(torch.full((2,), 2.0))
nested.may_end.set()
slow.join()
nested(torch.full((2,), 3.0))
"""
    )
    run = record(tmp_path, source, "--inputs")
    assert pairs(run, "Nested") == ({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0})


def test_runs_of_one_program_count_from_zero_and_names_that_meet_stay_apart(tmp_path):
    """An element of what a Sequential returns is called as its first child is: neither may take the other's place."""
    source = (
        NET
        + """
import lockstep
class Two(torch.nn.Module):
    def forward(self, x):
        return x + 1, x + 2
model = torch.nn.Sequential(torch.nn.Identity(), Two())
for name in ("first", "second"):
    with lockstep.run(name):
        net(torch.ones(2))
model(torch.ones(2))
"""
    )
    run = record(tmp_path, source)
    for name in ("first", "second"):
        lines = (tmp_path / "home" / "latest" / name / "records.jsonl").read_text().splitlines()
        assert len(lines) == 2 and all('"hit": 0' in line for line in lines), lines
    assert [(one["name"], one["hit"]) for one in run.records] == [
        ("Sequential.0", 0),
        ("Sequential.1.0", 0),
        ("Sequential.1.1", 0),
        ("Sequential.0", 1),
        ("Sequential.1", 0),
    ]
