"""`lockstep compare` from outside: verdicts, exit status, JSON, text, report; on folders of .npy files and on runs."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))


def compare(*arguments):
    return subprocess.run([BINARY, "compare", *map(str, arguments)], capture_output=True, text=True)


def write_run(folder: Path, records) -> Path:
    """records: (name, role, array) in execution order."""
    (folder / "tensors").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"format": "lockstep-run", "version": 1, "id": folder.name, "status": "finished"})
    )
    with open(folder / "records.jsonl", "w", encoding="utf-8") as lines:
        for number, (name, role, array) in enumerate(records):
            file = f"tensors/{number}.npy"
            np.save(folder / file, array)
            lines.write(json.dumps({"seq": number, "name": name, "step": None, "hit": 0, "tags": {}, "role": role,
                                    "dtype": array.dtype.name, "shape": list(array.shape), "file": file}) + "\n")  # fmt: skip
    return folder


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def block(x, shift, scale, *, exchanged=False):
    """norm, modulation made of two recorded vectors, and what the next module is given."""
    n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    a, b = (scale, shift) if exchanged else (shift, scale)
    return [
        ("net.block", "input", x), ("net.block.mod", "output", np.concatenate([shift, scale])[None]),
        ("net.block.norm", "input", x), ("net.block.norm", "output", n),
        ("net.block.mlp", "input", n * (1 + b) + a), ("net.block.mlp", "output", np.tanh(n * (1 + b) + a)),
        ("net.block", "output", x + np.tanh(n * (1 + b) + a)),
    ]  # fmt: skip


def test_equal_runs_match_and_exit_0(tmp_path):
    records = block(normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2))
    a, b = write_run(tmp_path / "a", records), write_run(tmp_path / "b", records)
    done = compare(a, b)
    assert done.returncode == 0 and done.stdout.startswith("MATCH")


def test_glue_and_cause_are_named(tmp_path):
    x, shift, scale = normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2)
    a = write_run(tmp_path / "a", block(x, shift, scale))
    b = write_run(tmp_path / "b", block(x, shift, scale, exchanged=True))
    done = compare(a, b, "--json", "--report", tmp_path / "out.html")
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "mismatch"
    first = result["first_divergence"]
    assert (first["name"], first["role"], first["kind"], first["parent"]) == (
        "net.block.mlp",
        "input",
        "glue",
        "net.block",
    )
    assert result["causes"][0]["cause"] == "modulate.shift_scale_exchanged"
    for field in ("residual", "explanation", "fix", "look_at"):
        assert field in result["causes"][0]
    assert {"verdict", "compared", "first_divergence", "causes", "tensors", "unpaired", "images"} <= set(result)
    page = (tmp_path / "out.html").read_text()
    assert "modulate.shift_scale_exchanged" in page and "http://" not in page and "https://" not in page
    text = compare(a, b).stdout
    assert text.startswith("MISMATCH: first at net.block.mlp")


def test_nothing_compared_is_an_error(tmp_path):
    a = write_run(tmp_path / "a", [("x", "output", normal(3, 4))])
    b = write_run(tmp_path / "b", [("y", "output", normal(3, 4, seed=1))])  # another name and other values
    done = compare(a, b)
    assert done.returncode == 2 and "no tensor" in done.stderr
    assert json.loads(compare(a, b, "--json").stdout)["verdict"] == "nothing_compared"


def test_map_file_renames_and_permutes(tmp_path):
    x = normal(2, 3, 4)
    a = write_run(tmp_path / "a", [("net.layers.7.q", "output", x)])
    b = write_run(tmp_path / "b", [("blocks.7.query", "output", np.ascontiguousarray(x.transpose(0, 2, 1)))])
    rules = tmp_path / "map.json"
    rules.write_text(
        json.dumps({"rules": [{"candidate": "blocks.*.query", "reference": "net.layers.*.q", "permute": [0, 2, 1]}]})
    )
    assert compare(a, b, "--map", rules).returncode == 0
    rules.write_text('{"rules": [{"candidate": "blocks.*.query", "reference": "net.layers.*.k"}]}')
    assert compare(a, b, "--map", rules).returncode == 2  # a map that is given is the only one


def test_a_map_can_round(tmp_path):
    x = normal(8, 16)
    rounded = (x.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)  # to bf16, ties aside
    a = write_run(tmp_path / "a", [("net.q", "output", rounded)])
    b = write_run(tmp_path / "b", [("q", "output", x)])
    for dtype, status in (("bf16", 0), (None, 1)):
        rule = {"candidate": "q", "reference": "net.q"} | ({"dtype": dtype} if dtype else {})
        (tmp_path / "map.json").write_text(json.dumps({"rules": [rule]}))
        assert compare(a, b, "--map", tmp_path / "map.json").returncode == status


def test_a_map_is_proposed_by_order_shape_and_content(tmp_path):
    theirs, ours = [], []
    for layer in range(4):
        x, y = normal(1, 6, 16, seed=layer), normal(1, 6, 8, seed=100 + layer)
        theirs += [
            (f"transformer.blocks.{layer}.attn.to_q", "output", x),
            (f"transformer.blocks.{layer}.norm", "output", y),
        ]
        ours += [(f"layers.{layer}.query", "output", x * np.float32(1 + 1e-7)), (f"layers.{layer}.extra", "output", normal(3, seed=layer)),
                 (f"layers.{layer}.ln", "output", np.ascontiguousarray(y.transpose(0, 2, 1)))]  # fmt: skip
    ours[-3] = ("layers.3.query", "output", ours[-3][2] * 1000)  # wrong, and still in its place
    a, b = write_run(tmp_path / "a", theirs), write_run(tmp_path / "b", ours)
    alone = json.loads(compare(a, b, "--json").stdout)
    done = compare(a, b, "--propose-map", tmp_path / "map.json", "--json")
    proposal = json.loads((tmp_path / "map.json").read_text())["rules"]
    rules = {(rule["candidate"], rule["reference"]): rule for rule in proposal}
    assert set(rules) == {
        ("layers.#.query", "transformer.blocks.#.attn.to_q"),
        ("layers.#.ln", "transformer.blocks.#.norm"),
    }
    assert rules[("layers.#.ln", "transformer.blocks.#.norm")]["permute"] == [0, 2, 1]
    assert "equal content" in rules[("layers.#.query", "transformer.blocks.#.attn.to_q")]["why"]
    assert alone["map"]["rules"] == proposal and alone["first_divergence"]["name"] == "transformer.blocks.3.attn.to_q"
    assert (
        done.returncode == 1 and json.loads(done.stdout)["first_divergence"]["name"] == "transformer.blocks.3.attn.to_q"
    )
    again = json.loads(compare(a, b, "--map", tmp_path / "map.json", "--json").stdout)
    assert again["causes"][0]["cause"] == "affine.scale"


def test_plain_folders_of_npy(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    x = normal(5, 6)
    np.save(tmp_path / "a" / "latents.npy", x)
    np.save(tmp_path / "b" / "latents.npy", x * 1000)
    result = json.loads(compare(tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert result["causes"][0]["cause"] == "affine.scale" and "1000" in result["causes"][0]["explanation"]


@pytest.mark.parametrize(
    "bad", ["{", "[]", '{"rules": [{"candidate": "x"}]}', '{"rules": [{"candidate": 1, "reference": 2}]}']
)
def test_bad_map_is_bad_input(tmp_path, bad):
    a = write_run(tmp_path / "a", [("x", "output", normal(3, 4))])
    (tmp_path / "map.json").write_text(bad)
    done = compare(a, a, "--map", tmp_path / "map.json")
    assert done.returncode in (2, 3) and "lockstep:" in done.stderr


@pytest.mark.parametrize("strange", [2**31 - 1, -5, 10**12, np.nan])
def test_ids_that_no_tokenizer_knows_are_shown_as_numbers(tmp_path, strange):
    """What was recorded may be anything; words about it are no reason to fail."""
    ids = np.array([[5, 6, 7, 8]], np.int64)
    other = np.array([[5, 6, strange, 8]], np.float32 if np.isnan(strange) else np.int64)
    a = write_run(tmp_path / "a", [("text_encoder.input_ids", "input", ids)])
    b = write_run(tmp_path / "b", [("text_encoder.input_ids", "input", other)])
    done = compare(a, b, "--weights", ROOT / "models" / "tiny", "--json")
    assert done.returncode == 1, done.stderr
    assert "input.other" in [cause["cause"] for cause in json.loads(done.stdout)["causes"]]


def test_a_tokenizer_that_cannot_be_read_stops_no_comparison(tmp_path):
    (tmp_path / "model" / "tokenizer").mkdir(parents=True)
    (tmp_path / "model" / "tokenizer" / "tokenizer.json").write_text("{")
    (tmp_path / "model" / "transformer").symlink_to(ROOT / "models" / "tiny" / "transformer")
    a = write_run(tmp_path / "a", [("text_encoder.input_ids", "input", np.array([[5, 6]], np.int64))])
    b = write_run(tmp_path / "b", [("text_encoder.input_ids", "input", np.array([[5, 7]], np.int64))])
    done = compare(a, b, "--weights", tmp_path / "model", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["causes"][0]["cause"] == "input.other", done.stderr
