"""`lockstep health`: each kind of oddity is told where it begins, and nothing is said of a healthy run."""

import json
import pathlib
import subprocess
import sys

import pytest
from program import PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
torch = pytest.importorskip("torch")

MODEL = '''
import torch
from torch import nn
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 32)
    def forward(self, x):
        return self.second(torch.nn.functional.silu(self.first(x)))

model = Model()
x = torch.randn(1, 48, 32)
with torch.no_grad():
    PLANTED
    transformer = model
    transformer(x)
'''

PLANTED = {
    "not_finite": ("model.first.weight[3, 4] = float('nan')", "first"),
    "constant": ("model.first.weight.zero_(); model.first.bias.fill_(2.0)", "first"),
    "dead_channels": ("model.second.weight[:9].zero_(); model.second.bias[:9].zero_()", "second"),
    "equal_rows": ("model.first.register_forward_hook(lambda m, i, o: o[:, :1].expand_as(o).contiguous())", "first"),
    "near_overflow": ("model.half(); x = x.half(); model.first.weight.mul_(30000)", "first"),
    "denormal": ("model.second.weight.mul_(1e-39); model.second.bias.zero_()", "second"),
    "dtype": ("model.second.register_forward_hook(lambda m, i, o: o.to(torch.bfloat16)); model.more = nn.ModuleList([nn.Linear(32, 32) for _ in range(40)]); [m(x) for m in model.more]", "second"),
}


def examine(tmp_path, script, *options, status):
    (tmp_path / "model.py").write_text(script)
    recorded = subprocess.run([PROGRAM, "--home", tmp_path / "home", "record", "--inputs", *options, "--", sys.executable, "model.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert recorded.returncode == 0, recorded.stderr
    done = subprocess.run([PROGRAM, "--home", tmp_path / "home", "--json", "health", "latest"], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout), recorded


@pytest.mark.parametrize("check", PLANTED)
def test_each_oddity_is_told_where_it_begins(tmp_path, check):
    statement, module = PLANTED[check]
    answer, _ = examine(tmp_path, MODEL.replace("PLANTED", statement), status=1)
    found = {finding["check"]: finding for finding in answer["findings"]}
    assert check in found, answer
    assert found[check]["name"].endswith(module), answer
    assert found[check]["hint"] and found[check]["explanation"]


def test_nothing_is_said_of_a_healthy_model(tmp_path):
    answer, recorded = examine(tmp_path, MODEL.replace("PLANTED", "pass"), "--health", status=0)
    assert answer["healthy"] and answer["findings"] == [] and answer["looked_into"] >= 3
    assert "healthy: nothing odd" in recorded.stderr


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_nothing_is_said_of_the_engine(tmp_path, dtype):
    subprocess.run([PROGRAM, "--home", tmp_path, "--debug", "generate", "--model", ROOT / "models" / "tiny", "--dtype", dtype, "--prompt", "a red circle", "--steps", "2", "--width", "64", "--height", "64", "--output", tmp_path / "x.png"],
                   check=True, capture_output=True, timeout=120)
    done = subprocess.run([PROGRAM, "--home", tmp_path, "health", "latest"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "healthy" in done.stdout, done.stdout
