"""The `tensors` commands, judged by NumPy."""

import json
import random

import ml_dtypes
import numpy as np
import pytest
from program import run, run_json
from safetensors.numpy import load_file, save_file


@pytest.fixture
def pair(tmp_path):
    """Two f32 tensors that differ a little, and by one large error."""
    rng = np.random.default_rng(7)
    reference = rng.standard_normal((3, 17, 129), dtype=np.float32)
    candidate = reference + 1e-5 * rng.standard_normal(reference.shape, dtype=np.float32)
    candidate[2, 3, 4] += 0.25
    np.save(tmp_path / "reference.npy", reference)
    np.save(tmp_path / "candidate.npy", candidate)
    return tmp_path / "reference.npy", tmp_path / "candidate.npy"


def test_diff_agrees_with_numpy(pair):
    done, result = run_json("tensors", "diff", *pair, "--tolerance", "1e-5,1e-4")
    assert done.returncode == 1 and result["verdict"] == "mismatch"
    tensor = result["tensors"][0]
    r, c = (np.load(path).astype(np.float64) for path in pair)
    error = np.abs(c - r)
    assert tensor["mismatches"] == int((error > 1e-5 + 1e-4 * np.abs(r)).sum())
    assert tensor["worst"]["index"] == list(np.unravel_index(error.argmax(), error.shape))
    expected = {
        "max_abs": error.max(),
        "max_rel": (error[r != 0] / np.abs(r[r != 0])).max(),
        "mean_abs": error.mean(),
        "rmse": np.sqrt((error**2).mean()),
        "relative_l2": np.linalg.norm(error) / np.linalg.norm(r),
        "cosine": (r * c).sum() / np.linalg.norm(r) / np.linalg.norm(c),
        "sqnr_db": 10 * np.log10((r**2).sum() / (error**2).sum()),
    }
    for name, value in expected.items():
        assert tensor["error"][name] == pytest.approx(value, rel=2e-7 if name == "max_rel" else 1e-12), name
    for quantile in tensor["error"]["quantiles"]:
        assert quantile["value"] == pytest.approx(np.quantile(error, quantile["q"]), rel=1 / 16)
    assert sum(row["count"] for row in tensor["histogram"]) == error.size
    # ULPs of f32, counted the slow way
    keys = [
        np.where(bits < 0, -(bits & 0x7FFFFFFF).astype(np.int64), bits)
        for bits in (np.load(path).view(np.int32) for path in pair)
    ]
    ulps = np.abs(keys[0] - keys[1])
    assert tensor["ulps"]["max"] == ulps.max() and tensor["ulps"]["mean"] == pytest.approx(ulps.mean())


def test_diff_of_equal_files_is_a_match(pair):
    done, result = run_json("tensors", "diff", pair[0], pair[0], "--tolerance", "exact")
    assert done.returncode == 0 and result["verdict"] == "match"
    assert result["tensors"][0]["error"]["sqnr_db"] == "Infinity" and result["tensors"][0]["worst"] is None


def test_diff_text_names_the_worst_element(pair):
    done = run("tensors", "diff", *pair)
    assert done.returncode == 1
    assert "MISMATCH" in done.stdout and "[2, 3, 4]" in done.stdout
    assert "\x1b" not in done.stdout, "no colour where stdout is no terminal"
    assert "\x1b[31m" in run("tensors", "diff", *pair, "--color", "always").stdout
    assert run("tensors", "diff", *pair, "[0]", "--tolerance", "acceptable").returncode == 0, "the error is in [2]"


def test_diff_of_files_with_many_tensors(tmp_path):
    one = {"a": np.ones(4, np.float32), "b": np.ones(3, np.float32), "only_here": np.ones(1, np.float32)}
    save_file(one, tmp_path / "one.safetensors")
    save_file({"a": one["a"], "b": one["b"] + 1}, tmp_path / "two.safetensors")
    done, result = run_json("tensors", "diff", tmp_path / "one.safetensors", tmp_path / "two.safetensors")
    assert done.returncode == 1 and result["compared"] == 2 and result["different"] == 1
    assert result["unpaired"] == {"reference": ["only_here"], "candidate": []}
    assert run("tensors", "diff", tmp_path / "one.safetensors", tmp_path / "two.safetensors", "a").returncode == 0
    missing = run("tensors", "diff", tmp_path / "two.safetensors", tmp_path / "one.safetensors", "a*", "--common")
    assert missing.returncode == 0
    save_file({"x": one["a"]}, tmp_path / "three.safetensors")
    nothing = run("tensors", "diff", tmp_path / "one.safetensors", tmp_path / "three.safetensors")
    assert nothing.returncode == 2 and "nothing was compared" in nothing.stderr, "silence is never a pass"


def test_unequal_shapes_are_a_mismatch(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((3, 2), np.float32))
    done, result = run_json("tensors", "diff", tmp_path / "a.npy", tmp_path / "b.npy")
    assert done.returncode == 1 and not result["tensors"][0]["same_shape"]


def random_index(rng, size):
    if rng.random() < 0.3:
        return str(rng.randrange(-size, size))
    bounds = [rng.choice(["", str(rng.randrange(-size - 2, size + 3))]) for _ in range(2)]
    step = rng.choice(["", ":", ":1", ":2", ":-1", ":-3"])
    return f"{bounds[0]}:{bounds[1]}{step}"


def test_slices_mean_what_numpy_says(tmp_path):
    rng = random.Random(3)
    values = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
    np.save(tmp_path / "x.npy", values)
    for _ in range(60):
        items = [random_index(rng, size) for size in values.shape[: rng.randrange(1, 4)]]
        if len(items) < 3 and rng.random() < 0.3:
            items.append("...")
        expression = "[" + ", ".join(items) + "]"
        expected = eval(f"values{expression}")  # noqa: S307 (our own expression)
        done, result = run_json("tensors", "show", tmp_path / "x.npy", expression)
        assert done.returncode == 0, done.stderr
        assert result["shape"] == list(expected.shape) and result["values"] == expected.tolist(), expression
    for bad in ["[4]", "[0, 0, 0, 0]", "[::0]", "[x]", "[0:1:2:3]"]:
        refused = run("tensors", "show", tmp_path / "x.npy", bad)
        assert refused.returncode == 2 and "[slice]" in refused.stderr, bad


@pytest.mark.parametrize("shape", [(), (0,), (1,), (100000,), (64, 3000), (3, 5, 70, 70), (2,) * 12, (50,) * 5])
def test_show_is_never_a_flood(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape, np.uint8))
    done = run("tensors", "show", tmp_path / "x.npy")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 140


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"],
)
def test_stats_agree_with_numpy(tmp_path, dtype):
    rng = np.random.default_rng(1)
    values = (rng.standard_normal((7, 333)) * 30 + 40).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    done, result = run_json("tensors", "stats", tmp_path / "x.npy")
    stats, wide = result["tensors"][0]["stats"], values.astype(np.float64)
    assert done.returncode == 0
    assert (stats["min"], stats["max"]) == (wide.min(), wide.max())
    assert stats["mean"] == pytest.approx(wide.mean(), rel=1e-12) and stats["std"] == pytest.approx(
        wide.std(), rel=1e-10
    )
    assert stats["zero"] == int((wide == 0).sum())


def test_stats_of_what_is_no_number(tmp_path):
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf, -np.inf, 1.0, 1e-40], np.float32))
    _, result = run_json("tensors", "stats", tmp_path / "x.npy")
    stats = result["tensors"][0]["stats"]
    assert (stats["nan"], stats["inf"], stats["denormal"], stats["max"]) == (1, 2, 1, 1.0)
    np.save(tmp_path / "empty.npy", np.zeros((0,), np.float32))
    _, result = run_json("tensors", "stats", tmp_path / "empty.npy")
    assert result["tensors"][0]["stats"]["mean"] == "NaN"


def test_export(tmp_path):
    tensors = {"w": np.arange(24, dtype=np.float32).reshape(4, 6), "v": np.ones(3, ml_dtypes.bfloat16)}
    save_file(tensors, tmp_path / "in.safetensors", metadata={"format": "pt"})
    assert (
        run(
            "tensors", "export", tmp_path / "in.safetensors", "w", "[::-1, 1:3]", "--output", tmp_path / "w.npy"
        ).returncode
        == 0
    )
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), tensors["w"][::-1, 1:3])
    assert (
        run(
            "tensors", "export", tmp_path / "in.safetensors", "--dtype", "f16", "-o", tmp_path / "out.safetensors"
        ).returncode
        == 0
    )
    out = load_file(tmp_path / "out.safetensors")
    assert out["w"].dtype == np.float16 and out["v"].dtype == np.float16
    np.testing.assert_array_equal(out["w"], tensors["w"].astype(np.float16))
    import torch

    for name in ("out.npz", "out.pt"):
        assert run("tensors", "export", tmp_path / "in.safetensors", "-o", tmp_path / name).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["w"], tensors["w"])
    np.testing.assert_array_equal(torch.load(tmp_path / "out.pt", weights_only=True)["w"].numpy(), tensors["w"])
    both = run("tensors", "export", tmp_path / "in.safetensors", "-o", tmp_path / "both.npy")
    assert both.returncode == 2 and not (tmp_path / "both.npy").exists()
    assert run("tensors", "export", tmp_path / "in.safetensors", "-o", tmp_path / "x.txt").returncode == 2


def test_list_and_info(tmp_path):
    save_file({f"blocks.{i}.w": np.zeros((2, i + 1), np.float32) for i in range(300)}, tmp_path / "m.safetensors")
    _, listed = run_json("tensors", "list", tmp_path / "m.safetensors")
    assert {t["name"]: t["shape"] for t in listed["tensors"]} == {f"blocks.{i}.w": [2, i + 1] for i in range(300)}
    text = run("tensors", "list", tmp_path / "m.safetensors").stdout
    assert len(text.splitlines()) < 110 and "200 more" in text
    assert len(run("tensors", "list", tmp_path / "m.safetensors", "--limit", "0").stdout.splitlines()) > 300
    _, info = run_json("tensors", "info", tmp_path / "m.safetensors")
    assert info["tensors"] == 300 and info["dtypes"] == {"f32": 300}
    _, one = run_json("tensors", "info", tmp_path / "m.safetensors", "blocks.7.w")
    assert one["shape"] == [2, 8]


def test_names_cannot_send_escape_codes_to_the_terminal(tmp_path):
    save_file({"evil\x1b[31m\n": np.zeros(1, np.float32)}, tmp_path / "m.safetensors")
    done = run("tensors", "list", tmp_path / "m.safetensors")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\\x1b" in done.stdout


def test_wrong_words_get_the_nearest_right_one(tmp_path):
    save_file({"blocks.0.to_q.weight": np.zeros(1, np.float32)}, tmp_path / "m.safetensors")
    for arguments, hint in [
        (["tenors"], "try tensors"),
        (["tensors", "dif"], "try diff"),
        (["tensors", "list", tmp_path / "m.safetensors", "--limt", "3"], "try --limit"),
        (["tensors", "show", tmp_path / "m.safetensors", "blocks.0.to_k.weight"], "try blocks.0.to_q.weight"),
        (
            ["tensors", "diff", tmp_path / "m.safetensors", tmp_path / "m.safetensors", "--tolerance", "hihg"],
            "try --tolerance high",
        ),
    ]:
        done = run(*arguments)
        assert done.returncode == 2 and hint in done.stderr, (arguments, done.stderr)
        in_json = run(*arguments, "--json")
        assert hint in json.loads(in_json.stdout)["error"]["message"]


def test_missing_and_damaged_files(tmp_path):
    assert run("tensors", "list", tmp_path / "nowhere.npy").returncode in (2, 3)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
    done, result = run_json("tensors", "show", tmp_path / "bad.npy")
    assert done.returncode == 2 and result["error"]["code"] == "corrupt"


def test_what_is_no_tensor_file_is_judged_by_its_name(tmp_path):
    for name, blame in (
        ("a.npy", "[npy]"),
        ("a.safetensors", "[safetensors]"),
        ("a.txt", "holds no tensors we know"),
        ("a", "holds no tensors we know"),
    ):
        for content in (b"hello", b"", bytes(100)):
            (tmp_path / name).write_bytes(content)
            done = run("tensors", "list", tmp_path / name)
            assert done.returncode == 2 and blame in done.stderr, (name, content, done.stderr)


def test_metadata_is_no_flood(tmp_path):
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "a.safetensors", {f"k{i:05}": "v" * 500 for i in range(5000)})
    save_file({"y": np.zeros(1, np.float32)}, tmp_path / "b.safetensors")
    shown = run("tensors", "info", tmp_path).stdout
    assert len(shown.splitlines()) < 40 and "4980 more" in shown
    _, info = run_json("tensors", "info", tmp_path)
    assert len(info["metadata"]) == 5000
