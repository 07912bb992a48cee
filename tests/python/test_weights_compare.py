"""`lockstep weights compare` from outside: what a converter does to a checkpoint, and what must not pass."""

import numpy as np
import pytest
from program import run, run_json
from test_json_schemas import check

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")


def normal(*shape, seed):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


@pytest.fixture
def model():
    out = {}
    for i in range(3):
        for k, part in enumerate(("query", "key", "value")):
            out[f"blocks.{i}.attn.{part}.weight"] = normal(48, 48, seed=10 * i + k)
            out[f"blocks.{i}.attn.{part}.bias"] = np.zeros(48, np.float32)
        out[f"blocks.{i}.norm.weight"] = np.ones(48, np.float32)
    return out


@pytest.fixture
def findings(model, tmp_path):
    def compare(other):
        for name, weights in (("a", model), ("b", other)):
            safetensors.save_file(
                {k: np.ascontiguousarray(v) for k, v in weights.items()}, tmp_path / f"{name}.safetensors"
            )
        done, document = run_json("weights", "compare", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
        check(document, "weights_compare")
        assert done.returncode == (0 if document["verdict"] == "match" else 1)
        return {(f["kind"], f["name"]): f for f in document["findings"]}

    return compare


def test_other_names_alone_are_only_renamed(model, findings):
    found = findings({"model." + k.replace("blocks", "layers"): v for k, v in model.items()})
    assert {kind for kind, _ in found} == {"renamed"} and len(found) == len(model)
    for (_, name), finding in found.items():  # ones and zeros of one block are not another's
        assert finding["other"] == "model." + name.replace("blocks", "layers") and finding["other"] in finding["words"]


def test_weights_put_together_and_taken_apart(model, findings, tmp_path):
    fused = {k: v for k, v in model.items() if ".attn." not in k}
    for i in range(3):
        fused[f"blocks.{i}.attn.qkv.weight"] = np.concatenate(
            [model[f"blocks.{i}.attn.{p}.weight"] for p in ("query", "key", "value")]
        )
    split = {k: v for k, v in model.items() if not k.endswith(".bias")}
    model.clear(), model.update(split)
    found = findings(fused)
    assert {kind for kind, _ in found} == {"part_of"}
    assert found["part_of", "blocks.1.attn.key.weight"]["words"] == "is rows 48 to 95 of blocks.1.attn.qkv.weight"
    model.clear(), model.update(fused)
    found = findings(split)
    assert {kind for kind, _ in found} == {"taken_apart"}
    assert "rows 96 to 143 are blocks.2.attn.value.weight" in found["taken_apart", "blocks.2.attn.qkv.weight"]["words"]


def test_a_small_error_that_nothing_explains_is_no_match(model, findings):
    name = "blocks.1.norm.weight"
    assert findings(model | {name: model[name] + np.float32(0.01)})["weights.small_error", name]["serious"]
    name = "blocks.0.attn.key.weight"
    averaged = model[name] + 0.005 * normal(48, 48, seed=99)  # another version of the weights
    assert findings(model | {name: averaged})["weights.small_error", name]["serious"]
    assert (
        not findings(model | {name: model[name] * np.float32(1 + 2e-7)})
        .get(("weights.small_error", name), {})
        .get("serious")
    )


def test_words_are_those_of_the_numbers(model, findings):
    name = "blocks.0.attn.key.weight"
    scale = np.abs(model[name]).max(1, keepdims=True) / 127
    whole = np.round(model[name] / scale)
    assert (
        findings(model | {name: (whole * scale).astype(np.float32)})["weights.quantised", name]["words"]
        == "8-bit in groups of 48"
    )
    raw = findings(model | {name: np.round(model[name] * 300).astype(np.int8)})
    assert "300 times the reference" in raw["weights.different", name]["words"]
    broken = model[name].copy()
    broken[3, 4] = np.nan
    assert "1 of 2304 values" in findings(model | {name: broken})["weights.not_finite", name]["words"]


def test_torch_and_numpy_files_are_read(model, tmp_path):
    safetensors.save_file(model, tmp_path / "a.safetensors")
    torch.save({k: torch.from_numpy(v) for k, v in model.items()}, tmp_path / "b.pt")
    np.savez(tmp_path / "b.npz", **model)
    for other in ("b.pt", "b.npz"):
        done = run("weights", "compare", tmp_path / "a.safetensors", tmp_path / other)
        assert done.returncode == 0 and f"{len(model)} identical" in done.stdout, done.stderr


def test_nothing_compared_is_an_error(model, tmp_path):
    safetensors.save_file({}, tmp_path / "empty.safetensors")
    done = run("weights", "compare", tmp_path / "empty.safetensors", tmp_path / "empty.safetensors")
    assert done.returncode == 2 and "0 and 0 tensors" in done.stderr
