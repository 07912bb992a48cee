"""Element conversions against torch and ml_dtypes: every 8- and 16-bit pattern, and f32 at every rounding boundary."""

import numpy as np
import pytest
import torch
from io_probe import NUMPY_DTYPES, TORCH_DTYPES, Probe

SMALL = ["bf16", "f16", "f8_e4m3fn", "f8_e5m2"]


@pytest.fixture(scope="module")
def probe():
    with Probe() as p:
        yield p


def converted(probe, tmp_path, array, source, target):
    (tmp_path / "in").write_bytes(array.tobytes())
    reply = probe.ask("convert", source, target, tmp_path / "in", tmp_path / "out")
    assert reply.get("count") == array.size, reply
    return np.frombuffer((tmp_path / "out").read_bytes(), NUMPY_DTYPES[target])


def patterns(dtype):
    unsigned = np.uint8 if np.dtype(NUMPY_DTYPES[dtype]).itemsize == 1 else np.uint16
    return np.arange(np.iinfo(unsigned).max + 1, dtype=unsigned)


def same_values(ours, theirs):
    """Equal bits, or NaN on both sides."""
    unsigned = f"u{ours.dtype.itemsize}"
    both_nan = np.isnan(ours.astype(np.float64)) & np.isnan(theirs.astype(np.float64))
    return (ours.view(unsigned) == theirs.view(unsigned)) | both_nan


def f32_patterns():
    lows = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    rest = np.random.default_rng(1).integers(0, 65536, 20)
    high = np.arange(65536, dtype=np.uint32)[:, None] << 16
    return (high | np.concatenate([lows, rest]).astype(np.uint32)[None, :]).ravel().view(np.float32)


@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("source", SMALL)
def test_every_pattern_widens_as_in_torch_and_numpy(probe, tmp_path, source, target):
    bits = patterns(source)
    ours = converted(probe, tmp_path, bits, source, target)
    by_torch = torch.from_numpy(bits.copy()).view(TORCH_DTYPES[source]).to(TORCH_DTYPES[target]).numpy()
    by_numpy = bits.view(NUMPY_DTYPES[source]).astype(NUMPY_DTYPES[target])
    assert same_values(ours, by_torch).all()
    assert same_values(ours, by_numpy).all()
    if target == "f32" and source != "f16":  # NaNs too, bit for bit: ml_dtypes
        assert (ours.view("u4") == by_numpy.view("u4")).all()
    if target == "f32" and source == "f16":  # NaNs too, bit for bit: torch
        assert (ours.view("u4") == by_torch.view("u4")).all()


@pytest.mark.parametrize("target", SMALL)
@pytest.mark.parametrize("source", SMALL)
def test_every_pattern_crosses_as_in_torch_and_ml_dtypes(probe, tmp_path, source, target):
    bits = patterns(source)
    values = bits.view(NUMPY_DTYPES[source])
    ours = converted(probe, tmp_path, bits, source, target)
    if source == target:
        assert ours.tobytes() == bits.tobytes(), "not even a NaN is touched"
        return
    with np.errstate(all="ignore"):
        by_numpy = values.astype(np.float32).astype(NUMPY_DTYPES[target])
    by_torch = (
        torch.from_numpy(bits.copy())
        .view(TORCH_DTYPES[source])
        .to(TORCH_DTYPES[target])
        .view(torch.uint8)
        .numpy()
        .view(by_numpy.dtype)
    )
    overflow = (np.abs(values.astype(np.float32)) > 464) & (target == "f8_e4m3fn")  # as below
    assert same_values(ours, by_numpy).all()
    assert same_values(ours, by_torch)[~overflow].all()


@pytest.mark.parametrize("target", SMALL)
def test_f32_narrows_as_in_torch_and_ml_dtypes(probe, tmp_path, target):
    values = f32_patterns()
    ours = converted(probe, tmp_path, values, "f32", target)
    unsigned = f"u{ours.dtype.itemsize}"
    with np.errstate(all="ignore"):
        by_numpy = values.astype(NUMPY_DTYPES[target])
    by_torch = torch.from_numpy(values.copy()).to(TORCH_DTYPES[target]).view(torch.uint8).numpy().view(by_numpy.dtype)
    assert same_values(ours, by_numpy).all()
    # torch 2.13 saturates f8_e4m3fn where ml_dtypes and we say NaN.
    overflow = (np.abs(values) > 464) & (target == "f8_e4m3fn")
    assert same_values(ours, by_torch)[~overflow].all()
    assert np.isnan(ours[overflow].astype(np.float32)).all()
    exact = by_torch if target == "f16" else by_numpy
    assert (ours.view(unsigned) == exact.view(unsigned))[~overflow].all(), "NaN bits"


@pytest.mark.parametrize("source", ["i8", "u8", "i16", "u16", "bool"])
@pytest.mark.parametrize("target", ["f32", "f64", "f16", "bf16", "i64", "i32"])
def test_every_small_integer_converts_as_in_torch(probe, tmp_path, source, target):
    bits = np.arange(2 if source == "bool" else 256 ** np.dtype(NUMPY_DTYPES[source]).itemsize).astype(
        f"u{np.dtype(NUMPY_DTYPES[source]).itemsize}"
    )
    ours = converted(probe, tmp_path, bits, source, target)
    by_torch = torch.from_numpy(bits.view(NUMPY_DTYPES[source]).copy()).to(TORCH_DTYPES[target])
    assert ours.tobytes() == by_torch.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("source", ["f64", "i64", "i32", "u32"])
@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
def test_wide_values_round_as_in_torch(probe, tmp_path, source, target):
    rng = np.random.default_rng(2)
    if source == "f64":
        values = np.concatenate(
            [rng.standard_normal(20000) * 10.0 ** rng.integers(-10, 10, 20000), [0.0, -0.0, np.inf]]
        )
    else:
        kind = np.dtype(NUMPY_DTYPES[source])
        values = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, 20000, dtype=kind) >> rng.integers(
            0, 31, 20000
        ).astype(kind)
    values = values.astype(NUMPY_DTYPES[source])
    ours = converted(probe, tmp_path, values, source, target)
    by_torch = torch.from_numpy(values.copy()).to(TORCH_DTYPES[target])
    assert ours.tobytes() == by_torch.contiguous().view(torch.uint8).numpy().tobytes()
