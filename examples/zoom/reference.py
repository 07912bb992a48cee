"""A transformer block in PyTorch: the side that is right. It leaves its weights and inputs in weights.npz for the port."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cos, sin):
    """Rotary embedding over neighbouring pairs. x: [batch, heads, tokens, channels]"""
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(width, width) for _ in range(4))
        self.norm_q, self.norm_k = (nn.RMSNorm(width // heads, eps=1e-6) for _ in range(2))

    def forward(self, x, cos, sin):
        batch, tokens, width = x.shape
        q, k, v = (layer(x).view(batch, tokens, self.heads, -1).transpose(1, 2) for layer in (self.to_q, self.to_k, self.to_v))
        q, k = rotate(self.norm_q(q), cos, sin), rotate(self.norm_k(k), cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.attn = Attention(width, heads)
        self.mod = nn.Linear(width, 6 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, temb, cos, sin):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.mod(F.silu(temb))[:, None].chunk(6, -1)
        x = x + gate1 * self.attn(self.norm1(x) * (1 + scale1) + shift1, cos, sin)
        hidden = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(hidden), approximate="tanh"))


if __name__ == "__main__":
    torch.manual_seed(0)
    block, tokens = Block(), 24
    x, temb = torch.randn(2, tokens, 64), torch.randn(2, 64)
    angles = torch.outer(torch.arange(tokens).float(), 1 / 100 ** (torch.arange(8) / 8))
    with torch.no_grad():
        result = block(x, temb, angles.cos(), angles.sin())
    np.savez("weights.npz", _x=x, _temb=temb, _cos=angles.cos(), _sin=angles.sin(), **{k: v.numpy() for k, v in block.state_dict().items()})
    print("mean square", result.square().mean().item())
