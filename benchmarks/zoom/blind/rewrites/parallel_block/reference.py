import torch
import torch.nn as nn
import torch.nn.functional as F


class ParallelBlock(nn.Module):
    """Attention and feed-forward side by side, from one layer and into one layer."""

    def __init__(self, width=24, heads=3, inner=36):
        super().__init__()
        self.heads, self.size, self.inner = heads, width // heads, inner
        self.modulation = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.linear_in = nn.Linear(width, 3 * width + inner)
        self.norm_q = nn.RMSNorm(self.size, eps=1e-6)
        self.norm_k = nn.RMSNorm(self.size, eps=1e-6)
        self.linear_out = nn.Linear(width + inner, width)

    def forward(self, x, conditioning):
        batch, tokens, width = x.shape
        shift, scale, gate = self.modulation(F.silu(conditioning))[:, None].chunk(3, dim=-1)
        hidden = self.norm(x) * (1 + scale) + shift
        qkv, inner = self.linear_in(hidden).split([3 * width, self.inner], dim=-1)
        q, k, v = qkv.view(batch, tokens, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v)
        mixed = mixed.transpose(1, 2).flatten(2)
        out = self.linear_out(torch.cat([mixed, F.gelu(inner, approximate="tanh")], dim=-1))
        return x + gate * out


def build():
    return ParallelBlock()


def inputs():
    return torch.randn(2, 7, 24), torch.randn(2, 24)
