import mlx.core as mx
import mlx.nn as nn
from loading import fill


class Head(nn.Module):
    def __init__(self, dims=32, out=20):
        super().__init__()
        self.gain = mx.ones(dims)
        self.output = mx.zeros((out, dims))

    def __call__(self, x):
        wide = x.astype(mx.float32)
        power = mx.square(wide).sum(axis=-1, keepdims=True) / wide.shape[-1]
        wide = wide / mx.sqrt(power + 1e-6)
        narrow = wide.astype(x.dtype) * self.gain
        return narrow @ self.output.T


def build(weights):
    return fill(Head(), {"gain": weights["weight"], "output": weights["head.weight"]})
