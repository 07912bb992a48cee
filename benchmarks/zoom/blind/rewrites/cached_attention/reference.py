import torch
import torch.nn as nn


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class CachedAttention(nn.Module):
    """A few new tokens after those whose keys and values are kept."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, past_k, past_v):
        batch, new, _ = x.shape
        past = past_k.shape[2]
        q = self.q_proj(x).view(batch, new, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, new, self.heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, new, self.heads, self.size).transpose(1, 2)
        positions = torch.arange(past, past + new, dtype=torch.float32)
        angles = positions[:, None] * 10000 ** (-torch.arange(self.size // 2, dtype=torch.float32) / (self.size // 2))
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k = torch.cat([past_k, k], dim=2)
        v = torch.cat([past_v, v], dim=2)
        scores = q @ k.transpose(-1, -2) / self.size**0.5
        hidden = torch.ones(new, past + new, dtype=torch.bool).triu(past + 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


def build():
    return CachedAttention()


def inputs():
    return torch.randn(2, 3, 24), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
