import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class RopeND:
    def __init__(self, axes, theta):
        self.axes, self.theta = axes, theta

    def table(self, ids):
        """[tokens, pairs, 2, 2]: one rotation for each pair"""
        parts = []
        for axis, size in enumerate(self.axes):
            omega = 1.0 / mx.power(self.theta, mx.arange(0, size, 2, dtype=mx.float32) / size)
            parts.append(ids[:, axis, None].astype(mx.float32) * omega)
        angle = mx.concatenate(parts, axis=-1)
        cos, sin = mx.cos(angle), mx.sin(angle)
        return mx.stack([cos, -sin, sin, cos], axis=-1).reshape(*angle.shape, 2, 2)


def rotated(x, table):
    pairs = x.astype(mx.float32).reshape(*x.shape[:-1], -1, 1, 2)
    out = table[..., 0] * pairs[..., 0] + table[..., 1] * pairs[..., 1]
    return out.reshape(x.shape).astype(x.dtype)


class Attention(nn.Module):
    def __init__(self, dims=32, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dims, dims) for _ in range(4))
        self._rope = RopeND((4, 6, 6), 10000.0)

    def __call__(self, x, ids):
        B, L, D = x.shape
        table = self._rope.table(ids)
        q = self.q_proj(x).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        k = self.k_proj(x).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        v = self.v_proj(x).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        q = rotated(q, table)
        k = rotated(k, table)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(D // self.num_heads) ** -0.5)
        return self.o_proj(y.transpose(0, 2, 1, 3).reshape(B, L, D))


def build(weights):
    return fill(Attention(), linears(weights, {f"{n}_proj": f"to_{n}" for n in "qkv"} | {"o_proj": "to_out"}))
