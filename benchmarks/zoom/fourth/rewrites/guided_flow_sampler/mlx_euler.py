import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill, linears


class Transformer(nn.Module):
    def __init__(self, channels=8, dims=24, text_dims=12):
        super().__init__()
        self.x_embed = nn.Linear(channels, dims)
        self.t_embed = nn.Linear(16, dims)
        self.y_embed = nn.Linear(text_dims, dims)
        self.final = nn.Linear(dims, channels)

    def __call__(self, x, timestep, y):
        half = 8
        freqs = mx.exp(-np.log(10000) * mx.arange(half) / half)
        args = timestep[:, None] * freqs[None]
        t = mx.concatenate([mx.cos(args), mx.sin(args)], axis=-1).astype(x.dtype)
        vec = self.t_embed(t) + self.y_embed(y)
        h = self.x_embed(x) + vec[:, None]
        return self.final(nn.silu(h))


class Euler:
    def __init__(self, num_steps, shift):
        sigmas = np.linspace(1.0, 1.0 / num_steps, num_steps, dtype=np.float32)
        sigmas = shift * sigmas / (1.0 + (shift - 1.0) * sigmas)
        self.sigmas = np.concatenate([sigmas, np.zeros(1, dtype=np.float32)])

    def step(self, v, i, x):
        return x + float(self.sigmas[i + 1] - self.sigmas[i]) * v


class FlowPipeline(nn.Module):
    def __init__(self, num_steps=4, shift=3.0, guidance=4.0):
        super().__init__()
        self.num_steps, self.guidance = num_steps, guidance
        self.transformer = Transformer()
        self._scheduler = Euler(num_steps, shift)

    def __call__(self, x, positive, negative):
        dtype = positive.dtype
        x = x.astype(mx.float32)
        for i in range(self.num_steps):
            timestep = mx.full((x.shape[0],), 1000.0 * float(self._scheduler.sigmas[i]))
            pos = self.transformer(x.astype(dtype), timestep, positive).astype(mx.float32)
            neg = self.transformer(x.astype(dtype), timestep, negative).astype(mx.float32)
            v = neg + self.guidance * (pos - neg)
            v = v * mx.linalg.norm(pos, axis=-1, keepdims=True) / mx.linalg.norm(v, axis=-1, keepdims=True)
            x = self._scheduler.step(v, i, x)
        return x


def build(weights):
    names = {"x_embed": "x_in", "t_embed": "t_in", "y_embed": "c_in", "final": "out"}
    return fill(FlowPipeline(), linears(weights, {f"transformer.{a}": f"model.{b}" for a, b in names.items()}))
