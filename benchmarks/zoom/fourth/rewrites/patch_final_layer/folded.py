import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


def waves(count, size):
    rates = np.exp(-np.log(10000.0) * np.arange(size // 2) / (size // 2))
    phases = np.arange(count)[:, None] * rates[None, :]
    return np.hstack([np.sin(phases), np.cos(phases)])


class Patches(nn.Module):
    """Patches are cut with unfold and put back with fold."""

    def __init__(self, c=4, p=2, d=32):
        super().__init__()
        self.p = p
        self.embed = nn.Linear(c * p * p, d)
        self.shift, self.scale = nn.Linear(d, d), nn.Linear(d, d)
        self.last = nn.Linear(d, p * p * c)

    def places(self, height, width, like):
        half = like.shape[-1] // 2
        by_row = np.repeat(waves(height, half), width, axis=0)
        by_column = np.tile(waves(width, half), (height, 1))
        table = np.concatenate([by_row, by_column], axis=1)
        return torch.from_numpy(table).to(like.dtype)

    def forward(self, z, cond):
        _, _, height, width = z.shape
        tokens = F.unfold(z, self.p, stride=self.p).mT
        tokens = self.embed(tokens)
        tokens = tokens + self.places(height // self.p, width // self.p, tokens)
        cond = F.silu(cond).unsqueeze(1)
        tokens = F.layer_norm(tokens, tokens.shape[-1:], eps=1e-6)
        tokens = torch.addcmul(self.shift(cond), tokens, self.scale(cond) + 1)
        pixels = self.last(tokens).unflatten(-1, (self.p * self.p, -1))
        columns = pixels.transpose(2, 3).flatten(2).mT
        return F.fold(columns, (height, width), self.p, stride=self.p)


def build(weights):
    arrays = linears(weights, {"last": "linear"})
    arrays |= {"embed.weight": weights["proj.weight"].reshape(32, -1), "embed.bias": weights["proj.bias"]}
    for part in ("weight", "bias"):
        arrays[f"shift.{part}"], arrays[f"scale.{part}"] = np.split(weights[f"adaLN_modulation.{part}"], 2)
    return fill(Patches(), arrays)
