import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class StackedEmbedder(nn.Module):
    """Time and guidance go together through a batch of two matrices; the last layers of all three are one."""

    def __init__(self, d=20, s=16, p=10):
        super().__init__()
        self.first, self.first_bias = nn.Parameter(torch.zeros(2, s, d)), nn.Parameter(torch.zeros(2, 1, d))
        self.text = nn.Linear(p, d)
        self.last = nn.Linear(3 * d, d)

    def forward(self, time, guidance, pooled):
        half = self.first.shape[1] // 2
        frequencies = torch.logspace(0, -4, half + 1)[:half]
        scalars = torch.stack([time, guidance])
        angles = torch.einsum("sb,f->sbf", scalars * 1000, frequencies)
        waves = torch.cat([torch.cos(angles), torch.sin(angles)], dim=2).to(pooled.dtype)
        hidden = torch.baddbmm(self.first_bias, waves, self.first)
        both = [hidden[0], hidden[1], self.text(pooled)]
        return self.last(F.silu(torch.cat(both, dim=1)))


def build(weights):
    return fill(StackedEmbedder(), {
        "first": np.stack([weights[f"{name}_in.weight"].T for name in ("time", "guidance")]),
        "first_bias": np.stack([weights[f"{name}_in.bias"][None] for name in ("time", "guidance")]),
        "text.weight": weights["text_in.weight"], "text.bias": weights["text_in.bias"],
        "last.weight": np.concatenate([weights[f"{name}_out.weight"] for name in ("time", "guidance", "text")], axis=1),
        "last.bias": sum(weights[f"{name}_out.bias"] for name in ("time", "guidance", "text")),
    })  # fmt: skip
