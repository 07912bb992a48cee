"""Mistakes that cost days in real torch and MLX programs: each must be one command."""

import pathlib

import pytest
from debug_service import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def test_editable_clone_against_site_packages(home):
    home.write("site-packages/diffuse/__init__.py", "")
    home.write("site-packages/diffuse/model.py", "def forward(x):\n    return x * 2\n")
    home.write("clone/diffuse/__init__.py", "")
    home.write("clone/diffuse/model.py", "def forward(x):\n    return x * 2\n")
    script = home.write("main.py", "from diffuse.model import forward\nforward(2)\n")
    home.start(script, options=["--env", f"PYTHONPATH={home.folder / 'site-packages'}"])
    id = home.debug("break", "clone/diffuse/model.py:2")["breakpoint"]["id"]
    assert home.debug("continue")["state"] == "ended"
    why = home.debug("why", id)
    cause = why["causes"][0]
    assert cause["cause"] == "other_copy", why
    assert cause["imported"].endswith("site-packages/diffuse/model.py") and "pip install -e" in cause["command"]
    text = home.run("debug", "why", id).stdout
    assert "pip install -e" in text


def test_the_wrong_implementation_file(home):
    home.write("models/qwen2_vl.py", "def encode():\n    return 'old'\n")
    home.write("models/qwen2_5_vl.py", "def encode():\n    return 'new'\n")
    script = home.write("main.py", "from models.qwen2_5_vl import encode\nencode()\nprint('stop here')\n")
    home.start(script)
    id = home.debug("break", "models/qwen2_vl.py:2")["breakpoint"]["id"]
    home.debug("break", "main.py:3")
    assert home.debug("continue")["stop"]["location"]["line"] == 3
    assert home.debug("why", id)["causes"][0]["cause"] == "never_executed"
    ran = [file["file"] for file in home.debug("files", "--filter", "models")["files"]]
    assert [pathlib.Path(file).name for file in ran] == ["qwen2_5_vl.py"]


def test_a_silent_crash_before_the_breakpoint(home):
    script = home.write("main.py", "import json\ndef load():\n    return json.loads('{')\nload()\nprint('never')\n")
    home.start(script, options=["--on-exception", "end"])
    id = home.debug("break", "main.py:5")["breakpoint"]["id"]
    ended = home.debug("continue")
    assert ended["end"]["how"] == "exception" and ended["end"]["exception"]["type"] == "JSONDecodeError"
    causes = home.debug("why", id)["causes"]
    first = next(cause for cause in causes if cause["cause"] == "ended_first")
    assert "JSONDecodeError" in str(first), first


def test_mlx_arrays_are_evaluated_before_they_are_shown(home):
    pytest.importorskip("mlx.core")
    script = home.write(
        "lazy.py",
        "import mlx.core as mx\nx = mx.arange(12).reshape(3, 4).astype(mx.float32)\ny = (x * 2).sum(axis=0)\nprint('lazy')\n",
    )
    home.start(script)
    home.debug("break", "lazy.py:4")
    assert home.debug("continue")["stop"]["location"]["line"] == 4
    tensor = home.debug("eval", "y")["value"]["tensor"]
    assert tensor["framework"] == "mlx" and tensor["shape"] == [4] and tensor["values"] == [24.0, 30.0, 36.0, 42.0]
    assert tensor["stats"]["max"] == 42.0
    assert "mlx [3,4] float32" in home.run("debug", "vars").stdout
    home.debug("eval", "y = y + 1")  # assignments stick
    assert home.debug("eval", "y[0].item()")["value"]["value"] == 25.0


def test_the_sigma_that_was_not_there(home):
    pytest.importorskip("mlx.core")
    script = home.write(
        "sigmas.py", "import mlx.core as mx\nsigmas = mx.ones((1000,))\nbad = sigmas[1000]\nprint('went on')\n"
    )
    home.start(script, options=["--run", "--check-bounds"])
    home.debug("wait")
    found = [
        line
        for line in home.debug("trace", "show", "--limit", "100")["lines"]
        if line["kind"] == "output" and line.get("category") == "bounds"
    ]
    assert found and "1000" in found[0]["text"] and found[0]["location"]["line"] == 3


TORCH = """\
import torch

class Block(torch.nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)
        self.bad = bad

    def forward(self, x):
        x = self.proj(x)
        if self.bad:
            x = x / 0.0
        return x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(i == 2) for i in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

torch.manual_seed(0)
out = Net()(torch.ones(2, 4))
print(out.shape)
"""


def test_the_first_module_whose_output_is_not_finite(home):
    pytest.importorskip("torch")
    home.start(home.write("net.py", TORCH))
    home.debug("break", "--nan")
    stopped = home.debug("continue", "--max-wait", "250", timeout=300)
    assert stopped["stop"]["reason"] == "data", stopped
    assert "blocks.2" in str(stopped["stop"]["data"])
    assert home.debug("clear")["removed"]
    assert home.debug("continue")["end"]["how"] == "finished"


def test_a_tensor_is_looked_at_and_changed_in_torch(home):
    pytest.importorskip("torch")
    home.start(home.write("net.py", TORCH), options=["--break", "x = x / 0.0"])
    stopped = home.debug("continue", "--max-wait", "250", timeout=300)
    assert stopped["stop"]["location"]["line"] == 12
    tensor = home.debug("eval", "x")["value"]["tensor"]
    assert tensor["framework"] == "torch" and tensor["shape"] == [2, 4] and tensor["stats"]["nan"] == 0
    home.debug("set", "self.bad", "False")
    assert home.debug("eval", "self.bad")["value"]["value"] is False
    frames = [frame["location"]["function"] for frame in home.debug("stack")["frames"]]
    assert frames[0] == "Block.forward" and frames[-1] == "<module>"
    outer = home.debug("vars", "--frame", frames.index("Net.forward"))["variables"]
    assert {"self", "x", "block"} <= {variable["name"] for variable in outer}
    home.debug("terminate")
