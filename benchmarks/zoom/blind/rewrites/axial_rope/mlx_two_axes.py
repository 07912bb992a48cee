import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class AxialAttention(nn.Module):
    """Rows and columns are rotated one after the other, each in its half of a head, on a grid of tokens."""

    def __init__(self, dims=24, num_heads=3, height=3, width=5):
        super().__init__()
        self.num_heads, self.height, self.width = num_heads, height, width
        self.in_proj = nn.Linear(dims, 3 * dims)
        self.out_proj = nn.Linear(dims, dims)

    def turn(self, x, positions):
        half = x.shape[-1]
        freqs = mx.exp(-mx.arange(0, half, 2).astype(mx.float32) * (mx.log(mx.array(1000.0)) / half))
        angles = positions[..., None] * freqs
        cos, sin = mx.cos(angles), mx.sin(angles)
        pairs = x.astype(mx.float32).reshape(*x.shape[:-1], half // 2, 2)
        x1, x2 = pairs[..., 0], pairs[..., 1]
        out = mx.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], axis=-1)
        return out.reshape(x.shape).astype(x.dtype)

    def rope(self, x):
        B, H, L, D = x.shape
        x = x.reshape(B, H, self.height, self.width, D)
        rows = 14.0 * mx.arange(self.height)[:, None]
        columns = 14.0 * mx.arange(self.width)[None]
        first, second = mx.split(x, 2, axis=-1)
        x = mx.concatenate([self.turn(first, rows), self.turn(second, columns)], axis=-1)
        return x.reshape(B, H, L, D)

    def __call__(self, x):
        B, L, _ = x.shape
        q, k, v = (part.reshape(B, L, self.num_heads, -1).swapaxes(1, 2) for part in mx.split(self.in_proj(x), 3, axis=-1))
        q, k = self.rope(q), self.rope(k)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5)
        return self.out_proj(y.swapaxes(1, 2).flatten(2))


def build(weights):
    return fill(AxialAttention(), linears(weights, {"in_proj": "qkv", "out_proj": "proj"}))
