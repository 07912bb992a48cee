import torch
import torch.nn as nn
import torch.nn.functional as F


class Upsampler(nn.Module):
    """Twice the size by pixel shuffle, then twice by repeating pixels."""

    def __init__(self, channels=6, out=5):
        super().__init__()
        self.expand = nn.Conv2d(channels, 4 * channels, 3, padding=1)
        self.smooth = nn.Conv2d(channels, out, 3, padding=1)

    def forward(self, x):
        hidden = self.expand(x)
        hidden = F.pixel_shuffle(hidden, 2)
        hidden = F.leaky_relu(hidden, 0.2)
        hidden = F.interpolate(hidden, scale_factor=2, mode="nearest")
        return self.smooth(hidden)


def build():
    return Upsampler()


def inputs():
    return (torch.randn(2, 6, 4, 3),)
