import torch
import torch.nn as nn
import torch.nn.functional as F


def rotated(x, table):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * table).flatten(-2).to(x.dtype)


class AxialRope(nn.Module):
    """Attention of a vision encoder: half of a head turns with the row, the other half with the column, in pixels."""

    def __init__(self, width=24, heads=3, grid=(3, 5), patch=14, base=1000.0):
        super().__init__()
        self.heads, self.size, self.grid, self.patch, self.base = heads, width // heads, grid, patch, base
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def table(self):
        rows, columns = self.grid
        half = self.size // 2
        frequencies = self.base ** (-torch.arange(0, half, 2, dtype=torch.float32) / half)
        position = torch.arange(rows * columns)
        row = (position // columns * self.patch).float()
        column = (position % columns * self.patch).float()
        angles = torch.cat([row[:, None] * frequencies, column[:, None] * frequencies], dim=-1)
        return torch.polar(torch.ones_like(angles), angles)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        table = self.table()
        q = rotated(q, table)
        k = rotated(k, table)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))


def build():
    return AxialRope()


def inputs():
    return (torch.randn(2, 15, 24),)
