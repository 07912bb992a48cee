import math

import numpy as np
import torch
import torch.nn as nn
from loading import fill, linears


def standardise(x):
    wide = x.float()
    var, mean = torch.var_mean(wide, dim=-1, correction=0, keepdim=True)
    return ((wide - mean) / (var + 1e-6).sqrt()).to(x.dtype)


def tanh_gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + inner.tanh())


class Modulated(nn.Module):
    """The three vectors of one sub-block, each from a linear of its own."""

    def __init__(self, d):
        super().__init__()
        self.shift, self.scale, self.gate = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def enter(self, x, cond):
        gain = self.scale(cond)[:, None]
        bias = self.shift(cond)[:, None]
        return standardise(x) * (gain + 1) + bias

    def leave(self, x, y, cond):
        return torch.addcmul(x, self.gate(cond)[:, None], y)


class Block(nn.Module):
    def __init__(self, d=32, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.mod_attn, self.mod_ff = Modulated(d), Modulated(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def attention(self, x):
        b, n, d = x.shape
        hd = d // self.n_head
        out = []
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        for head in range(self.n_head):
            cols = slice(head * hd, (head + 1) * hd)
            scores = torch.bmm(q[..., cols], k[..., cols].transpose(1, 2)) / math.sqrt(hd)
            out.append(torch.bmm(torch.softmax(scores, -1), v[..., cols]))
        return self.wo(torch.cat(out, -1))

    def forward(self, x, cond):
        cond = cond * cond.sigmoid()
        x = self.mod_attn.leave(x, self.attention(self.mod_attn.enter(x, cond)), cond)
        y = self.down(tanh_gelu(self.up(self.mod_ff.enter(x, cond))))
        return self.mod_ff.leave(x, y, cond)


def build(weights):
    arrays = linears(weights, {"wo": "proj", "up": "fc1", "down": "fc2"})
    for part in ("weight", "bias"):
        for name, piece in zip(("wq", "wk", "wv"), np.split(weights[f"qkv.{part}"], 3)):
            arrays[f"{name}.{part}"] = piece
        pieces = np.split(weights[f"adaLN.{part}"], 6)
        for place, name in enumerate(("shift", "scale", "gate")):
            arrays[f"mod_attn.{name}.{part}"] = pieces[place]
            arrays[f"mod_ff.{name}.{part}"] = pieces[place + 3]
    return fill(Block(), arrays)
