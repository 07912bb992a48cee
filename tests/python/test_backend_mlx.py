"""Affine quantisation against MLX itself: the same bits from quantize, the same values back, the same products."""

import ml_dtypes
import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from backend_probe import BACKENDS, DTYPES, TOLERANCE, call, normal, relative_error  # noqa: E402

MLX = {"f32": mx.float32, "bf16": mx.bfloat16, "f16": mx.float16}
FORMATS = [(bits, group) for bits in (2, 3, 4, 6, 8) for group in (32, 64, 128)]


def to_mlx(array):
    if array.dtype == ml_dtypes.bfloat16:
        return mx.view(mx.array(array.view(np.uint16)), mx.bfloat16)
    return mx.array(array)


def from_mlx(array):
    if array.dtype == mx.bfloat16:
        return np.array(mx.view(array, mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(array)


def awkward(dtype):
    """Groups of every kind: normal, zero, constant, one-sided, tiny, huge, one outlier."""
    rows = [normal(i, (256,), "f32") for i in range(24)]
    rows += [np.zeros(256), np.full(256, 0.75), np.full(256, -3.0), np.abs(normal(1, (256,), "f32"))]
    rows += [-np.abs(normal(2, (256,), "f32")), normal(3, (256,), "f32") * 1e-7, normal(4, (256,), "f32") * 1e4]
    rows += [np.where(np.arange(256) % 32 == 5, 100.0, 0.01), np.linspace(-1, 1, 256), np.linspace(0, 1e-8, 256)]
    rows += [normal(5, (256,), "f32") + 5, normal(6, (256,), "f32") - 5]
    return np.stack(rows).astype(np.float32).astype(DTYPES[dtype])


def bits_of(array):
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("bits,group", FORMATS)
def test_quantize_bit_for_bit(dtype, bits, group):
    for w in (awkward(dtype), normal(bits * 1000 + group, (96, 512), dtype, 0.02)):
        ours = call("reference", "quantize", {"x": w}, bits=bits, group_size=group, outputs=["out", "scales", "biases"])
        theirs = mx.quantize(to_mlx(w), group_size=group, bits=bits, stream=mx.cpu)
        for name, a, b in zip(("weight", "scales", "biases"), ours, theirs):
            b = from_mlx(b)
            assert a.shape == b.shape and a.dtype == b.dtype, name
            different = np.flatnonzero(np.any(bits_of(a).reshape(a.size, -1) != bits_of(b).reshape(a.size, -1), axis=1))
            assert different.size == 0, f"{name}: {different.size} of {a.size}, first at {different[:3]}"


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("bits,group", FORMATS)
def test_dequantize(dtype, bits, group):
    q, s, b = mx.quantize(to_mlx(normal(1, (40, 256), dtype)), group_size=group, bits=bits, stream=mx.cpu)
    expected = from_mlx(mx.dequantize(q, s, b, group_size=group, bits=bits, stream=mx.cpu))
    tensors = {"weight": from_mlx(q), "scales": from_mlx(s), "biases": from_mlx(b)}
    got = call("reference", "dequantize", tensors, bits=bits, group_size=group)
    # MLX multiplies and adds in the dtype of the scales, rounding twice; we round once.
    exact = mx.dequantize(q, s.astype(mx.float32), b.astype(mx.float32), group_size=group, bits=bits, stream=mx.cpu)
    error = relative_error(np.array(exact), got.astype(np.float32))
    assert error <= TOLERANCE[dtype]
    assert error <= relative_error(np.array(exact), expected.astype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("bits,group", FORMATS)
def test_quantized_matmul(backend, dtype, bits, group):
    q, s, b = mx.quantize(to_mlx(normal(1, (70, 256), dtype)), group_size=group, bits=bits, stream=mx.cpu)
    x = normal(2, (9, 256), dtype)
    # The exact product of the stored values: MLX's own kernel accumulates in the activations' dtype.
    dense = mx.dequantize(q, s.astype(mx.float32), b.astype(mx.float32), group_size=group, bits=bits, stream=mx.cpu)
    expected = x.astype(np.float64) @ np.array(dense, np.float64).T
    tensors = {"x": x, "weight": from_mlx(q), "scales": from_mlx(s), "biases": from_mlx(b)}
    got = call(backend, "linear", tensors, bits=bits, group_size=group)
    error = relative_error(expected, got.astype(np.float32))
    assert error <= TOLERANCE[dtype]
    theirs = from_mlx(mx.quantized_matmul(to_mlx(x), q, s, b, group_size=group, bits=bits, stream=mx.cpu))
    if dtype == "f32":
        assert relative_error(theirs, got) <= TOLERANCE[dtype]
    else:
        assert error <= relative_error(expected, theirs.astype(np.float32))


def test_refuses_what_it_cannot_quantize():
    for w, options, message in [
        (normal(1, (4, 48), "f32"), {"bits": 4, "group_size": 64}, "multiple of 64"),
        (normal(1, (4, 64), "f32"), {"bits": 5, "group_size": 64}, "2, 3, 4, 6 or 8"),
        (normal(1, (4, 64), "f32"), {"bits": 4, "group_size": 16}, "32, 64 or 128"),
        (np.full((2, 64), np.nan, np.float32), {"bits": 4, "group_size": 64}, "NaN"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            call("reference", "quantize", {"x": w}, **options)
