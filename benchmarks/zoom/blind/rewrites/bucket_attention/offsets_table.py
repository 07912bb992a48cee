import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class EncoderAttention(nn.Module):
    """The bias is looked up once for each offset, then spread over the diagonals."""

    def __init__(self, dim=18, n_head=3, n_bucket=8, max_distance=16):
        super().__init__()
        self.n_head, self.n_bucket, self.max_distance = n_head, n_bucket, max_distance
        self.scale = nn.Parameter(torch.ones(dim))
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.table = nn.Parameter(torch.zeros(n_bucket, n_head))

    def diagonals(self, n):
        offset = torch.arange(1 - n, n)
        half = self.n_bucket // 2
        linear = half // 2
        size = offset.abs()
        ratio = torch.log(size.clamp(min=linear) / linear) / math.log(self.max_distance / linear)
        far = torch.clamp(linear + torch.floor(ratio * (half - linear)).long(), max=half - 1)
        bucket = torch.where(size < linear, size, far)
        bucket = torch.where(offset > 0, bucket + half, bucket)
        return F.embedding(bucket, self.table).t()

    def forward(self, x):
        b, n, d = x.shape
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        q, k, v = self.qkv(y).view(b, n, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        rows = torch.arange(n)
        bias = self.diagonals(n)[:, rows[None, :] - rows[:, None] + n - 1]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.unsqueeze(0), scale=1.0)
        return self.out(y.transpose(1, 2).reshape(b, n, d)) + x


def build(weights):
    fused = np.concatenate([weights[f"{name}.weight"] for name in "qkv"])
    return fill(EncoderAttention(), {"scale": weights["norm.weight"], "qkv.weight": fused, "out.weight": weights["o.weight"], "table": weights["bias.weight"]})
