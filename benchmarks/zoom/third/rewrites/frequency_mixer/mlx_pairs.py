import mlx.core as mx
import mlx.nn as nn
from loading import fill


class Mixer(nn.Module):
    def __init__(self, dims=16, tokens=6):
        super().__init__()
        self.dims = dims
        self.over_tokens, self.over_channels = nn.Linear(tokens, tokens), nn.Linear(dims, dims)
        self.gain = mx.zeros((dims,))

    def __call__(self, x, positions):
        rates = mx.exp(-mx.log(mx.array(100.0)) * mx.arange(0, self.dims, 2) / self.dims)
        angles = mx.expand_dims(positions.astype(mx.float32), 1) * rates
        cos, sin = mx.cos(angles), mx.sin(angles)
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        x = mx.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape).astype(x.dtype)
        x = x + self.over_tokens(x.swapaxes(1, 2)).swapaxes(1, 2)
        y = mx.square(mx.maximum(self.over_channels(x), 0))
        return x + y * self.gain


def build(weights):
    return fill(Mixer(), dict(weights))
