import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchMerger(nn.Module):
    """Four neighbouring patches of a vision encoder become one token of a language model."""

    def __init__(self, width=10, out=14, grid=(4, 6), merge=2):
        super().__init__()
        self.grid, self.merge = grid, merge
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1 = nn.Linear(width * merge**2, width * merge**2)
        self.fc2 = nn.Linear(width * merge**2, out)

    def forward(self, x):
        batch, _, width = x.shape
        rows, columns = self.grid[0] // self.merge, self.grid[1] // self.merge
        x = self.norm(x)
        x = x.view(batch, rows, self.merge, columns, self.merge, width)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, rows * columns, -1)
        x = self.fc1(x)
        x = F.gelu(x)
        return self.fc2(x)


def build():
    return PatchMerger()


def inputs():
    return (torch.randn(2, 24, 10),)
