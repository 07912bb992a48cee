"""A language model with names, norms and rotation of its own, and mistakes in it: what is called what does not matter, and no checkpoint is given."""

import json
import pathlib
import subprocess
import sys

import pytest
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
torch = pytest.importorskip("torch")

MODEL = """
import math, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_num_threads(1)

class Norm(nn.Module):
    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(1 + 0.2 * torch.randn(n)), eps
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

def turned(x, base=10000.0):
    d = x.shape[-1]
    angles = torch.arange(x.shape[2]).float()[:, None] / base ** (torch.arange(0, d, 2).float() / d)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

class Mix(nn.Module):
    def __init__(self, n, heads, few):
        super().__init__()
        self.heads, self.few, self.d = heads, few, n // heads
        self.ALPHA, self.BETA, self.GAMMA, self.OMEGA = nn.Linear(n, n, bias=False), nn.Linear(n, few * self.d, bias=False), nn.Linear(n, few * self.d, bias=False), nn.Linear(n, n, bias=False)
        self.one, self.two = Norm(self.d), Norm(self.d)
    def forward(self, x):
        b, t, n = x.shape
        q = self.one(self.ALPHA(x).view(b, t, self.heads, self.d)).transpose(1, 2)
        k = self.two(self.BETA(x).view(b, t, self.few, self.d)).transpose(1, 2)
        v = self.GAMMA(x).view(b, t, self.few, self.d).transpose(1, 2)
        q, k = turned(q), turned(k)
        k, v = k.repeat_interleave(self.heads // self.few, 1), v.repeat_interleave(self.heads // self.few, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.d) + torch.triu(torch.full((t, t), float("-inf")), 1)
        return self.OMEGA((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, n))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(100, 96), Mix(96, 6, 2), Mix(96, 6, 2)
        # BEFORE
    def forward(self, ids):
        x = self.table(ids)
        x = x + self.first(x)
        return x + self.second(x)

with torch.no_grad():
    Model().eval()(torch.randint(0, 100, (1, 21)))
"""

NAMES = {"usual": ("wq", "wk", "wv", "wo"), "none": ("lin0", "lin1", "lin2", "lin3")}

MISTAKES = {
    "scale": ("/ math.sqrt(self.d)", "/ self.d", "OMEGA", "attention.scale"),
    "theta": ("base=10000.0", "base=500000.0", "OMEGA", "rotary.theta"),
    "style": (
        "a, b = x[..., : d // 2], x[..., d // 2 :]\n    return torch.cat([",
        "a, b = x[..., ::2], x[..., 1::2]\n    return torch.stack([",
        "OMEGA",
        "rotary.style",
    ),
    "one side": ("turned(q), turned(k)", "turned(q), k", "OMEGA", "rotary.one_side"),
    "groups": (
        "k, v = k.repeat_interleave(self.heads // self.few, 1), v.repeat_interleave(self.heads // self.few, 1)",
        "k, v = k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1)",
        "OMEGA",
        "attention.key_groups",
    ),
    "no mask": ('+ torch.triu(torch.full((t, t), float("-inf")), 1)', "", "OMEGA", "attention.mask_missing"),
    "no norm": (
        "self.one(self.ALPHA(x).view(b, t, self.heads, self.d))",
        "self.ALPHA(x).view(b, t, self.heads, self.d)",
        "OMEGA",
        "attention.norm_missing",
    ),
    "transposed": (
        "# BEFORE",
        "self.first.ALPHA.weight.data = self.first.ALPHA.weight.data.T.contiguous()",
        "ALPHA",
        "linear.transposed_weight",
    ),
    "scaled": ("# BEFORE", "self.first.GAMMA.weight.data *= 1.37", "GAMMA", "weights.scaled"),
    "zeros": ("# BEFORE", "self.first.BETA.weight.data.zero_()", "BETA", "weights.zeros"),
}


def source(names, mistake=None):
    text = MODEL
    if mistake:
        old, new = MISTAKES[mistake][:2]
        assert old in text
        text = text.replace(old, new)
        if mistake == "style":
            text = text.replace("a * angles.sin()], -1)", "a * angles.sin()], -1).flatten(-2)")
    for greek, name in zip(("ALPHA", "BETA", "GAMMA", "OMEGA"), NAMES[names]):
        text = text.replace(greek, name)
    return text


def record(folder, name, text):
    (folder / f"{name}.py").write_text(text)
    subprocess.run(
        [
            PROGRAM,
            "--home",
            folder / "home",
            "--quiet",
            "record",
            "--inputs",
            "--name",
            name,
            "--",
            sys.executable,
            f"{name}.py",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture(scope="module", params=NAMES)
def named(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    record(folder, "reference", source(request.param))
    return request.param, folder


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_cause_is_named(named, mistake):
    names, folder = named
    record(folder, "port", source(names, mistake))
    done = subprocess.run(
        [PROGRAM, "--home", folder / "home", "--json", "compare", "latest:reference", "latest:port"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    answer = json.loads(done.stdout)
    stage, cause = MISTAKES[mistake][2:]
    assert answer["first_divergence"]["name"].endswith(
        "first." + dict(zip(("ALPHA", "BETA", "GAMMA", "OMEGA"), NAMES[names]))[stage]
    )
    assert [found["cause"] for found in answer["causes"]][:1] == [cause], answer["causes"]
