import math

import mlx.core as mx
import mlx.nn as nn
from loading import fill


def normalized(x):
    centred = x - mx.mean(x, axis=-1, keepdims=True)
    energy = mx.mean(centred * centred, axis=-1, keepdims=True)
    return centred * mx.rsqrt(energy + 1e-6)


def affine(x, w, b):
    return mx.addmm(b, x, w)


def gelu(x):
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


class Block(nn.Module):
    """Weights lie transposed, as [in, out]; the six vectors are rows of a table."""

    def __init__(self, d=32, heads=4):
        super().__init__()
        self.heads = heads
        self.w_in, self.b_in = mx.zeros((d, 3 * d)), mx.zeros((3 * d,))
        self.w_out, self.b_out = mx.zeros((d, d)), mx.zeros((d,))
        self.w_up, self.b_up = mx.zeros((d, 2 * d)), mx.zeros((2 * d,))
        self.w_down, self.b_down = mx.zeros((2 * d, d)), mx.zeros((d,))
        self.w_table, self.b_table = mx.zeros((d, 6 * d)), mx.zeros((6 * d,))

    def __call__(self, x, cond):
        B, L, D = x.shape
        signal = cond * mx.sigmoid(cond)
        table = affine(signal, self.w_table, self.b_table).reshape(B, 6, 1, D)

        h = normalized(x)
        h = h + h * table[:, 1] + table[:, 0]
        packed = affine(h, self.w_in, self.b_in).reshape(B, L, 3, self.heads, -1)
        q, k, v = packed[:, :, 0], packed[:, :, 1], packed[:, :, 2]
        scores = mx.einsum("blhd,bmhd->bhlm", q, k) / math.sqrt(D // self.heads)
        h = mx.einsum("bhlm,bmhd->blhd", mx.softmax(scores, axis=-1), v).reshape(B, L, D)
        x = x + table[:, 2] * affine(h, self.w_out, self.b_out)

        h = normalized(x)
        h = h + h * table[:, 4] + table[:, 3]
        h = gelu(affine(h, self.w_up, self.b_up))
        return x + table[:, 5] * affine(h, self.w_down, self.b_down)


def build(weights):
    arrays = {}
    for new, old in {"in": "qkv", "out": "proj", "up": "fc1", "down": "fc2", "table": "adaLN"}.items():
        arrays[f"w_{new}"] = weights[f"{old}.weight"].T
        arrays[f"b_{new}"] = weights[f"{old}.bias"]
    return fill(Block(), arrays)
