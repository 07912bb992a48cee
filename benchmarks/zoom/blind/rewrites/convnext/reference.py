import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNextBlock(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.expand = nn.Linear(channels, 3 * channels)
        self.response_gain = nn.Parameter(torch.zeros(3 * channels))
        self.response_bias = nn.Parameter(torch.zeros(3 * channels))
        self.project = nn.Linear(3 * channels, channels)

    def forward(self, x):
        hidden = self.depthwise(x).permute(0, 2, 3, 1)
        hidden = self.norm(hidden)
        hidden = F.gelu(self.expand(hidden))
        energy = torch.linalg.vector_norm(hidden, dim=(1, 2), keepdim=True)
        response = energy / (energy.mean(dim=-1, keepdim=True) + 1e-6)
        hidden = hidden + self.response_gain * (hidden * response) + self.response_bias
        return x + self.project(hidden).permute(0, 3, 1, 2)


def build():
    return ConvNextBlock()


def inputs():
    return (0.02 * torch.randn(2, 8, 5, 6),)
