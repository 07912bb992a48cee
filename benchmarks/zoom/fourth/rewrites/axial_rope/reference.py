import torch
import torch.nn as nn
import torch.nn.functional as F


def axial_frequencies(ids, axes, theta):
    """One complex number for each token and pair of a head's dimensions."""
    parts = []
    for axis, size in enumerate(axes):
        frequencies = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
        angles = torch.outer(ids[:, axis].float(), frequencies)
        parts.append(torch.polar(torch.ones_like(angles), angles))
    return torch.cat(parts, dim=-1)


def apply_rotary(x, frequencies):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = torch.view_as_real(pairs * frequencies[:, None])
    return turned.flatten(3).type_as(x)


class AxialRopeAttention(nn.Module):
    """Attention over tokens with a frame, a row and a column."""

    def __init__(self, dim=32, heads=2, axes=(4, 6, 6), theta=10000.0):
        super().__init__()
        self.heads, self.axes, self.theta = heads, axes, theta
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, ids):
        frequencies = axial_frequencies(ids, self.axes, self.theta)
        query = self.to_q(x).unflatten(-1, (self.heads, -1))
        key = self.to_k(x).unflatten(-1, (self.heads, -1))
        value = self.to_v(x).unflatten(-1, (self.heads, -1))
        query = apply_rotary(query, frequencies)
        key = apply_rotary(key, frequencies)
        attended = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        return self.to_out(attended.transpose(1, 2).flatten(2))


def build():
    return AxialRopeAttention()


def inputs():
    frames, rows, columns = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(4), indexing="ij")
    ids = torch.stack([frames, rows, columns], dim=-1).reshape(-1, 3)
    return torch.randn(2, 24, 32), ids
