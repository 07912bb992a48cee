import torch
import torch.nn as nn
import torch.nn.functional as F


class LinearAttention(nn.Module):
    """Attention without a softmax: keys and values are summed up first."""

    def __init__(self, width=20, heads=2):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, x):
        batch, tokens, width = x.shape
        h = self.norm(x)
        q, k, v = (layer(h).view(batch, tokens, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        memory = k.transpose(-1, -2) @ v
        total = (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        mixed = (q @ memory) / (total + 1e-6)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


def build():
    return LinearAttention()


def inputs():
    return (torch.randn(2, 9, 20),)
