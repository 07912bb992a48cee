import math

import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


def timestep_embedding(t, dim, max_period=10000, time_factor=1000.0):
    half = dim // 2
    freqs = mx.arange(half).astype(mx.float32) / half
    freqs = mx.exp(freqs * (-math.log(max_period)))
    t = t.astype(mx.float32) * time_factor
    x = t[:, None] * freqs[None]
    return mx.concatenate([mx.cos(x), mx.sin(x)], axis=-1)


class MLPEmbedder(nn.Module):
    def __init__(self, in_dim, hidden_dim):
        super().__init__()
        self.in_layer, self.out_layer = nn.Linear(in_dim, hidden_dim), nn.Linear(hidden_dim, hidden_dim)

    def __call__(self, x):
        return self.out_layer(nn.silu(self.in_layer(x)))


class VectorEmbedder(nn.Module):
    def __init__(self, hidden=20, text=10):
        super().__init__()
        self.time_in, self.guidance_in, self.vector_in = MLPEmbedder(16, hidden), MLPEmbedder(16, hidden), MLPEmbedder(text, hidden)

    def __call__(self, timesteps, guidance, y):
        vec = self.time_in(timestep_embedding(timesteps, 16).astype(y.dtype))
        vec = vec + self.guidance_in(timestep_embedding(guidance, 16).astype(y.dtype))
        return vec + self.vector_in(y)


def build(weights):
    names = {"time_in": "time", "guidance_in": "guidance", "vector_in": "text"}
    return fill(VectorEmbedder(), linears(weights, {f"{new}.{end}_layer": f"{old}_{end}" for new, old in names.items() for end in ("in", "out")}))
