import numpy as np
import torch
import torch.nn as nn
from loading import fill, linears


def offsets(size):
    """Row of the bias table for each pair of places in a window."""
    place = torch.arange(size * size)
    rows, columns = place // size, place % size
    dy = rows[:, None] - rows[None, :] + size - 1
    dx = columns[:, None] - columns[None, :] + size - 1
    flat = dy * (2 * size - 1) + dx
    return flat


def areas(length, window, shift):
    """Number of the area that each place of a rolled side belongs to."""
    place = np.arange(length)
    return (place >= length - window).astype(int) + (place >= length - shift)


class SwinHalf(nn.Module):
    def __init__(self, dim=24, heads=3, window=4, shift=2):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.pre = nn.LayerNorm(dim)
        self.inward = nn.Linear(dim, 3 * dim)
        self.outward = nn.Linear(dim, dim)
        self.relative = nn.Embedding((2 * window - 1) ** 2, heads)

    def cut(self, x):
        b, h, w = x.shape[:3]
        s = self.window
        x = x.reshape(b, h // s, s, w // s, s, *x.shape[3:])
        return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def blocked(self, height, width):
        rows = areas(height, self.window, self.shift)
        columns = areas(width, self.window, self.shift)
        area = torch.from_numpy(rows[:, None] * 3 + columns[None, :])
        area = self.cut(area[None])[0]
        return area[:, :, None] != area[:, None, :]

    def forward(self, image):
        b, height, width, dim = image.shape
        s = self.window
        y = torch.roll(self.pre(image), (-self.shift, -self.shift), (1, 2))
        packed = self.cut(self.inward(y)).unflatten(-1, (3, self.heads, -1))
        q, k, v = packed[..., 0, :, :], packed[..., 1, :, :], packed[..., 2, :, :]
        logits = torch.einsum("bnqhd,bnkhd->bnqkh", q, k) / (dim / self.heads) ** 0.5
        logits = logits + self.relative(offsets(s))
        logits = logits.masked_fill(self.blocked(height, width)[None, ..., None], float("-inf"))
        probs = torch.softmax(logits, dim=3)
        y = torch.einsum("bnqkh,bnkhd->bnqhd", probs, v).flatten(3)
        y = y.reshape(b, height // s, width // s, s, s, dim).transpose(2, 3)
        y = self.outward(y.reshape(b, height, width, dim))
        return image + torch.roll(y, (self.shift, self.shift), (1, 2))


def build(weights):
    arrays = linears(weights, {"pre": "norm", "inward": "qkv", "outward": "proj"})
    arrays["relative.weight"] = weights["bias_table"]
    return fill(SwinHalf(), arrays)
