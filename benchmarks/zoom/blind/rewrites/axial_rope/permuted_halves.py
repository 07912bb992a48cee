import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


def rotate_half(x):
    middle = x.shape[-1] // 2
    return torch.cat((-x[..., middle:], x[..., :middle]), dim=-1)


class HalvedHeads(nn.Module):
    """The weights of queries and keys were reordered so that pairs lie half a head apart."""

    def __init__(self, embed_dim=24, heads=3, rows=3, columns=5, stride=14):
        super().__init__()
        self.heads, self.rows, self.columns, self.stride = heads, rows, columns, stride
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(3))
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        b, n, d = x.shape
        shape = (b, n, self.heads, d // self.heads)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        quarter = shape[-1] // 4
        speed = torch.pow(1000.0, -torch.arange(quarter, dtype=torch.float32) / quarter)
        y, x_ = torch.meshgrid(torch.arange(self.rows), torch.arange(self.columns), indexing="ij")
        where = torch.stack((y.flatten(), x_.flatten()), dim=1).float() * self.stride
        angle = torch.einsum("na,f->naf", where, speed).reshape(n, -1)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        q = (q * cos + rotate_half(q) * sin).to(x.dtype)
        k = (k * cos + rotate_half(k) * sin).to(x.dtype)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(out.transpose(1, 2).reshape(b, n, d))


def build(weights):
    order = np.concatenate([head * 8 + np.r_[0:8:2, 1:8:2] for head in range(3)])
    arrays = {"out_proj.weight": weights["proj.weight"], "out_proj.bias": weights["proj.bias"]}
    for part in ("weight", "bias"):
        q, k, v = np.split(weights[f"qkv.{part}"], 3)
        arrays |= {f"q_proj.{part}": q[order], f"k_proj.{part}": k[order], f"v_proj.{part}": v}
    return fill(HalvedHeads(), arrays)
