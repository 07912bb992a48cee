import math

import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class TimestepEmbedder(nn.Module):
    def __init__(self, frequency=32, dims=24):
        super().__init__()
        self.frequency = frequency
        self.fc1 = nn.Linear(frequency, dims)
        self.fc2 = nn.Linear(dims, dims)

    def __call__(self, t):
        half = self.frequency // 2
        freqs = mx.exp(-math.log(10000.0) * mx.arange(half) / half)
        args = mx.outer(t.astype(mx.float32) * 1000.0, freqs)
        emb = mx.concatenate([mx.cos(args), mx.sin(args)], axis=-1)
        emb = emb.astype(self.fc1.weight.dtype)
        return self.fc2(nn.silu(self.fc1(emb)))


def build(weights):
    return fill(TimestepEmbedder(), linears(weights, {"fc1": "linear_1", "fc2": "linear_2"}))
