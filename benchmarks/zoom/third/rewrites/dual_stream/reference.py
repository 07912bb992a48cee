import torch
import torch.nn as nn
import torch.nn.functional as F


class DualStream(nn.Module):
    """Two streams with norms of their own, one attention over both."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads = heads
        self.a_qkv, self.b_qkv = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.a_norm, self.b_norm = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.a_out, self.b_out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        batch, tokens, _ = x.shape
        return x.view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

    def forward(self, a, b):
        qa, ka, va = self.split(self.a_qkv(self.a_norm(a)))
        qb, kb, vb = self.split(self.b_qkv(self.b_norm(b)))
        q, k, v = torch.cat([qa, qb], 2), torch.cat([ka, kb], 2), torch.cat([va, vb], 2)
        mixed = F.scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(1, 2).flatten(2)
        left, right = mixed[:, : a.shape[1]], mixed[:, a.shape[1] :]
        return torch.cat([a + self.a_out(left), b + self.b_out(right)], 1)


def build():
    return DualStream()


def inputs():
    return torch.randn(2, 5, 24), torch.randn(2, 7, 24)
