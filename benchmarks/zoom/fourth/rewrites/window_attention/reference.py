import torch
import torch.nn as nn


def relative_index(size):
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
    apart = grid[:, :, None] - grid[:, None, :] + size - 1
    return apart[0] * (2 * size - 1) + apart[1]


def shift_mask(height, width, window, shift):
    regions = torch.zeros(height, width)
    count = 0
    for rows in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
        for columns in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
            regions[rows, columns] = count
            count += 1
    parts = regions.view(height // window, window, width // window, window).permute(0, 2, 1, 3).reshape(-1, window**2)
    return torch.where(parts[:, None, :] == parts[:, :, None], 0.0, -100.0)


class ShiftedWindowAttention(nn.Module):
    """Attention within windows of a picture that was rolled by half a window."""

    def __init__(self, dim=24, heads=3, window=4, shift=2, height=8, width=12):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        self.register_buffer("index", relative_index(window), persistent=False)
        self.register_buffer("mask", shift_mask(height, width, window, shift), persistent=False)

    def forward(self, x):
        batch, height, width, dim = x.shape
        size = self.window
        h = self.norm(x)
        h = torch.roll(h, shifts=(-self.shift, -self.shift), dims=(1, 2))
        h = h.view(batch, height // size, size, width // size, size, dim)
        h = h.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, dim)

        qkv = self.qkv(h).reshape(h.shape[0], size * size, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q = q * (dim // self.heads) ** -0.5
        scores = q @ k.transpose(-2, -1)
        bias = self.bias_table[self.index].permute(2, 0, 1)
        scores = scores + bias
        scores = scores.view(batch, -1, self.heads, size * size, size * size)
        scores = scores + self.mask[None, :, None]
        weights = scores.flatten(0, 1).softmax(dim=-1)
        h = (weights @ v).transpose(1, 2).reshape(-1, size * size, dim)
        h = self.proj(h)

        h = h.view(batch, height // size, width // size, size, size, dim)
        h = h.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, dim)
        h = torch.roll(h, shifts=(self.shift, self.shift), dims=(1, 2))
        return x + h


def build():
    return ShiftedWindowAttention()


def inputs():
    return (torch.randn(2, 8, 12, 24),)
