"""What ports are recorded with besides torch and MLX modules: plain functions, weights, model files, Flax, tinygrad."""

import json

import numpy as np
import pytest
from recorded import record

GLUE = """
import numpy as np

def rotate(x, angle):
    return x * np.cos(angle)

class Sampler:
    def step(self, latents, noise, dt=0.5):
        return latents + dt * noise

    @staticmethod
    def pack(latents):
        return latents.reshape(2, -1)

def twice(values):
    for value in values:
        yield value
"""


def test_plain_functions_of_a_chosen_module_are_recorded(tmp_path):
    (tmp_path / "glue.py").write_text(GLUE)
    source = """
import numpy as np, glue
x = np.arange(4.0, dtype=np.float32)
y = glue.rotate(x, np.float32(0.5))
z = glue.Sampler().step(x, y)
glue.Sampler.pack(z)
list(glue.twice([x]))
"""
    run = record(tmp_path, source, "--inputs", "--functions", "glue")
    assert run.done.returncode == 0
    assert run.names("output") == ["rotate", "Sampler.step", "Sampler.pack"]
    assert {"rotate.x", "rotate.angle", "Sampler.step.latents", "Sampler.step.noise", "Sampler.pack.latents"} <= set(
        run.names("input")
    )
    np.testing.assert_allclose(run.values("rotate"), np.arange(4.0) * np.cos(0.5), rtol=1e-6)
    assert run.values("Sampler.pack").shape == (2, 2)


def test_functions_are_chosen_by_file_too_and_others_stay_as_they_are(tmp_path):
    (tmp_path / "glue.py").write_text(GLUE)
    (tmp_path / "other.py").write_text(GLUE)
    source = "import numpy as np, glue, other\nx = np.ones(3, np.float32)\nother.rotate(glue.rotate(x, x), x)\n"
    run = record(tmp_path, source, "--functions", str(tmp_path / "glue.py"))
    assert run.names() == ["rotate"]


def test_values_that_were_seen_before_are_stored_once(tmp_path):
    source = """
import numpy as np
from lockstep import checkpoint
x = np.arange(6.0, dtype=np.float32)
checkpoint("made", x); checkpoint("handed on", x); checkpoint("other", x + 1)
"""
    run = record(tmp_path, source)
    made, handed, other = run.records
    assert handed["same_as"] == made["seq"] and "same_as" not in other and "same_as" not in made
    files = [run.path / one["file"] for one in run.records]
    assert files[0].stat().st_ino == files[1].stat().st_ino != files[2].stat().st_ino
    np.testing.assert_array_equal(np.load(files[1]), np.arange(6.0))


def test_a_run_says_which_model_it_had_and_which_weights_its_modules_hold(tmp_path):
    pytest.importorskip("torch", reason="torch is absent: its modules are not recorded")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    source = f"""
import torch
from safetensors.torch import load_file, save_file
layer = torch.nn.Linear(3, 2)
save_file(layer.state_dict(), {str(model / "model.safetensors")!r})
other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
other[0].load_state_dict(load_file({str(model / "model.safetensors")!r}))
other(torch.ones(1, 3)); other(torch.ones(1, 3))
"""
    run = record(tmp_path, source)
    assert run.manifest["model"] == str(model)
    assert run.manifest["weight_files"] == [str(model / "model.safetensors")]
    weights = [json.loads(line) for line in (run.path / "weights.jsonl").read_text().splitlines()]
    assert [(one["name"], one["shape"], one["dtype"], one["file"]) for one in weights] == [
        ("Sequential.0.weight", [2, 3], "f32", "weights/0.npy"),
        ("Sequential.0.bias", [2], "f32", "weights/1.npy"),
    ]
    assert np.load(run.path / "weights/0.npy").shape == (2, 3)
    assert all(len(one["checksum"]) == 32 and one["stats"]["rms"] > 0 for one in weights)


FLAX = """
import jax, jax.numpy as jnp
from flax import linen as nn

class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4, name="down")(nn.gelu(nn.Dense(8, name="up")(x)))

model, x = Block(), jnp.ones((2, 4))
print(jax.jit(model.apply)(model.init(jax.random.PRNGKey(0), x), x).sum())
"""

TINYGRAD = """
from tinygrad import Tensor, nn

class Block:
    def __init__(self):
        self.up, self.rest = nn.Linear(4, 8), [nn.Linear(8, 4)]

    def __call__(self, x):
        return self.rest[0](self.up(x).relu())

print(Block()(Tensor.ones(2, 4)).sum().item())
"""


@pytest.mark.parametrize(
    "framework, source, outputs, weights",
    [
        (
            "flax",
            FLAX,
            ["Block.up", "Block.down", "Block"],
            ["Block.up.kernel", "Block.up.bias", "Block.down.kernel", "Block.down.bias"],
        ),
        (
            "tinygrad",
            TINYGRAD,
            ["Block.up", "Block.rest.0"],
            ["Block.up.weight", "Block.up.bias", "Block.rest.0.weight", "Block.rest.0.bias"],
        ),
    ],
)
def test_modules_of_other_frameworks_are_recorded(tmp_path, framework, source, outputs, weights):
    pytest.importorskip(framework, reason=f"{framework} is absent: its modules are not recorded")
    run = record(tmp_path, source, "--inputs", environment={"DEV": "PYTHON"})
    assert run.names("output") == outputs
    found = [json.loads(line)["name"] for line in (run.path / "weights.jsonl").read_text().splitlines()]
    assert sorted(found) == sorted(weights)
    assert run.values("Block.up").shape == (2, 8)
