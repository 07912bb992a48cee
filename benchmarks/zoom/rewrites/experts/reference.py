import torch
import torch.nn as nn
import torch.nn.functional as F


class Experts(nn.Module):
    def __init__(self, width=20, inner=16, experts=4, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.ModuleList(nn.Linear(width, inner) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(inner, width) for _ in range(experts))

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        weights, indices = probabilities.topk(self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert in range(len(self.up)):
            hidden = self.down[expert](F.relu(self.up[expert](x)))
            share = (weights * (indices == expert)).sum(-1, keepdim=True)
            out = out + share * hidden
        return out


def build():
    return Experts()


def inputs():
    return (2 * torch.randn(2, 8, 20),)
