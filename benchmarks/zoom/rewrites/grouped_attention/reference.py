import torch
import torch.nn as nn
import torch.nn.functional as F


class GroupedAttention(nn.Module):
    def __init__(self, width=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q_proj = nn.Linear(width, width, bias=True)
        self.k_proj = nn.Linear(width, groups * self.size, bias=True)
        self.v_proj = nn.Linear(width, groups * self.size, bias=True)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q = self.q_proj(x).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        k = k[:, :, None].expand(-1, -1, self.heads // self.groups, -1, -1).reshape(batch, self.heads, tokens, self.size)
        v = v[:, :, None].expand(-1, -1, self.heads // self.groups, -1, -1).reshape(batch, self.heads, tokens, self.size)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, -1))


def build():
    return GroupedAttention()


def inputs():
    return (torch.randn(2, 8, 32),)
