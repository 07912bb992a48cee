import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class Resampler(nn.Module):
    def __init__(self, dims=16, heads=2, num_queries=3):
        super().__init__()
        self.heads = heads
        self.latents = mx.zeros((num_queries, dims))
        self.q, self.kv, self.out = nn.Linear(dims, dims), nn.Linear(dims, 2 * dims), nn.Linear(dims, dims)
        self.pool = nn.Linear(dims, dims)

    def __call__(self, text, mask):
        B, L, D = text.shape
        mask = mask.astype(mx.bool_)
        q = self.q(self.latents).reshape(1, -1, self.heads, D // self.heads).transpose(0, 2, 1, 3)
        k, v = mx.split(self.kv(text), 2, axis=-1)
        k = k.reshape(B, L, self.heads, -1).transpose(0, 2, 3, 1)
        v = v.reshape(B, L, self.heads, -1).transpose(0, 2, 1, 3)
        scores = (q * (D // self.heads) ** -0.5) @ k
        weights = mx.softmax(mx.where(mask[:, None, None], scores, -1e9), axis=-1)
        latents = self.out((weights @ v).transpose(0, 2, 1, 3).reshape(B, -1, D))
        total = mx.where(mask[..., None], text, 0).sum(axis=1, keepdims=True)
        mean = self.pool(total / mask.sum(axis=1).reshape(B, 1, 1).astype(text.dtype))
        y = mx.concatenate([mean, latents], axis=1)
        return y / mx.linalg.norm(y, axis=-1, keepdims=True)


def build(weights):
    return fill(Resampler(), linears(weights, {"q": "to_q", "kv": "to_kv", "out": "to_out", "pool": "mean_proj"}) | {"latents": weights["queries"]})
