"""Our backends against MLX itself: affine quantisation (the same bits from quantize, the same values back, the same
products) and the dense operations."""

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


def check(expected, got, dtype, factor=1.0):
    assert relative_error(from_mlx(expected).astype(np.float32), got.astype(np.float32)) <= TOLERANCE[dtype] * factor


dense = [pytest.mark.parametrize("backend", BACKENDS), pytest.mark.parametrize("dtype", list(DTYPES))]


def both(function):
    for mark in dense:
        function = mark(function)
    return function


@both
@pytest.mark.parametrize("rows,n,k", [(1, 7, 5), (33, 130, 257)])
def test_linear(backend, dtype, rows, n, k):
    x, w, b = normal(1, (rows, k), dtype), normal(2, (n, k), dtype, k**-0.5), normal(3, (n,), dtype)
    # In f32 and rounded once: MLX's CPU product of narrow floats rounds its partial sums too.
    f = [to_mlx(a).astype(mx.float32) for a in (x, w, b)]
    expected = mx.addmm(f[2], f[0], f[1].T, stream=mx.cpu).astype(MLX[dtype])
    check(expected, call(backend, "linear", {"x": x, "weight": w, "bias": b}), dtype)


@both
@pytest.mark.parametrize("heads,groups", [(4, 4), (4, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(backend, dtype, heads, groups, causal):
    q, k, v = (normal(i, (2, 37, h, 64), dtype) for i, h in ((1, heads), (2, groups), (3, groups)))
    t = [to_mlx(a).astype(mx.float32).transpose(0, 2, 1, 3) for a in (q, k, v)]
    mask = "causal" if causal else None
    expected = mx.fast.scaled_dot_product_attention(*t, scale=64**-0.5, mask=mask, stream=mx.cpu)
    got = call(backend, "attention", {"q": q, "k": k, "v": v}, scale=64**-0.5, causal=int(causal))
    check(expected.transpose(0, 2, 1, 3).astype(MLX[dtype]), got, dtype, 2)


@both
@pytest.mark.parametrize("width", [1, 31, 128, 515])
def test_norms(backend, dtype, width):
    x, w, b = normal(1, (2, 5, width), dtype, 3), normal(2, (width,), dtype), normal(3, (width,), dtype)
    tx, tw, tb = (to_mlx(a).astype(mx.float32) for a in (x, w, b))
    # Rounded to the dtype before the weight, as the official model does.
    rms = mx.fast.rms_norm(tx, None, 1e-6, stream=mx.cpu).astype(MLX[dtype]).astype(mx.float32) * tw
    check(rms.astype(MLX[dtype]), call(backend, "rms_norm", {"x": x, "weight": w}, eps=1e-6), dtype)
    layer = mx.fast.layer_norm(tx, tw, tb, 1e-6, stream=mx.cpu).astype(MLX[dtype])
    check(layer, call(backend, "layer_norm", {"x": x, "weight": w, "bias": b}, eps=1e-6), dtype)


@both
@pytest.mark.parametrize("op,name", [(0, "silu"), (1, "gelu_tanh"), (2, "gelu_erf")])
def test_activations(backend, dtype, op, name):
    x = normal(1, (300,), dtype, 4)
    t = to_mlx(x).astype(mx.float32)
    cube = 0.7978845608028654 * (t + 0.044715 * t * t * t)
    expected = {
        "silu": t * mx.sigmoid(t),
        "gelu_tanh": 0.5 * t * (1 + mx.tanh(cube)),
        "gelu_erf": t * (1 + mx.erf(t / 2**0.5)) / 2,
    }[name]
    # 1 + tanh and 1 + erf cancel for negative x: MLX's own formula loses that many digits there.
    check(expected.astype(MLX[dtype]), call(backend, "unary", {"x": x}, op=op), dtype)


@both
@pytest.mark.parametrize("size,inputs,outputs,kernel,stride", [(9, 3, 16, 3, 1), (8, 17, 5, 1, 1), (10, 16, 24, 3, 2)])
def test_convolution(backend, dtype, size, inputs, outputs, kernel, stride):
    x = normal(1, (1, size, size + 2, inputs), dtype)
    w = normal(2, (outputs, inputs, kernel, kernel), dtype, 0.1)
    pad = kernel // 2
    expected = mx.conv2d(
        to_mlx(x).astype(mx.float32),
        to_mlx(w).astype(mx.float32).transpose(0, 2, 3, 1),
        stride=stride,
        padding=pad,
        stream=mx.cpu,
    )
    got = call(backend, "conv2d", {"x": x, "weight": w}, stride=stride, before=pad, after=pad)
    check(expected.astype(MLX[dtype]), got, dtype)


def test_refuses_what_it_cannot_quantize():
    for w, options, message in [
        (normal(1, (4, 48), "f32"), {"bits": 4, "group_size": 64}, "multiple of 64"),
        (normal(1, (4, 64), "f32"), {"bits": 5, "group_size": 64}, "2, 3, 4, 6 or 8"),
        (normal(1, (4, 64), "f32"), {"bits": 4, "group_size": 16}, "32, 64 or 128"),
        (np.full((2, 64), np.nan, np.float32), {"bits": 4, "group_size": 64}, "NaN"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            call("reference", "quantize", {"x": w}, **options)
