"""Our backends against torch itself: linear, attention, norms, activations, convolution, special values."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from backend_probe import BACKENDS, DTYPES, TOLERANCE, call, normal, relative_error  # noqa: E402

pytestmark = [pytest.mark.parametrize("backend", BACKENDS), pytest.mark.parametrize("dtype", list(DTYPES))]
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def to_torch(array):
    if array.dtype == DTYPES["bf16"]:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def check(expected, got, dtype, factor=1.0):
    assert relative_error(expected.float().numpy(), got.astype(np.float32)) <= TOLERANCE[dtype] * factor


@pytest.mark.parametrize("rows,n,k", [(1, 7, 5), (33, 130, 257), (5, 64, 3072)])
@pytest.mark.parametrize("activation", [0, 1, 2, 3])
def test_linear(backend, dtype, rows, n, k, activation):
    x, w, b = normal(1, (rows, k), dtype), normal(2, (n, k), dtype, k**-0.5), normal(3, (n,), dtype)
    y = F.linear(to_torch(x).double(), to_torch(w).double(), to_torch(b).double())
    y = [lambda t: t, lambda t: F.gelu(t, approximate="tanh"), F.gelu, F.silu][activation](y)
    got = call(backend, "linear", {"x": x, "weight": w, "bias": b}, activation=activation)
    check(y.to(TORCH[dtype]), got, dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads,groups", [(4, 4), (4, 2)])
@pytest.mark.parametrize("tokens", [37, 300])
def test_attention(backend, dtype, causal, heads, groups, tokens):
    q, k, v = (normal(i, (2, tokens, h, 64), dtype) for i, h in ((1, heads), (2, groups), (3, groups)))
    t = [to_torch(a).transpose(1, 2) for a in (q, k, v)]
    expected = F.scaled_dot_product_attention(*t, is_causal=causal, enable_gqa=heads != groups).transpose(1, 2)
    got = call(backend, "attention", {"q": q, "k": k, "v": v}, scale=64**-0.5, causal=int(causal))
    check(expected, got, dtype, 2)  # torch rounds its weights to the dtype too


def test_attention_with_key_mask(backend, dtype):
    q, k, v = (normal(i, (2, 20, 2, 32), dtype) for i in (1, 2, 3))
    mask = np.random.default_rng(4).random((2, 20)) < 0.6
    mask[:, 0] = True
    t = [to_torch(a).transpose(1, 2) for a in (q, k, v)]
    expected = F.scaled_dot_product_attention(*t, attn_mask=torch.from_numpy(mask)[:, None, None, :]).transpose(1, 2)
    got = call(backend, "attention", {"q": q, "k": k, "v": v, "key_mask": mask}, scale=32**-0.5)
    check(expected, got, dtype, 2)


@pytest.mark.parametrize("width", [1, 31, 128, 515])
def test_norms(backend, dtype, width):
    x, w, b = normal(1, (2, 5, width), dtype, 3), normal(2, (width,), dtype), normal(3, (width,), dtype)
    tx, tw, tb = to_torch(x), to_torch(w), to_torch(b)
    rms = (tx.float() * torch.rsqrt(tx.float().square().mean(-1, keepdim=True) + 1e-6)).to(TORCH[dtype]) * tw
    check(rms, call(backend, "rms_norm", {"x": x, "weight": w}, eps=1e-6), dtype)
    layer = F.layer_norm(tx.float(), (width,), tw.float(), tb.float(), 1e-6).to(TORCH[dtype])
    check(layer, call(backend, "layer_norm", {"x": x, "weight": w, "bias": b}, eps=1e-6), dtype)


@pytest.mark.parametrize(
    "op,function",
    [
        (0, F.silu),
        (1, lambda t: F.gelu(t, approximate="tanh")),
        (2, F.gelu),
        (3, torch.neg),
        (4, torch.cos),
        (5, torch.sin),
        (6, torch.exp),
        (7, lambda t: t.clamp(-1, 1)),
    ],
)
def test_activations_and_special_values(backend, dtype, op, function):
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-6, 30, -30], np.float32).astype(DTYPES[dtype])
    x = np.concatenate([normal(1, (200,), dtype, 4), special])
    got = call(backend, "unary", {"x": x}, op=op)
    # In f64: torch's f32 gelu(inf) is NaN, an accident of its approximation; its f64 gives inf.
    check(function(to_torch(x).double()).to(TORCH[dtype]), got, dtype)


@pytest.mark.parametrize(
    "size,inputs,outputs,kernel,stride,before,after",
    [(9, 3, 16, 3, 1, 1, 1), (8, 17, 5, 1, 1, 0, 0), (10, 16, 24, 3, 2, 0, 1), (6, 96, 96, 3, 1, 1, 1)],
)
def test_convolution(backend, dtype, size, inputs, outputs, kernel, stride, before, after):
    x = normal(1, (1, size, size + 2, inputs), dtype)
    w, b = normal(2, (outputs, inputs, kernel, kernel), dtype, 0.1), normal(3, (outputs,), dtype)
    padded = F.pad(to_torch(x).double().permute(0, 3, 1, 2), (before, after, before, after))
    y = F.conv2d(padded, to_torch(w).double(), to_torch(b).double(), stride=stride)
    got = call(backend, "conv2d", {"x": x, "weight": w, "bias": b}, stride=stride, before=before, after=after)
    check(y.permute(0, 2, 3, 1).to(TORCH[dtype]), got, dtype)


def with_special_values(array, dtype):
    """NaN, infinities and zeros in rows of their own; the rest as it was."""
    flat = array.reshape(-1, array.shape[-1]).copy()
    for row, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
        flat[row, flat.shape[1] // 2] = value
    flat[3] = 0
    return flat.reshape(array.shape).astype(DTYPES[dtype])


def test_special_values_propagate_as_in_torch(backend, dtype):
    x, w = with_special_values(normal(1, (6, 67), dtype), dtype), normal(2, (67,), dtype)
    tx, tw = to_torch(x).double(), to_torch(w).double()
    rms = (tx * torch.rsqrt(tx.square().mean(-1, keepdim=True) + 1e-6)).to(TORCH[dtype]).double() * tw
    check(rms.to(TORCH[dtype]), call(backend, "rms_norm", {"x": x, "weight": w}, eps=1e-6), dtype)
    check(F.layer_norm(tx, (67,), eps=1e-6).to(TORCH[dtype]), call(backend, "layer_norm", {"x": x}, eps=1e-6), dtype)
    matrix = with_special_values(normal(3, (40, 67), dtype, 0.1), dtype)
    for a, b in ((x, normal(3, (40, 67), dtype, 0.1)), (normal(1, (6, 67), dtype), matrix), (x, matrix)):
        y = F.linear(to_torch(a).double(), to_torch(b).double())
        check(y.to(TORCH[dtype]), call(backend, "linear", {"x": a, "weight": b}), dtype)


@pytest.mark.parametrize("tokens", [40, 300])
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_special_values_pass_through_attention_as_in_torch(backend, dtype, tokens, which):
    """Each value meets one head; the formula in f64, since torch's blocked kernel may hide a NaN that its own math shows."""
    arrays = {name: normal(i, (1, tokens, 4, 32), dtype) for i, name in enumerate("qkv")}
    for head, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
        arrays[which][0, 5, head, 3] = value
    q, k, v = (to_torch(arrays[name]).double().transpose(1, 2) for name in "qkv")
    expected = (F.softmax(q @ k.transpose(-1, -2) * 32**-0.5, -1) @ v).transpose(1, 2)
    check(expected.to(TORCH[dtype]), call(backend, "attention", arrays, scale=32**-0.5), dtype, 2)


def test_special_values_pass_through_convolution_as_in_torch(backend, dtype):
    x, w = normal(1, (1, 9, 9, 16), dtype), normal(2, (24, 16, 3, 3), dtype, 0.1)
    x[0, 1, 1, 2], x[0, 5, 1, 3], x[0, 7, 7, 4] = np.nan, np.inf, -np.inf
    y = F.conv2d(to_torch(x).double().permute(0, 3, 1, 2), to_torch(w).double(), padding=1).permute(0, 2, 3, 1)
    check(y.to(TORCH[dtype]), call(backend, "conv2d", {"x": x, "weight": w}, before=1, after=1), dtype)


@pytest.mark.parametrize("style", [1, 2])
def test_rotation(backend, dtype, style):
    x, w = normal(1, (2, 7, 3, 64), dtype, 2), normal(2, (64,), dtype)
    angle = np.random.default_rng(3).standard_normal((7, 32)).astype(np.float32)
    cos, sin = np.cos(angle), np.sin(angle)
    t = to_torch(x).float()
    t = (t * torch.rsqrt(t.square().mean(-1, keepdim=True) + 1e-6)).to(TORCH[dtype]).float() * to_torch(w).float()
    c, s = (torch.from_numpy(a)[None, :, None, :] for a in (cos, sin))
    if style == 1:  # complex pairs, as the DiT's rotation
        turned = torch.view_as_real(torch.view_as_complex(t.reshape(2, 7, 3, 32, 2)) * torch.complex(c, s)).flatten(3)
    else:
        a, b = t.chunk(2, -1)
        turned = torch.cat([a * c - b * s, b * c + a * s], -1)
    got = call(backend, "head_norm_rope", {"x": x, "weight": w, "cos": cos, "sin": sin}, style=style)
    check(turned.to(TORCH[dtype]), got, dtype)
