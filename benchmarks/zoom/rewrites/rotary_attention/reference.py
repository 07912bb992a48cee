import torch
import torch.nn as nn
import torch.nn.functional as F


def apply_rotary(x, table):
    """Neighbouring channels are the parts of a complex number, which is turned. x: [batch, tokens, heads, channels]"""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[:, None]).flatten(3).type_as(x)


class RotaryAttention(nn.Module):
    def __init__(self, width=48, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x, angles):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        table = torch.polar(torch.ones_like(angles), angles)
        q = apply_rotary(q, table)
        k = apply_rotary(k, table)
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(mixed.transpose(1, 2).flatten(2))


def build():
    return RotaryAttention()


def inputs():
    angles = torch.outer(torch.arange(10).float(), 1 / 50 ** (torch.arange(8) / 8))
    return torch.randn(2, 10, 48), angles


KEEP_F32 = (1,)
