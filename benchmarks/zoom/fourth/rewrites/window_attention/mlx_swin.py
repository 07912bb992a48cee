import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill, linears


def window_partition(x, size):
    B, H, W, C = x.shape
    x = x.reshape(B, H // size, size, W // size, size, C)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, size * size, C)


def window_merge(windows, size, B, H, W):
    x = windows.reshape(B, H // size, W // size, size, size, -1)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(B, H, W, -1)


class WindowAttention(nn.Module):
    def __init__(self, dims=24, num_heads=3, size=4, shift=2):
        super().__init__()
        self.num_heads, self.size, self.shift = num_heads, size, shift
        self.norm = nn.LayerNorm(dims, eps=1e-5)
        self.qkv = nn.Linear(dims, 3 * dims)
        self.proj = nn.Linear(dims, dims)
        self.table = mx.zeros(((2 * size - 1) ** 2, num_heads))

    def relative_bias(self):
        y, x = np.meshgrid(np.arange(self.size), np.arange(self.size), indexing="ij")
        y, x = y.reshape(-1), x.reshape(-1)
        index = (y[:, None] - y + self.size - 1) * (2 * self.size - 1) + (x[:, None] - x + self.size - 1)
        return self.table[mx.array(index)].transpose(2, 0, 1)

    def region_mask(self, H, W):
        label = np.zeros((1, H, W, 1), dtype=np.int32)
        label[:, H - self.shift :] += 1
        label[:, :, W - self.shift :] += 2
        label = window_partition(mx.array(label), self.size).squeeze(-1)
        same = label[:, :, None] == label[:, None, :]
        return mx.where(same, 0.0, -1e9)[:, None]

    def __call__(self, x):
        B, H, W, D = x.shape
        N = self.size * self.size
        y = mx.roll(self.norm(x), (-self.shift, -self.shift), axis=(1, 2))
        y = window_partition(y, self.size)
        q, k, v = (t.reshape(-1, N, self.num_heads, D // self.num_heads) for t in mx.split(self.qkv(y), 3, axis=-1))
        q, k, v = q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
        scores = (q @ k) * (D // self.num_heads) ** -0.5
        scores = scores + self.relative_bias()
        scores = scores + mx.tile(self.region_mask(H, W), (B, 1, 1, 1))
        y = mx.softmax(scores, axis=-1).astype(v.dtype) @ v
        y = self.proj(y.transpose(0, 2, 1, 3).reshape(-1, N, D))
        y = window_merge(y, self.size, B, H, W)
        y = mx.roll(y, (self.shift, self.shift), axis=(1, 2))
        return x + y


def build(weights):
    arrays = linears(weights, {"norm": "norm", "qkv": "qkv", "proj": "proj"})
    return fill(WindowAttention(), arrays | {"table": weights["bias_table"]})
