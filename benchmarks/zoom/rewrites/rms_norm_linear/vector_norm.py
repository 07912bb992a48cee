import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class UnitNormHead(nn.Module):
    """A unit vector, then its length: how video autoencoders write the same norm. The gain is folded into the head."""

    def __init__(self, dim=32, out=20):
        super().__init__()
        self.dim = dim
        self.folded = nn.Linear(dim, out, bias=False)

    def forward(self, x):
        unit = F.normalize(x.float(), dim=-1, eps=1e-12)
        scaled = unit * math.sqrt(self.dim)
        return self.folded(scaled.to(x.dtype))


def build(weights):
    return fill(UnitNormHead(), {"folded.weight": weights["head.weight"] * weights["weight"]})
