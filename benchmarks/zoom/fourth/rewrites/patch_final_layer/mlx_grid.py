import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill, linears


def sincos_1d(size, positions):
    omega = 1.0 / 10000.0 ** (np.arange(size // 2) / (size / 2.0))
    out = np.einsum("m,d->md", positions.reshape(-1), omega)
    return mx.array(np.concatenate([np.sin(out), np.cos(out)], axis=1).astype(np.float32))


def sincos_2d(size, height, width):
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    by_row, by_column = sincos_1d(size // 2, rows), sincos_1d(size // 2, columns)
    return mx.concatenate([by_row, by_column], axis=1)


class FinalLayer(nn.Module):
    def __init__(self, dims, outputs):
        super().__init__()
        self.norm = nn.LayerNorm(dims, eps=1e-6, affine=False)
        self.modulation = nn.Linear(dims, 2 * dims)
        self.linear = nn.Linear(dims, outputs)

    def __call__(self, x, c):
        shift, scale = mx.split(self.modulation(nn.silu(c)), 2, axis=-1)
        x = self.norm(x) * (1 + scale[:, None]) + shift[:, None]
        return self.linear(x)


class Model(nn.Module):
    def __init__(self, channels=4, patch=2, dims=32):
        super().__init__()
        self.patch, self.dims = patch, dims
        self.x_embedder = nn.Conv2d(channels, dims, kernel_size=patch, stride=patch)
        self.final = FinalLayer(dims, patch * patch * channels)

    def __call__(self, z, c):
        x = self.x_embedder(z.transpose(0, 2, 3, 1))
        B, H, W, D = x.shape
        table = sincos_2d(self.dims, H, W)
        x = x.reshape(B, H * W, D) + table.astype(x.dtype)
        x = self.final(x, c)
        x = x.reshape(B, H, W, self.patch, self.patch, -1)
        x = x.transpose(0, 5, 1, 3, 2, 4)
        return x.reshape(B, -1, H * self.patch, W * self.patch)


def build(weights):
    arrays = linears(weights, {"final.modulation": "adaLN_modulation", "final.linear": "linear"})
    arrays["x_embedder.weight"] = weights["proj.weight"].transpose(0, 2, 3, 1)
    return fill(Model(), arrays | {"x_embedder.bias": weights["proj.bias"]})
