import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears

PARTS = ("attn_shift", "attn_scale", "attn_gate", "mlp_shift", "mlp_scale", "mlp_gate")


class Block(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.dim = dim
        self.parts = nn.ModuleDict({part: nn.Linear(dim, dim) for part in PARTS})
        self.mix = nn.Linear(dim, dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def modulated(self, x, shift, scale):
        x = F.layer_norm(x, (self.dim,), eps=1e-6)
        return torch.addcmul(shift, x, scale + 1)

    def forward(self, x, c):
        c = F.silu(c)[:, None]
        m = {name: layer(c) for name, layer in self.parts.items()}
        residual = x
        y = self.modulated(x, m["attn_shift"], m["attn_scale"])
        y = self.mix(y)
        x = residual + y * m["attn_gate"]
        residual = x
        y = self.modulated(x, m["mlp_shift"], m["mlp_scale"])
        y = self.fc2(F.gelu(self.fc1(y)))
        return residual + y * m["mlp_gate"]


def build(weights):
    rows = zip(PARTS, np.split(weights["modulation.weight"], 6), np.split(weights["modulation.bias"], 6))
    arrays = linears(weights, {"mix": "mixer", "fc1": "up", "fc2": "down"})
    for part, weight, bias in rows:
        arrays |= {f"parts.{part}.weight": weight, f"parts.{part}.bias": bias}
    return fill(Block(), arrays)
