import torch
import torch.nn as nn


class Mixer(nn.Module):
    """A rotary table from positions, applied to pairs of neighbours, then mixed over tokens and channels."""

    def __init__(self, width=16, tokens=6):
        super().__init__()
        self.width = width
        self.over_tokens = nn.Linear(tokens, tokens)
        self.over_channels = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x, positions):
        rates = 100.0 ** (-torch.arange(0, self.width, 2, dtype=torch.float32) / self.width)
        angles = positions[:, None].float() * rates
        turn = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        x = torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
        x = x + self.over_tokens(x.transpose(1, 2)).transpose(1, 2)
        return x + torch.relu(self.over_channels(x)) ** 2 * self.gain


def build():
    return Mixer()


def inputs():
    return torch.randn(2, 6, 16), torch.arange(6) + 2
