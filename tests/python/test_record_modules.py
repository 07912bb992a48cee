"""Modules that are recorded although they are made or give their outputs in a way of their own."""

import pytest
from recorded import record


def test_mlx_activations_and_classes_whose_call_comes_later(tmp_path):
    """MLX gives nn.SiLU and its like their __call__ after the class was made: they were not recorded."""
    pytest.importorskip("mlx.core")
    source = """
import mlx.core as mx, mlx.nn as nn
class Late(nn.Module):
    pass
Late.__call__ = lambda self, x: x + 1
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()
        self.tanh = nn.Tanh()
        self.late = Late()
    def __call__(self, x):
        return self.late(self.tanh(self.act(x)))
print(Net()(mx.ones((1, 3))).shape)
"""
    run = record(tmp_path, source)
    assert run.done.returncode == 0, run.done.stderr
    assert run.names() == ["Net.act", "Net.tanh", "Net.late", "Net"]


def test_a_model_output_is_opened_but_for_what_its_layers_have_recorded(tmp_path):
    """The residuals of a ControlNet are a tuple in a BaseOutput: they were left out."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    source = """
import dataclasses, torch
from transformers.utils import ModelOutput
@dataclasses.dataclass
class Result(ModelOutput):
    sample: torch.Tensor = None
    residuals: tuple = None
    hidden_states: tuple = None
class Net(torch.nn.Module):
    def forward(self, x):
        return Result(sample=x, residuals=(x + 1, [x + 2]), hidden_states=(x, x))
Net()(torch.ones(2))
"""
    run = record(tmp_path, source)
    assert run.done.returncode == 0, run.done.stderr
    assert run.names() == ["Net.sample", "Net.residuals.0", "Net.residuals.1.0"]


REPLACED = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([nn.Linear(2, 2)])
    def forward(self, x):
        x = self.proj(x)
        for block in self.blocks:
            x = block(x)
        return x
class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.up = nn.Linear(2, 2)
    def forward(self, x):
        return self.base(x) + self.up(x)
net = Net()
net(torch.ones(1, 2))
"""


def test_modules_that_came_later_are_called_by_their_place(tmp_path):
    """A layer that is put into a model that runs already bore its class's name: Net.Linear instead of Net.proj."""
    pytest.importorskip("torch")
    source = (
        REPLACED
        + """
net.proj = nn.Sequential(nn.Linear(2, 2))
net.blocks.append(nn.ReLU())
net(torch.ones(1, 2))
"""
    )
    run = record(tmp_path, source)
    assert run.names()[3:] == ["Net.proj.0", "Net.proj", "Net.blocks.0", "Net.blocks.1", "Net"]


def test_a_layer_that_was_wrapped_is_a_part_of_what_took_its_place(tmp_path):
    pytest.importorskip("torch")
    run = record(tmp_path, REPLACED + "net.blocks[0] = Adapter(net.blocks[0])\nnet(torch.ones(1, 2))\n")
    assert run.names()[3:] == ["Net.proj", "Net.blocks.0.base", "Net.blocks.0.up", "Net.blocks.0", "Net"]


@pytest.mark.parametrize("compiled", ["net = torch.compile(net, backend='eager')", "net.compile(backend='eager')"])
def test_what_is_compiled_is_said_to_hide_its_modules(tmp_path, compiled):
    pytest.importorskip("torch")
    source = REPLACED + compiled + "\nnet(torch.ones(1, 2))\nnet(torch.ones(1, 2))\n"
    run = record(tmp_path, source)
    assert run.done.returncode == 0 and run.done.stderr.count("TORCH_COMPILE_DISABLE=1") == 1, run.done.stderr
    assert len(run.records) == 5  # three of the first call, and the whole of each that was compiled
    run = record(tmp_path, source, environment={"TORCH_COMPILE_DISABLE": "1"})
    assert run.names().count("Net.blocks.0") == 3, run.names()
