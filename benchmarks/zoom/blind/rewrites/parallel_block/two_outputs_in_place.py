import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class TwoOutputs(nn.Module):
    """The last layer as two, one for each branch, added; sums are made in place."""

    def __init__(self, d=24, h=3, m=36):
        super().__init__()
        self.h = h
        self.mod_w, self.mod_b = nn.Parameter(torch.zeros(3 * d, d)), nn.Parameter(torch.zeros(3 * d))
        self.qkv_w, self.qkv_b = nn.Parameter(torch.zeros(3 * d, d)), nn.Parameter(torch.zeros(3 * d))
        self.up_w, self.up_b = nn.Parameter(torch.zeros(m, d)), nn.Parameter(torch.zeros(m))
        self.qn, self.kn = nn.Parameter(torch.ones(d // h)), nn.Parameter(torch.ones(d // h))
        self.attn_w, self.down_w, self.out_b = nn.Parameter(torch.zeros(d, d)), nn.Parameter(torch.zeros(d, m)), nn.Parameter(torch.zeros(d))

    def forward(self, x, c):
        b, n, d = x.shape
        shift, scale, gate = F.linear(c * c.sigmoid(), self.mod_w, self.mod_b).view(b, 3, 1, d).unbind(1)
        y = F.layer_norm(x, (d,), eps=1e-6)
        y.mul_(scale + 1).add_(shift)
        qkv = F.linear(y, self.qkv_w, self.qkv_b).view(b, n, 3 * self.h, -1)
        q, k, v = qkv.split(self.h, dim=2)
        q = F.rms_norm(q, q.shape[-1:], self.qn, 1e-6).permute(0, 2, 1, 3)
        k = F.rms_norm(k, k.shape[-1:], self.kn, 1e-6).permute(0, 2, 3, 1)
        scores = (q @ k).div_(math.sqrt(d // self.h))
        mixed = (scores.softmax(-1) @ v.permute(0, 2, 1, 3)).permute(0, 2, 1, 3).reshape(b, n, d)
        up = F.linear(y, self.up_w, self.up_b)
        up = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        out = F.linear(up, self.down_w, self.out_b)
        out += F.linear(mixed, self.attn_w)
        out *= gate
        out += x
        return out


def build(weights):
    return fill(TwoOutputs(), {
        "mod_w": weights["modulation.weight"], "mod_b": weights["modulation.bias"],
        "qkv_w": weights["linear_in.weight"][:72], "qkv_b": weights["linear_in.bias"][:72],
        "up_w": weights["linear_in.weight"][72:], "up_b": weights["linear_in.bias"][72:], "qn": weights["norm_q.weight"], "kn": weights["norm_k.weight"],
        "attn_w": weights["linear_out.weight"][:, :24], "down_w": weights["linear_out.weight"][:, 24:], "out_b": weights["linear_out.bias"],
    })  # fmt: skip
