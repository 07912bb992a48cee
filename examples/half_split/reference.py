"""Attention with a rotary embedding in PyTorch: the side that is right. It leaves its weights and input in weights.npz."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cos, sin):
    """Turns neighbouring channels as pairs: 0 with 1, 2 with 3. x: [heads, tokens, channels]"""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, cos, sin):
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(0, 1) for layer in (self.to_q, self.to_k, self.to_v)
        )
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.to_out(mixed.transpose(0, 1).flatten(1))


if __name__ == "__main__":
    torch.manual_seed(0)
    attention, x = Attention(), torch.randn(24, 64)
    angles = torch.outer(torch.arange(24.0), 1 / 10000 ** (torch.arange(8) / 8))
    with torch.no_grad():
        attention(x, angles.cos(), angles.sin())
    weights = {name: value.numpy() for name, value in attention.state_dict().items()}
    np.savez("weights.npz", _x=x, _cos=angles.cos(), _sin=angles.sin(), **weights)
