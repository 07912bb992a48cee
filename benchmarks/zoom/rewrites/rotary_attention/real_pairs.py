import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


def rotate(x, cos, sin):
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    turned = torch.empty(x.shape, dtype=torch.float32)
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, d_model=48, n_heads=3):
        super().__init__()
        self.n_heads = n_heads
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.k = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Linear(d_model, d_model, bias=False)
        self.o = nn.Linear(d_model, d_model)

    def forward(self, x, angles):
        b, n, d = x.shape
        cos, sin = angles.cos(), angles.sin()
        q = self.q(x).view(b, n, self.n_heads, -1).transpose(1, 2)
        k = self.k(x).view(b, n, self.n_heads, -1).transpose(1, 2)
        v = self.v(x).view(b, n, self.n_heads, -1).transpose(1, 2)
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o(y.transpose(1, 2).reshape(b, n, d))


def build(weights):
    q, k, v = np.split(weights["qkv.weight"], 3)
    return fill(Attention(), {"q.weight": q, "k.weight": k, "v.weight": v, "o.weight": weights["out.weight"], "o.bias": weights["out.bias"]})
