import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill


class PixelAttention(nn.Module):
    def __init__(self, dims=8, groups=4):
        super().__init__()
        self.groups = groups
        self.norm_weight, self.norm_bias = mx.ones((dims,)), mx.zeros((dims,))
        self.qkv = nn.Linear(dims, 3 * dims)
        self.out = nn.Linear(dims, dims)

    def group_norm(self, x):
        B, H, W, C = x.shape
        y = x.reshape(B, H * W, self.groups, C // self.groups)
        mean = y.mean(axis=(1, 3), keepdims=True)
        var = y.var(axis=(1, 3), keepdims=True)
        y = (y - mean) * mx.rsqrt(var + 1e-6)
        return y.reshape(B, H * W, C) * self.norm_weight + self.norm_bias

    def __call__(self, x):
        x = x.transpose(0, 2, 3, 1)
        B, H, W, C = x.shape
        y = self.group_norm(x)
        q, k, v = mx.split(self.qkv(y), 3, axis=-1)
        y = mx.softmax((q * C**-0.5) @ k.swapaxes(1, 2), axis=-1) @ v
        y = self.out(y).reshape(B, H, W, C)
        return (x + y).transpose(0, 3, 1, 2)


def build(weights):
    return fill(PixelAttention(), {
        "norm_weight": weights["norm.weight"], "norm_bias": weights["norm.bias"],
        "qkv.weight": np.concatenate([weights[f"{name}.weight"][:, :, 0, 0] for name in "qkv"]),
        "qkv.bias": np.concatenate([weights[f"{name}.bias"] for name in "qkv"]),
        "out.weight": weights["proj.weight"][:, :, 0, 0], "out.bias": weights["proj.bias"],
    })  # fmt: skip
