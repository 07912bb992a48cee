"""lockstep zoom: from the stage to the line, through the program, on torch and MLX."""

import json
import subprocess
import sys

import pytest
from zoom_place import REFERENCE, Place, line_of, lines, place  # noqa: F401  place is a fixture

torch = pytest.importorskip("torch")

PORT = """
import numpy as np, mlx.core as mx, mlx.nn as nn

class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def __call__(self, x):
        b, n, width = x.shape
        q = self.q(x).reshape(b, n, self.heads, -1).transpose(0, 2, 1, 3)
        k = self.k(x).reshape(b, n, self.heads, -1).transpose(0, 2, 3, 1)
        v = self.v(x).reshape(b, n, self.heads, -1).transpose(0, 2, 1, 3)
        scores = (q @ k) * (width // self.heads) ** -0.5
        weights = mx.softmax(scores, axis=-1)
        return self.out((weights @ v).transpose(0, 2, 1, 3).reshape(b, n, width))

class Layer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.attention = SelfAttention(width, 4)
        self.modulation = nn.Linear(width, 3 * width)

    def __call__(self, x, condition):
        shift, scale, gate = mx.split(self.modulation(nn.silu(condition))[:, None], 3, axis=-1)
        centred = x - mx.mean(x, axis=-1, keepdims=True)
        normed = centred * mx.rsqrt(mx.mean(mx.square(centred), axis=-1, keepdims=True) + 1e-6)
        return x + gate * self.attention(normed * (1 + scale) + shift)

if __name__ == "__main__":
    given = np.load("weights.npz")
    model = Layer()
    model.load_weights([(name, mx.array(given[name])) for name in given.files if name[0] != "_"])
    before = {name: vars(mx)[name] for name in ("matmul", "softmax", "mean")}, mx.array.__matmul__
    result = model(mx.array(given["_x"]), mx.array(given["_condition"]))
    assert before == ({name: vars(mx)[name] for name in ("matmul", "softmax", "mean")}, mx.array.__matmul__)
    print(float(result.astype(mx.float32).sum()))
"""


def test_a_traced_program_gives_the_same_bits(place):
    plain = subprocess.run(
        [sys.executable, "reference.py"], cwd=place.folder, capture_output=True, text=True, check=True
    )
    run = place.folder / "home" / "latest" / "reference"
    assert (run / "output.log").read_text() == plain.stdout
    kinds = [json.loads(line).get("op") for line in (run / "operations.jsonl").read_text().splitlines()]
    assert {"layer_norm", "linear", "attention", "split", "add", "copy"} <= set(kinds)


@pytest.mark.parametrize("change, kind, part", [
    (("(1 + scale) + shift", "(1 + shift) + scale"), "wiring", "hidden = "),
    (("(q, k, v)\n", "(q, k, v, scale=0.7)\n"), "argument", "mixed = "),
    (("gate * self.attention", "self.attention"), "missing step", "x += "),
    (("mixed.transpose(1, 2).reshape", "mixed.reshape"), "layout", "return self.out"),
])  # fmt: skip
def test_a_mistake_in_torch_is_named_by_its_line(place, change, kind, part):
    text = place.write("mistake", REFERENCE, change)
    place.record("mistake", "--operations", "Block")
    answer = place.zoom("mistake", "--stage", "Block")
    (region,) = answer["regions"]
    assert region["kind"] == kind and line_of(text, part) in lines(region) and len(lines(region)) <= 2
    assert region["yours"][-1]["code"].startswith(part.strip())


def test_the_program_is_run_again_where_nothing_was_traced(place):
    text = place.write("untraced", REFERENCE, ("(q, k, v)\n", "(q, k, v, scale=0.7)\n"))
    place.record("untraced")
    answer = place.zoom("untraced")
    assert answer["call"]["yours"].endswith("attention")
    assert any(line_of(text, "mixed = ") in lines(region) for region in answer["regions"])


@pytest.fixture(scope="module")
def port(place):
    pytest.importorskip("mlx.core")
    (place.folder / "save.py").write_text(
        "import numpy as np, torch\nfrom reference import Block\ntorch.manual_seed(0)\nmodel = Block()\n"
        "x, condition = torch.randn(2, 6, 16), torch.randn(2, 16)\n"
        "np.savez('weights.npz', _x=x, _condition=condition, **{k: v.numpy() for k, v in model.state_dict().items()})\n"
    )
    subprocess.run([sys.executable, "save.py"], cwd=place.folder, check=True)
    return place


def test_a_correct_port_to_mlx_has_no_divergence(port):
    port.write("port", PORT)
    port.record("port", "--operations", "Layer")
    answer = port.zoom("port", "--stage", "Block", "--candidate-stage", "Layer", status=0)
    assert answer["agrees"] and answer["regions"] == [] and "jump" not in answer


@pytest.mark.parametrize("change, part", [
    (("axis=-1)\n        return self.out", "axis=-2)\n        return self.out"), "weights = "),
    (("centred * mx.rsqrt", "x * mx.rsqrt"), "normed = "),
    (("(1 + scale) + shift)", "scale + shift)"), "return x + gate"),
])  # fmt: skip
def test_a_mistake_in_mlx_is_named_by_its_line(port, change, part):
    text = port.write("mlx_mistake", PORT, change)
    port.record("mlx_mistake", "--operations", "Layer")
    answer = port.zoom("mlx_mistake", "--stage", "Block", "--candidate-stage", "Layer")
    assert any(line_of(text, part) in lines(region) for region in answer["regions"]), answer


VIEWS = """
import torch, torch.nn as nn

class Writer(nn.Module):
    def forward(self, x):
        whole = x.clone()
        first = whole[0]
        whole += 1
        return first * 2

if __name__ == "__main__":
    print(Writer()(torch.arange(6.0).reshape(2, 3)).tolist())
"""


def test_a_view_of_memory_that_was_written_is_a_value_of_its_own(place):
    place.write("views", VIEWS)
    place.record("views", "--operations", "Writer")
    run = place.folder / "home" / "latest" / "views"
    assert (run / "output.log").read_text() == "[2.0, 4.0, 6.0]\n"
    operations = [one for one in map(json.loads, (run / "operations.jsonl").read_text().splitlines()) if "op" in one]
    (read,) = [one for one in operations if one["op"] == "read"]
    written = next(one for one in operations if one.get("in_place"))
    assert ["written", written["outputs"][0]] in read["inputs"]
    assert operations[-1]["op"] == "mul" and operations[-1]["inputs"] == [["input", read["outputs"][0]]]


FED = """
import torch, torch.nn as nn

class Before(nn.Module):
    def forward(self, x):
        return x * 2

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        hidden = self.first(x)
        hidden = torch.tanh(hidden)
        return self.second(hidden)

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.inner = Before(), Inner()

    def forward(self, x):
        return self.inner(self.before(x))

if __name__ == "__main__":
    torch.manual_seed(0)
    model, x = Whole(), torch.randn(6, 16)
    with torch.no_grad():
        print(model(x).double().sum().item())
"""


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("fed"))
    made.write("reference", FED)
    made.record("reference", "--operations", "Whole.inner")
    return made


def test_errors_from_before_the_call_do_not_count(fed):
    fed.write("noisy", FED, ("x * 2", "x * 2 + 0.3 * torch.sin(17 * x)"))
    fed.record("noisy")
    answer = fed.zoom("noisy", "--stage", "Whole.inner", status=0)
    (given,) = answer["inputs"]
    assert given["yours"] == "x" and given["given"] and given["distance"] > 0.05
    assert answer["agrees"] and answer["output_error"] == 0


def test_a_mistake_behind_an_error_from_before_is_named_alone(fed):
    text = fed.write(
        "both", FED.replace("torch.tanh(hidden)", "torch.sin(hidden)"), ("x * 2", "x * 2 + 0.001 * torch.sin(17 * x)")
    )
    fed.record("both")
    answer = fed.zoom("both", "--stage", "Whole.inner")
    assert [lines(region) for region in answer["regions"]] == [[line_of(text, "torch.sin(hidden)")]]
    assert answer["inputs"][0]["given"]
    shown = fed.run("zoom", "latest:reference", "latest:both", "--stage", "Whole.inner", status=1).stdout
    assert "Your call was given the reference's x (yours differed by" in shown


def test_an_input_that_cannot_be_given_is_said_to_be_the_programs_own(fed):
    fed.write("gone", FED, ("x * 2", "x * 2 + 0.001 * torch.sin(17 * x)"))
    fed.record("gone", "--operations", "Whole.inner")
    manifest = fed.folder / "home" / "latest" / "gone" / "run.json"
    manifest.write_text(manifest.read_text().replace(json.dumps(str(fed.folder)), '"/nowhere/at/all"'))
    answer = fed.zoom("gone", "--stage", "Whole.inner", status=0)
    (given,) = answer["inputs"]
    assert not given["given"] and "is gone" in given["note"]


TABLE = """
import numpy as np, torch, torch.nn as nn

class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 8)

    def forward(self, t):
        angles = torch.outer(t, torch.exp(-torch.arange(8) / 3))
        return self.out(torch.cat([torch.cos(angles), torch.sin(angles)], -1))

class WithNumpy(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 8)

    def forward(self, t):
        angles = t.numpy()[:, None] * np.exp(-np.arange(8) / 3)
        table = np.concatenate([np.cos(angles), np.sin(angles)], -1)
        return self.out(torch.from_numpy(table.astype(np.float32)))

if __name__ == "__main__":
    torch.manual_seed(0)
    model = KIND()
    before = np.exp, np.concatenate, np.cos, torch.from_numpy
    with torch.no_grad():
        print(model(torch.linspace(0.1, 3, 6)).double().sum().item())
    assert before == (np.exp, np.concatenate, np.cos, torch.from_numpy)
"""


def test_numpy_inside_a_call_is_seen_by_its_functions(tmp_path):
    place = Place(tmp_path)
    place.write("reference", TABLE, ("KIND()", "Table()"))
    text = place.write("right", TABLE, ("KIND()", "WithNumpy()"))
    place.write("wrong", text, ("[np.cos(angles), np.sin(angles)]", "[np.sin(angles), np.cos(angles)]"))
    for name, stage in (("reference", "Table"), ("right", "WithNumpy"), ("wrong", "WithNumpy")):
        place.record(name, "--operations", stage)
        plain = subprocess.run([sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert (tmp_path / "home" / "latest" / name / "output.log").read_text() == plain.stdout
    stages = ("--stage", "Table", "--candidate-stage", "WithNumpy")
    assert place.zoom("right", *stages, status=0)["agrees"]
    answer = place.zoom("wrong", *stages)
    assert any(line_of(text, "table = ") in lines(region) for region in answer["regions"])


def test_what_was_compiled_is_run_as_it_was_written(fed):
    text = fed.write(
        "compiled",
        FED.replace("torch.tanh(hidden)", "torch.sin(hidden)"),
        ("model, x = Whole(),", "model, x = torch.compile(Whole()),"),
    )
    fed.record("compiled", "--operations", "*inner")
    stage = json.loads(
        (fed.folder / "home" / "latest" / "compiled" / "operations.jsonl").read_text().partition("\n")[0]
    )["call"]
    answer = fed.zoom("compiled", "--stage", "Whole.inner", "--candidate-stage", stage)
    assert answer["uncompiled"] and [lines(region) for region in answer["regions"]] == [
        [line_of(text, "torch.sin(hidden)")]
    ]


def test_autocast_changes_nothing_that_is_seen(fed):
    change = ("with torch.no_grad():", "with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):")
    fed.write("autocast_plain", FED, change)
    text = fed.write("autocast_wrong", FED.replace("torch.tanh(hidden)", "torch.sin(hidden)"), change)
    for name in ("autocast_plain", "autocast_wrong"):
        fed.record(name, "--operations", "Whole.inner")
        plain = subprocess.run(
            [sys.executable, f"{name}.py"], cwd=fed.folder, capture_output=True, text=True, check=True
        )
        assert (fed.folder / "home" / "latest" / name / "output.log").read_text() == plain.stdout
    answer = json.loads(
        fed.run(
            "--json", "zoom", "latest:autocast_plain", "latest:autocast_wrong", "--stage", "Whole.inner", status=1
        ).stdout
    )
    assert [lines(region) for region in answer["regions"]] == [[line_of(text, "torch.sin(hidden)")]]


JAX_REFERENCE = """
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x):
        b, n, width = x.shape
        y = self.norm(x)
        q, k, v = (layer(y).view(b, n, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, width))
        return x + self.down(F.silu(self.up(x)))

if __name__ == "__main__":
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 6, 16)
    np.savez("weights.npz", x=x, **{k: v.numpy() for k, v in model.state_dict().items()})
    with torch.no_grad():
        model(x)
"""

JAX_PORT = """
import numpy as np, jax, jax.numpy as jnp
from flax import linen as nn

class Layer(nn.Module):
    heads: int = 4

    @nn.compact
    def __call__(self, x):
        b, n, width = x.shape
        y = nn.LayerNorm(epsilon=1e-6, name="norm")(x)
        q, k, v = (nn.Dense(width, name=name)(y).reshape(b, n, self.heads, -1) for name in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // self.heads) ** -0.5
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, n, width)
        x = x + nn.Dense(width, name="out")(mixed)
        return x + nn.Dense(width, name="down")(jax.nn.silu(nn.Dense(32, name="up")(x)))

if __name__ == "__main__":
    given = np.load("weights.npz")
    params = {name: {"kernel": given[f"{name}.weight"].T, "bias": given[f"{name}.bias"]} for name in ("q", "k", "v", "out", "up", "down")}
    params["norm"] = {"scale": given["norm.weight"], "bias": given["norm.bias"]}
    jax.config.update("jax_disable_jit", True)  # as it is while a program is recorded
    before = jax.lax.add_p.bind.__func__
    result = Layer().apply({"params": jax.tree.map(jnp.asarray, params)}, jnp.asarray(given["x"]))
    assert jax.lax.add_p.bind.__func__ is before
    print(np.asarray(result).tobytes().hex())
"""


@pytest.fixture(scope="module")
def jax_port(tmp_path_factory):
    pytest.importorskip("flax", reason="JAX and Flax are not installed: operations of JAX are not tested")
    made = Place(tmp_path_factory.mktemp("jax"))
    made.write("reference", JAX_REFERENCE)
    made.record("reference", "--operations", "Block")
    return made


def test_a_correct_port_to_jax_has_no_divergence(jax_port):
    jax_port.write("port", JAX_PORT)
    jax_port.record("port", "--operations", "Layer")
    plain = subprocess.run([sys.executable, "port.py"], cwd=jax_port.folder, capture_output=True, text=True, check=True)
    assert (jax_port.folder / "home" / "latest" / "port" / "output.log").read_text() == plain.stdout
    answer = jax_port.zoom("port", "--stage", "Block", "--candidate-stage", "Layer", status=0)
    assert answer["agrees"] and answer["values"]["matched"] > 20


@pytest.mark.parametrize("change, part", [
    (("(width // self.heads) ** -0.5", "width ** -0.5"), "scores = "),
    (("jax.nn.silu(", "jax.nn.gelu("), "return x + "),
    (("scores, axis=-1", "scores, axis=-2"), "weights = "),
    (("epsilon=1e-6", "epsilon=1e-1"), "y = "),
    (("x = x + nn.Dense(width, name=\"out\")", "x = nn.Dense(width, name=\"out\")"), "x = nn.Dense"),
])  # fmt: skip
def test_a_mistake_in_jax_is_named_by_its_line(jax_port, change, part):
    text = jax_port.write("jax_mistake", JAX_PORT, change)
    jax_port.record("jax_mistake", "--operations", "Layer")
    answer = jax_port.zoom("jax_mistake", "--stage", "Block", "--candidate-stage", "Layer")
    assert any(line_of(text, part) in lines(region) for region in answer["regions"]), answer["regions"]
    assert sum(len(lines(region)) for region in answer["regions"]) <= 3
