import numpy as np
import torch
import torch.nn as nn
from loading import fill, linears


class TimeEmbed(nn.Module):
    def __init__(self, freq_dim=32, dim=24):
        super().__init__()
        self.freq_dim = freq_dim
        self.mlp = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        half = self.freq_dim // 2
        frequencies = np.exp(-np.log(10000.0) * np.arange(half) / half)
        angles = 1000 * t.float().numpy()[:, None] * frequencies[None]
        table = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
        features = torch.from_numpy(table.astype(np.float32))
        return self.mlp(features.to(self.mlp[0].weight.dtype))


def build(weights):
    return fill(TimeEmbed(), linears(weights, {"mlp.0": "linear_1", "mlp.2": "linear_2"}))
