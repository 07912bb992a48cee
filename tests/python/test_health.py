"""`lockstep health`: each kind of oddity is told where it begins, and nothing is said of a healthy run."""

import json
import pathlib
import subprocess
import sys

import pytest
from program import PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
torch = pytest.importorskip("torch")

MODEL = """
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
"""

PLANTED = {
    "not_finite": ("model.first.weight[3, 4] = float('nan')", "first"),
    "constant": ("model.first.weight.zero_(); model.first.bias.fill_(2.0)", "first"),
    "dead_channels": ("model.second.weight[:9].zero_(); model.second.bias[:9].zero_()", "second"),
    "equal_rows": ("model.first.register_forward_hook(lambda m, i, o: o[:, :1].expand_as(o).contiguous())", "first"),
    "near_overflow": ("model.half(); x = x.half(); model.first.weight.mul_(30000)", "first"),
    "denormal": ("model.second.weight.mul_(1e-39); model.second.bias.zero_()", "second"),
    "dtype": (
        "model.second.register_forward_hook(lambda m, i, o: o.to(torch.bfloat16)); model.more = nn.ModuleList([nn.Linear(32, 32) for _ in range(40)]); [m(x) for m in model.more]",
        "second",
    ),
}


def examine(tmp_path, script, *options, status):
    (tmp_path / "model.py").write_text(script)
    recorded = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "record", "--inputs", *options, "--", sys.executable, "model.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert recorded.returncode == 0, recorded.stderr
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "--json", "health", "latest"], capture_output=True, text=True, timeout=60
    )
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
    assert found[check]["where"]["file"].endswith("model.py") and found[check]["where"]["line"] > 0


def test_nothing_is_said_of_a_healthy_model(tmp_path):
    answer, recorded = examine(tmp_path, MODEL.replace("PLANTED", "pass"), "--health", status=0)
    assert answer["healthy"] and answer["findings"] == [] and answer["looked_into"] >= 3
    assert "healthy: nothing odd" in recorded.stderr


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_nothing_is_said_of_the_engine(tmp_path, dtype):
    subprocess.run(
        [
            PROGRAM,
            "--home",
            tmp_path,
            "--debug",
            "generate",
            "--model",
            ROOT / "models" / "tiny",
            "--dtype",
            dtype,
            "--prompt",
            "a red circle",
            "--steps",
            "2",
            "--width",
            "64",
            "--height",
            "64",
            "--output",
            tmp_path / "x.png",
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    done = subprocess.run([PROGRAM, "--home", tmp_path, "health", "latest"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "healthy" in done.stdout, done.stdout


# What only the running program can tell.

ATTENTION = """
import torch
from torch import nn
torch.manual_seed(0)

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_q, self.to_k, self.to_v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
    def forward(self, x):
        q, k, v = (lin(x).view(1, 24, 4, 8).transpose(1, 2) for lin in (self.to_q, self.to_k, self.to_v))
        PLANTED
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 24, 32)

with torch.no_grad():
    Attention()(torch.randn(1, 24, 32))
"""


def watched(tmp_path, source):
    (tmp_path / "port.py").write_text(source)
    home = ["--home", tmp_path / "home"]
    done = subprocess.run(
        [PROGRAM, *home, "record", "--health", "--inputs", "--", sys.executable, "port.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    shown = subprocess.run([PROGRAM, *home, "--json", "health", "latest"], capture_output=True, text=True)
    answer = json.loads(shown.stdout)
    assert shown.returncode == (0 if answer["healthy"] else 1)
    assert "trouble" not in "".join(path.read_text() for path in (tmp_path / "home").glob("runs/*/health/*.jsonl"))
    return answer, done.stderr


def test_heads_by_entropy_and_sink(tmp_path):
    named = ATTENTION.replace(
        "scaled_dot_product_attention(q, k, v)", "scaled_dot_product_attention(key=k, value=v, query=q)"
    )
    answer, _ = watched(tmp_path, named.replace("PLANTED", "q[:, 2] *= 40"))
    (attention,) = answer["attention"]
    assert (
        answer["findings"] == []
        and attention["q"] == [1, 4, 24, 8]
        and attention["axes"] == ["batch", "heads", "tokens", "head size"]
    )
    entropy = [head["entropy"] for head in attention["heads"]]
    assert len(entropy) == 4 and entropy[2] < 0.6 < min(entropy[:2] + entropy[3:]) <= 1
    assert all(0 <= head["sink"] <= 1 for head in attention["heads"])
    shown = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "health", "--attention", "latest"], capture_output=True, text=True
    ).stdout
    assert "[batch, heads, tokens, head size]" in shown and "Attention" in shown


@pytest.mark.parametrize(
    "planted, check, words",
    [
        ("q = q * torch.tensor([1.0, 0.0, 1.0, 1.0]).view(1, 4, 1, 1)", "uniform_head", "head 1 of 4"),
        (
            "k[:, 3, 5] = q[:, 3].mean(-2) * 0; k[:, 3, 5] = 1e6; q[:, 3] = q[:, 3].abs() + 1",
            "collapsed_head",
            "head 3 of 4",
        ),
    ],
)
def test_odd_heads_are_named(tmp_path, planted, check, words):
    answer, told = watched(tmp_path, ATTENTION.replace("PLANTED", planted))
    (finding,) = [one for one in answer["findings"] if one["check"] == check]
    assert words in finding["explanation"] and "port.py" in finding["where"]["file"] and finding["where"]["line"] == 13
    assert check in told


def test_an_odd_head_of_mlx(tmp_path):
    pytest.importorskip("mlx.core")
    source = """
import mlx.core as mx, mlx.nn as nn
mx.random.seed(0)
class Attention(nn.Module):
    def __call__(self, q, k, v):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.35)
q, k, v = (mx.random.normal((1, 4, 24, 8)) for _ in range(3))
q = q * mx.array([1.0, 1.0, 0.0, 1.0]).reshape(1, 4, 1, 1)
mx.eval(Attention()(q, k, v))
"""
    answer, _ = watched(tmp_path, source)
    assert [one["check"] for one in answer["findings"]] == ["uniform_head"] and "head 2 of 4" in answer["findings"][0][
        "explanation"
    ]


PROGRAMS = {
    "raw_memory": """
import ctypes, torch
class Net(torch.nn.Linear):
    def forward(self, x):
        y = TENSOR
        ctypes.string_at(y.data_ptr(), 4)
        return super().forward(x)
Net(8, 8)(torch.randn(8, 8))
""",
    "growing_graph": """
import torch
net, x = torch.nn.Linear(8, 8), torch.randn(2, 8)
with CONTEXT:
    for _ in range(12):
        x = net(x)
""",
    "growing_graph mlx": """
import mlx.core as mx, mlx.nn as nn
net, x = nn.Linear(8, 8), mx.ones((2, 8))
for _ in range(12):
    x = net(x)
    EVALUATE
mx.eval(x)
""",
    "shared_memory": """
import numpy as np
from lockstep import checkpoint
buffer = np.zeros(64, np.float32)
first = buffer[:32]
first[:] = 1
checkpoint("first", first)
buffer[:] = 2
second = buffer[COPIED]
checkpoint("second", second)
""",
    "range": """
import numpy as np
from lockstep import checkpoint
values = np.random.default_rng(0).standard_normal((8, 32)).astype("f4")
checkpoint("transformer.transformer_blocks.0", values * 3e7)  # tens of millions are usual here
checkpoint("latents", values * SCALE)
""",
    "saturated": """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Hardtanh())
with torch.no_grad():
    net[0].bias[:4] += SHIFT
    net(torch.randn(48, 32))
""",
}
VARIANTS = {
    "raw_memory": ("TENSOR", "x.T", "x.T.contiguous()"),
    "growing_graph": ("CONTEXT", "torch.enable_grad()", "torch.no_grad()"),
    "growing_graph mlx": ("EVALUATE", "pass", "mx.eval(x)"),
    "shared_memory": ("COPIED", "16:48", "32:64"),
    "range": ("SCALE", "3e4", "3.0"),
    "saturated": ("SHIFT", "50.0", "0.0"),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_the_running_program_tells(tmp_path, kind):
    if kind.endswith("mlx"):
        pytest.importorskip("mlx.core")
    word, wrong, right = VARIANTS[kind]
    answer, _ = watched(tmp_path, PROGRAMS[kind].replace(word, wrong))
    assert [one["check"] for one in answer["findings"]] == [kind.split()[0]], answer["findings"]
    assert "port.py" in answer["findings"][0]["where"]["file"]
    answer, _ = watched(tmp_path, PROGRAMS[kind].replace(word, right))
    assert answer["findings"] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_nothing_is_said_of_the_official_pipeline(tmp_path, dtype):
    pytest.importorskip("diffusers")
    source = f"""
import torch
torch.set_num_threads(1)
from diffusers import QwenImagePipeline
pipeline = QwenImagePipeline.from_pretrained({str(ROOT / "models" / "tiny")!r}, dtype=torch.{dtype})
pipeline.set_progress_bar_config(disable=True)
pipeline("a red circle", num_inference_steps=2, width=64, height=64, true_cfg_scale=2.0, negative_prompt=" ", generator=torch.Generator().manual_seed(0))
"""
    answer, _ = watched(tmp_path, source)
    assert answer["findings"] == [], answer["findings"]
    assert any(attention["name"].startswith("transformer.") for attention in answer["attention"])
