import numpy as np
import torch
import torch.nn as nn
from loading import fill


def rms(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


class FusedAttention(nn.Module):
    def __init__(self, dim=32, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(dim, 3 * dim)
        self.q_scale = nn.Parameter(torch.ones(dim // n_head))
        self.k_scale = nn.Parameter(torch.ones(dim // n_head))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.n_head, C // self.n_head).unbind(2)
        q = rms(q, self.q_scale)
        k = rms(k, self.k_scale)
        logits = torch.einsum("bihd,bjhd->bhij", q, k)
        logits = logits * (C // self.n_head) ** -0.5
        probs = logits.softmax(-1)
        y = torch.einsum("bhij,bjhd->bihd", probs, v)
        return self.proj(y.reshape(B, N, C))


def build(weights):
    return fill(FusedAttention(), {
        "qkv.weight": np.concatenate([weights[f"to_{n}.weight"] for n in "qkv"]),
        "qkv.bias": np.concatenate([weights[f"to_{n}.bias"] for n in "qkv"]),
        "q_scale": weights["norm_q.weight"], "k_scale": weights["norm_k.weight"],
        "proj.weight": weights["to_out.weight"], "proj.bias": weights["to_out.bias"],
    })  # fmt: skip
