import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill


class StepAttention(nn.Module):
    """All projections at once, then one new token after the other against what came before it."""

    def __init__(self, dims=24, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dims, 3 * dims)
        self.out = nn.Linear(dims, dims, bias=False)

    def rotate(self, x, first):
        half = x.shape[-1] // 2
        place = first + mx.arange(x.shape[1]).astype(mx.float32)
        angle = mx.expand_dims(place, 1) * mx.power(10000.0, -mx.arange(half).astype(mx.float32) / half)
        cos, sin = mx.cos(angle)[:, None].astype(x.dtype), mx.sin(angle)[:, None].astype(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    def __call__(self, x, past_keys, past_values):
        B, T, D = x.shape
        seen = past_keys.shape[2]
        q, k, v = mx.split(self.qkv(x).reshape(B, T, 3 * self.heads, D // self.heads), 3, axis=2)
        q, k = self.rotate(q, seen), self.rotate(k, seen)
        keys = mx.concatenate([past_keys.swapaxes(1, 2), k], axis=1)
        values = mx.concatenate([past_values.swapaxes(1, 2), v], axis=1)
        steps = []
        for t in range(T):
            near_keys, near_values = keys[:, : seen + t + 1], values[:, : seen + t + 1]
            scores = (near_keys * q[:, t : t + 1]).sum(axis=-1, keepdims=True) * (D // self.heads) ** -0.5
            weights = mx.softmax(scores, axis=1)
            steps.append((weights * near_values).sum(axis=1))
        return self.out(mx.stack(steps, axis=1).reshape(B, T, D))


def build(weights):
    arrays = {f"qkv.{part}": np.concatenate([weights[f"{name}_proj.{part}"] for name in "qkv"]) for part in ("weight", "bias")}
    return fill(StepAttention(), arrays | {"out.weight": weights["o_proj.weight"]})
