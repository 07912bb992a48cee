import torch
import torch.nn as nn


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class WindowAttention(nn.Module):
    """Each token sees itself and the few before it; groups of query heads share keys and values."""

    def __init__(self, width=32, heads=4, groups=2, window=3):
        super().__init__()
        self.heads, self.groups, self.size, self.window = heads, groups, width // heads, window
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q = self.q_proj(x).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, tokens, self.groups, self.size).transpose(1, 2)
        positions = torch.arange(tokens, dtype=torch.float32)
        frequencies = 10000 ** (-torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        angles = (positions[:, None] * frequencies).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
        seen = (distance >= 0) & (distance < self.window)
        scores = q @ k.transpose(-1, -2) / self.size**0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


def build():
    return WindowAttention()


def inputs():
    return (torch.randn(2, 8, 32),)
