"""Calls one kernel of one backend through build/bin/backend_probe. bf16 arrays are ml_dtypes.bfloat16."""

import os
import pathlib
import subprocess
import tempfile

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parent / "backend_probe"
BACKENDS = ["reference", "cpu"]
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
# One rounding to the dtype, and what an f32 sum of some thousand terms adds: |ours - theirs| / |theirs| over the tensor.
TOLERANCE = {"f32": 2e-6, "bf16": 4e-3, "f16": 5e-4}


def load(path):
    array = np.load(path)
    return array.view(ml_dtypes.bfloat16) if array.dtype.kind == "V" else array


def call(backend, kernel, tensors, **options):
    """out.npy, or all named in `outputs`."""
    outputs = options.pop("outputs", ["out"])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, array in tensors.items():
            array = np.ascontiguousarray(array)
            np.save(folder / f"{name}.npy", array.view("V2") if array.dtype == ml_dtypes.bfloat16 else array)
        done = subprocess.run(
            [PROBE, backend, kernel, folder, *(f"{k}={v}" for k, v in options.items())], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        arrays = [load(folder / f"{name}.npy") for name in outputs]
    return arrays[0] if len(arrays) == 1 else arrays


def relative_error(expected, got):
    expected, got = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    assert expected.shape == got.shape
    assert np.array_equal(np.isnan(expected), np.isnan(got)), "NaN at other places"
    infinite = np.isinf(expected) | np.isinf(got)
    assert np.array_equal(expected[infinite], got[infinite]), "infinities differ"
    finite = np.isfinite(expected)
    norm = np.linalg.norm(expected[finite])
    return np.linalg.norm(expected[finite] - got[finite]) / (norm if norm > 0 else 1)


def normal(seed, shape, dtype, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32).astype(DTYPES[dtype])
