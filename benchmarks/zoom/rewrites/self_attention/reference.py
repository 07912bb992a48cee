import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.norm_q = nn.RMSNorm(width // heads, eps=1e-6)
        self.norm_k = nn.RMSNorm(width // heads, eps=1e-6)
        self.to_out = nn.Linear(width, width)

    def forward(self, hidden_states):
        batch, tokens, width = hidden_states.shape
        query = self.to_q(hidden_states).view(batch, tokens, self.heads, -1)
        key = self.to_k(hidden_states).view(batch, tokens, self.heads, -1)
        value = self.to_v(hidden_states).view(batch, tokens, self.heads, -1)
        query, key = self.norm_q(query), self.norm_k(key)
        mixed = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        return self.to_out(mixed.transpose(1, 2).flatten(2))


def build():
    return SelfAttention()


def inputs():
    return (torch.randn(2, 9, 32),)
