import math

import torch
import torch.nn as nn
from loading import fill, linears


class RopeTable(nn.Module):
    """Cosine and sine of every token's angles, each angle standing for two neighbours."""

    def __init__(self, axes=(4, 6, 6), base=10000.0):
        super().__init__()
        self.axes, self.base = axes, base

    def forward(self, ids):
        columns = []
        for place, dim in enumerate(self.axes):
            exponent = -math.log(self.base) * torch.arange(dim // 2, dtype=torch.float32) * 2 / dim
            columns.append(ids[:, place, None] * exponent.exp())
        angles = torch.cat(columns, dim=1)
        angles = angles.repeat_interleave(2, dim=1)
        return angles.cos(), angles.sin()


def quarter_turn(x):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((-odd, even), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width=32, n_heads=2):
        super().__init__()
        self.n_heads = n_heads
        self.rope = RopeTable()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width) for _ in range(4))

    def turn(self, x, cos, sin):
        wide = x.float()
        return (wide * cos + quarter_turn(wide) * sin).to(x.dtype)

    def forward(self, x, ids):
        b, n, d = x.shape
        cos, sin = self.rope(ids)
        q, k, v = (w(x).view(b, n, self.n_heads, -1).permute(0, 2, 1, 3) for w in (self.wq, self.wk, self.wv))
        q, k = self.turn(q, cos, sin), self.turn(k, cos, sin)
        logits = torch.matmul(q, k.transpose(-1, -2)).div(math.sqrt(d // self.n_heads))
        y = torch.matmul(logits.softmax(-1), v)
        return self.wo(y.permute(0, 2, 1, 3).reshape(b, n, d))


def build(weights):
    return fill(Attention(), linears(weights, {"wq": "to_q", "wk": "to_k", "wv": "to_v", "wo": "to_out"}))
