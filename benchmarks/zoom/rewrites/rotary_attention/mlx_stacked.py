import mlx.core as mx
import mlx.nn as nn
from loading import fill


class RopeAttention(nn.Module):
    def __init__(self, dims=48, heads=3):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dims, 3 * dims, bias=False)
        self.to_out = nn.Linear(dims, dims)

    @staticmethod
    def rope(x, freqs):
        dtype = x.dtype
        x = x.astype(mx.float32).reshape(*x.shape[:-1], -1, 2)
        cos, sin = mx.cos(freqs)[..., None], mx.sin(freqs)[..., None]
        real, imaginary = x[..., :1], x[..., 1:]
        out = mx.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)
        return out.reshape(*out.shape[:-2], -1).astype(dtype)

    def __call__(self, x, freqs):
        B, L, D = x.shape
        qkv = self.to_qkv(x).reshape(B, L, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q = self.rope(q, freqs)
        k = self.rope(k, freqs)
        weights = mx.softmax((q @ k.transpose(0, 1, 3, 2)) * q.shape[-1] ** -0.5, axis=-1)
        return self.to_out((weights @ v).transpose(0, 2, 1, 3).reshape(B, L, D))


def build(weights):
    return fill(RopeAttention(), {"to_qkv.weight": weights["qkv.weight"], "to_out.weight": weights["out.weight"], "to_out.bias": weights["out.bias"]})
