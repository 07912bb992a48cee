import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


def standardised(x):
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    return (x - mean) / mx.sqrt(variance + 1e-6)


class DiTLayer(nn.Module):
    def __init__(self, dims=24):
        super().__init__()
        self.ada = nn.Linear(dims, 6 * dims)
        self.token_mixer = nn.Linear(dims, dims)
        self.w1 = nn.Linear(dims, 2 * dims)
        self.w2 = nn.Linear(2 * dims, dims)

    def __call__(self, x, temb):
        emb = self.ada(temb * mx.sigmoid(temb))
        emb = emb.reshape(emb.shape[0], 6, 1, -1)
        normed = standardised(x)
        normed = normed * (1 + emb[:, 1]) + emb[:, 0]
        x = x + emb[:, 2] * self.token_mixer(normed)
        normed = standardised(x)
        normed = normed * (1 + emb[:, 4]) + emb[:, 3]
        hidden = nn.gelu(self.w1(normed))
        return x + emb[:, 5] * self.w2(hidden)


def build(weights):
    return fill(DiTLayer(), linears(weights, {"ada": "modulation", "token_mixer": "mixer", "w1": "up", "w2": "down"}))
