import mlx.core as mx
import mlx.nn as nn
from loading import fill


def unpack_nibbles(packed):
    low = mx.bitwise_and(packed, 0x0F)
    high = mx.right_shift(packed, 4)
    return mx.stack([low, high], axis=-1).reshape(packed.shape[0], -1)


def dequantize(packed, scales, zeros, group_size):
    q = unpack_nibbles(packed).astype(scales.dtype)
    scale = mx.repeat(scales, group_size, axis=1)
    zero = mx.repeat(zeros.astype(scales.dtype), group_size, axis=1)
    return (q - zero) * scale


class QLinear(nn.Module):
    def __init__(self, inputs, outputs, group_size=8):
        super().__init__()
        self.group_size = group_size
        self.packed = mx.zeros((outputs, inputs // 2), dtype=mx.uint8)
        self.zeros = mx.zeros((outputs, inputs // group_size), dtype=mx.uint8)
        self.scales = mx.zeros((outputs, inputs // group_size))

    def __call__(self, x):
        w = dequantize(self.packed, self.scales, self.zeros, self.group_size)
        return x @ w.T


class MLP(nn.Module):
    def __init__(self, dims=32, hidden=48):
        super().__init__()
        self.norm = nn.RMSNorm(dims, eps=1e-6)
        self.w13 = QLinear(dims, 2 * hidden)
        self.w2 = QLinear(hidden, dims)

    def __call__(self, x):
        gate, up = mx.split(self.w13(self.norm(x)), 2, axis=-1)
        y = nn.silu(gate) * up
        return x + self.w2(y)


def build(weights):
    arrays = {"norm.weight": weights["norm.weight"]}
    for new, old in {"w13": "gate_up", "w2": "down"}.items():
        arrays[f"{new}.packed"] = weights[f"{old}.qweight"]
        arrays[f"{new}.scales"], arrays[f"{new}.zeros"] = weights[f"{old}.scales"], weights[f"{old}.zeros"]
    return fill(MLP(), arrays)
