import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


def split_halves(matrix, heads):
    """Rows of a projection so that each head's even dimensions come before its odd ones."""
    per_head = matrix.reshape(heads, -1, 2, *matrix.shape[1:])
    return np.swapaxes(per_head, 1, 2).reshape(matrix.shape)


class HalfSplitRope(nn.Module):
    def __init__(self, d=32, heads=2, axes=(4, 6, 6), theta=10000.0):
        super().__init__()
        self.heads, self.axes, self.theta = heads, axes, theta
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def angles(self, ids):
        rates = [self.theta ** -(np.arange(0, n, 2) / n) for n in self.axes]
        axis = np.repeat(np.arange(3), [len(r) for r in rates])
        positions = ids[:, torch.from_numpy(axis)].float()
        return positions * torch.from_numpy(np.concatenate(rates)).float()

    def rotate(self, x, angles):
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = torch.cos(angles), torch.sin(angles)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)

    def forward(self, tokens, ids):
        b, n, d = tokens.shape
        q, k, v = self.qkv(tokens).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        angles = self.angles(ids)
        q = self.rotate(q, angles)
        k = self.rotate(k, angles)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.permute(0, 2, 1, 3).flatten(2))


def build(weights):
    arrays = {"out.weight": weights["to_out.weight"], "out.bias": weights["to_out.bias"]}
    for part in ("weight", "bias"):
        q, k = (split_halves(weights[f"to_{name}.{part}"], 2) for name in "qk")
        arrays[f"qkv.{part}"] = np.concatenate([q, k, weights[f"to_v.{part}"]])
    return fill(HalfSplitRope(), arrays)
