import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class OutputLayer(nn.Module):
    def __init__(self, dims=24, channels=3, patch=2, rows=3):
        super().__init__()
        self.channels, self.patch, self.rows = channels, patch, rows
        self.norm = nn.LayerNorm(dims, eps=1e-6, affine=False)
        self.adaln = nn.Linear(dims, 2 * dims)
        self.to_pixels = nn.Linear(dims, patch * patch * channels)

    def __call__(self, x, t):
        emb = self.adaln(nn.silu(t))
        half = emb.shape[-1] // 2
        scale, shift = emb[:, None, :half], emb[:, None, half:]
        y = self.norm(x) * (scale + 1) + shift
        y = self.to_pixels(y)
        B, N, _ = y.shape
        columns = N // self.rows
        y = y.reshape(B, self.rows, columns, self.channels, self.patch, self.patch)
        lines = [y[:, :, :, :, i].transpose(0, 3, 1, 2, 4).reshape(B, self.channels, self.rows, 1, -1) for i in range(self.patch)]
        return mx.concatenate(lines, axis=3).reshape(B, self.channels, self.rows * self.patch, -1)


def build(weights):
    return fill(OutputLayer(), linears(weights, {"adaln": "ada", "to_pixels": "proj"}))
