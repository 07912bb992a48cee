import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


def slopes_for(heads):
    """Geometric, as for a power of two."""
    ratio = 2.0 ** (-8.0 / heads)
    return ratio ** torch.arange(1, heads + 1)


class FoldedMQA(nn.Module):
    """The heads' queries are stacked as further rows of one head."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.hd = heads, width // heads
        self.ln = nn.LayerNorm(width)
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * self.hd)
        self.o = nn.Linear(width, width)

    def penalty(self, length):
        back = torch.arange(length).unsqueeze(1) - torch.arange(length)
        ahead = back < 0
        rows = [torch.where(ahead, -math.inf, -slope * back) for slope in slopes_for(self.heads)]
        return torch.cat(rows, dim=0)

    def forward(self, x):
        b, n, _ = x.shape
        h = self.ln(x)
        q = self.q(h).view(b, n, self.heads, self.hd)
        rows = q.permute(0, 2, 1, 3).reshape(b, self.heads * n, self.hd)
        k, v = self.kv(h).chunk(2, dim=-1)
        logits = torch.baddbmm(self.penalty(n).to(x.dtype).expand(b, -1, -1), rows, k.mT, alpha=1 / math.sqrt(self.hd))
        mixed = torch.bmm(F.softmax(logits, -1), v)
        mixed = mixed.view(b, self.heads, n, self.hd).permute(0, 2, 1, 3).flatten(2)
        return self.o(mixed) + x


def build(weights):
    arrays = linears(weights, {"ln": "norm", "o": "out_proj"})
    for part in ("weight", "bias"):
        arrays[f"q.{part}"], arrays[f"kv.{part}"] = weights[f"Wqkv.{part}"][:32], weights[f"Wqkv.{part}"][32:]
    return fill(FoldedMQA(), arrays)
