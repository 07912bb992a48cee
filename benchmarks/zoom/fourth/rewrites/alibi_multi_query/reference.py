import torch
import torch.nn as nn


class AlibiMultiQuery(nn.Module):
    """Causal attention with linear position biases and one head of keys and values for all queries."""

    def __init__(self, d_model=32, n_heads=4):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.norm = nn.LayerNorm(d_model)
        self.Wqkv = nn.Linear(d_model, d_model + 2 * self.head_dim)
        self.out_proj = nn.Linear(d_model, d_model)

    def alibi(self, length):
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.n_heads + 1) / self.n_heads)
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        return slopes[:, None, None] * distance

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.Wqkv(self.norm(x))
        query, key, value = qkv.split([width, self.head_dim, self.head_dim], dim=2)
        query = query.view(batch, length, self.n_heads, self.head_dim).transpose(1, 2)
        scores = query @ key.transpose(1, 2).unsqueeze(1) * self.head_dim**-0.5
        scores = scores + self.alibi(length).to(scores.dtype)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        context = weights @ value.unsqueeze(1)
        context = context.transpose(1, 2).reshape(batch, length, width)
        return x + self.out_proj(context)


def build():
    return AlibiMultiQuery()


def inputs():
    return (torch.randn(2, 11, 32),)
