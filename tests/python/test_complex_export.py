"""Complex numbers: read as [..., 2] reals from every format, and written as complex numbers again; the official libraries are the judges."""

import json
import pathlib

import numpy as np
import pytest
import torch
from program import PROGRAM, run, run_json
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

VALUES = (np.arange(12).reshape(3, 4) - 1j * np.arange(12).reshape(3, 4)[::-1]).astype(np.complex64)


def written(folder, extension, values):
    path = folder / f"in{extension}"
    if extension == ".npy":
        np.save(path, values)
    elif extension == ".npz":
        np.savez(path, w=values, beside=np.ones(2, np.float32))
    elif extension == ".safetensors":
        save_file({"w": torch.from_numpy(values), "beside": torch.ones(2)}, path)
    else:
        torch.save({"w": torch.from_numpy(values), "beside": torch.ones(2)}, path)
    return path


def read(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        return np.load(path)["w"]
    if path.suffix == ".safetensors":
        return load_file(path)["w"].numpy()
    return torch.load(path, weights_only=True)["w"].numpy()


@pytest.mark.parametrize("source", [".npy", ".npz", ".safetensors", ".pt"])
@pytest.mark.parametrize("target", [".npy", ".npz", ".safetensors", ".pt"])
def test_complex_numbers_keep_their_dtype(tmp_path, source, target):
    path = written(tmp_path, source, VALUES)
    name = "in" if source == ".npy" else "w"
    _, listed = run_json("tensors", "list", path)
    shapes = {tensor["name"]: tensor["shape"] for tensor in listed["tensors"]}
    assert shapes[name] == [3, 4, 2], "real and imaginary part are the last axis"
    output = tmp_path / f"out{target}"
    done = run("tensors", "export", path, name, "--output", output)
    assert done.returncode == 0, done.stderr
    if target == ".npy" or source != ".npy":
        made = read(output)
        assert made.dtype == np.complex64 and np.array_equal(made, VALUES)


def test_double_precision_and_what_safetensors_cannot_hold(tmp_path):
    path = written(tmp_path, ".npy", VALUES.astype(np.complex128))
    for target in (".npy", ".pt"):
        assert run("tensors", "export", path, "--output", tmp_path / f"out{target}").returncode == 0
    assert np.load(tmp_path / "out.npy").dtype == np.complex128
    assert torch.load(tmp_path / "out.pt")["in"].dtype == torch.complex128
    done = run("tensors", "export", path, "--output", tmp_path / "out.safetensors")
    assert done.returncode == 2 and "C64" in done.stderr and not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    "slice_, expected",
    [
        ("[0]", VALUES[0]),
        ("[:, 1:3]", VALUES[:, 1:3]),
        ("[..., ::2, :]", VALUES[:, ::2]),
        ("[1, 2]", VALUES[1, 2]),
        ("[..., 0]", VALUES.real),
        ("[:, :, 1]", VALUES.imag),
        ("[..., ::-1]", np.stack([VALUES.imag, VALUES.real], -1)),
    ],
)
def test_a_slice_of_whole_numbers_is_complex_and_a_part_is_real(tmp_path, slice_, expected):
    path = written(tmp_path, ".npy", VALUES)
    assert run("tensors", "export", path, slice_, "--output", tmp_path / "out.npy").returncode == 0
    made = np.load(tmp_path / "out.npy")
    assert made.dtype == expected.dtype and np.array_equal(made, expected)


def test_another_dtype_is_one_of_reals(tmp_path):
    path = written(tmp_path, ".npy", VALUES)
    assert run("tensors", "export", path, "--dtype", "f64", "--output", tmp_path / "out.npy").returncode == 0
    made = np.load(tmp_path / "out.npy")
    assert made.dtype == np.float64 and made.shape == (3, 4, 2)


def test_views_and_conjugates_of_torch(tmp_path):
    """Strides count complex numbers; what torch has not computed yet is refused rather than read without its sign."""
    values = torch.from_numpy(VALUES)
    torch.save({"w": values.t()[1:]}, tmp_path / "view.pt")
    assert run("tensors", "export", tmp_path / "view.pt", "w", "--output", tmp_path / "out.npy").returncode == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), VALUES.T[1:])
    torch.save({"w": values.conj()}, tmp_path / "conjugate.pt")
    done = run("tensors", "list", tmp_path / "conjugate.pt")
    if torch.load(tmp_path / "conjugate.pt")["w"].is_conj():
        assert done.returncode in (2, 3) and "resolve_conj" in done.stderr
    else:
        assert done.returncode == 0


def test_listing_and_comparing_say_the_same_as_before(tmp_path):
    path = written(tmp_path, ".npy", VALUES)
    done = run("--json", "tensors", "diff", path, path)
    assert done.returncode == 0 and json.loads(done.stdout)
