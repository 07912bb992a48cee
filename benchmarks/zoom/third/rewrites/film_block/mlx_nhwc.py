import mlx.core as mx
import mlx.nn as nn
from loading import fill


class FiLM(nn.Module):
    def __init__(self, channels=8, dims=10):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels, eps=1e-6, pytorch_compatible=True)
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.film = nn.Linear(dims, 2 * channels)
        self.mix = nn.Conv2d(channels, channels, kernel_size=1)

    def __call__(self, x, c):
        y = x.transpose(0, 2, 3, 1)
        h = self.conv(nn.silu(self.norm(y)))
        params = self.film(nn.silu(c))[:, None, None, :]
        half = params.shape[-1] // 2
        h = h + h * params[..., :half] + params[..., half:]
        h = h * 0.5 * (1 + mx.erf(h / 2**0.5))
        return (y + self.mix(h)).transpose(0, 3, 1, 2)


def build(weights):
    arrays = {
        name: weights[name]
        for name in ("norm.weight", "norm.bias", "film.weight", "film.bias", "conv.bias", "mix.bias")
    }
    arrays |= {f"{name}.weight": weights[f"{name}.weight"].transpose(0, 2, 3, 1) for name in ("conv", "mix")}
    return fill(FiLM(), arrays)
