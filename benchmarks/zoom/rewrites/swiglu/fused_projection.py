import numpy as np
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class GatedMLP(nn.Module):
    def __init__(self, dim=24, hidden=40):
        super().__init__()
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        joined = self.gate_up(x)
        gate, up = joined.chunk(2, dim=-1)
        return self.down(up * F.silu(gate))


def build(weights):
    joined = np.concatenate([weights["gate_proj.weight"], weights["up_proj.weight"]])
    return fill(GatedMLP(), {"gate_up.weight": joined, "down.weight": weights["down_proj.weight"]})
