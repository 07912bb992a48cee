import torch
import torch.nn as nn
import torch.nn.functional as F


class ResnetBlock(nn.Module):
    def __init__(self, channels=8, out=12, embedding=16):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, channels, eps=1e-6)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.time_proj = nn.Linear(embedding, out)
        self.norm2 = nn.GroupNorm(4, out, eps=1e-6)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, out, 1)

    def forward(self, x, temb):
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = hidden + self.time_proj(F.silu(temb))[:, :, None, None]
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        return self.shortcut(x) + hidden


def build():
    return ResnetBlock()


def inputs():
    return torch.randn(2, 8, 5, 6), torch.randn(2, 16)
