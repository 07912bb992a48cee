import mlx.core as mx
import mlx.nn as nn
from loading import fill


def group_norm(x, groups, weight, bias):
    """x: [batch, places, channels]; in f32, as the groups are wide"""
    B, N, C = x.shape
    y = x.astype(mx.float32).reshape(B, N, groups, C // groups)
    mean = mx.mean(y, axis=(1, 3), keepdims=True)
    y = y - mean
    var = mx.mean(y * y, axis=(1, 3), keepdims=True)
    y = y * mx.rsqrt(var + 1e-6)
    return y.reshape(B, N, C).astype(x.dtype) * weight + bias


class AttentionBlock(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.norm_weight, self.norm_bias = mx.ones((channels,)), mx.zeros((channels,))
        self.query, self.key = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.value, self.out = nn.Linear(channels, channels), nn.Linear(channels, channels)

    def __call__(self, x):
        B, C, H, W = x.shape
        x = x.transpose(0, 2, 3, 1).reshape(B, H * W, C)
        h = group_norm(x, 4, self.norm_weight, self.norm_bias)
        q, k, v = self.query(h), self.key(h), self.value(h)
        h = mx.fast.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], scale=C**-0.5)
        x = x + self.out(h.squeeze(1))
        return x.reshape(B, H, W, C).transpose(0, 3, 1, 2)


def build(weights):
    arrays = {"norm_weight": weights["norm.weight"], "norm_bias": weights["norm.bias"]}
    for new, old in {"query": "q", "key": "k", "value": "v", "out": "proj_out"}.items():
        arrays[f"{new}.weight"] = weights[f"{old}.weight"][:, :, 0, 0]
        arrays[f"{new}.bias"] = weights[f"{old}.bias"]
    return fill(AttentionBlock(), arrays)
