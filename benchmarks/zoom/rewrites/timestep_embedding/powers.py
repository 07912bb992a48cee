import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Embedder(nn.Module):
    def __init__(self, channels=32, width=24):
        super().__init__()
        self.half = channels // 2
        self.inner = nn.Linear(channels, width)
        self.outer = nn.Linear(width, width)

    def forward(self, t):
        periods = torch.pow(10000.0, torch.arange(self.half) / self.half)
        turns = torch.polar(torch.ones(len(t), self.half), (t * 1000).float()[:, None] / periods)
        features = torch.cat([turns.real, turns.imag], 1)
        y = self.inner(features.to(self.inner.weight.dtype))
        y = F.silu(y)
        return self.outer(y)


def build(weights):
    return fill(Embedder(), linears(weights, {"inner": "linear_1", "outer": "linear_2"}))
