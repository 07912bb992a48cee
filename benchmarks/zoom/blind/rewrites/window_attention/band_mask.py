import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class LocalSelfAttention(nn.Module):
    def __init__(self, d_model=32, n_q=4, n_kv=2, span=3):
        super().__init__()
        self.n_q, self.n_kv, self.d_head, self.span = n_q, n_kv, d_model // n_q, span
        self.wqkv = nn.Linear(d_model, (n_q + 2 * n_kv) * self.d_head, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def rope(self, x):
        half = self.d_head // 2
        inverse = torch.exp(-torch.arange(half).float() * (2 / self.d_head * np.log(10000.0)))
        theta = torch.outer(torch.arange(x.shape[-2]).float(), inverse)
        c, s = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * c - b * s, b * c + a * s), dim=-1)

    def forward(self, x):
        B, T, _ = x.shape
        heads = self.wqkv(x).view(B, T, self.n_q + 2 * self.n_kv, self.d_head).transpose(1, 2)
        q, k, v = heads.split((self.n_q, self.n_kv, self.n_kv), dim=1)
        q, k = self.rope(q), self.rope(k)
        band = torch.ones(T, T, dtype=torch.bool).tril().triu(1 - self.span)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=band, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(B, T, -1))


def build(weights):
    fused = np.concatenate([weights[f"{name}_proj.weight"] for name in "qkv"])
    return fill(LocalSelfAttention(), {"wqkv.weight": fused, "wo.weight": weights["o_proj.weight"]})
