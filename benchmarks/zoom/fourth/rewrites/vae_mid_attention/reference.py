import torch
import torch.nn as nn


class AttnBlock(nn.Module):
    """Attention over a picture's places with one head, as in the middle of an image autoencoder."""

    def __init__(self, channels=16, groups=4):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.q, self.k = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.v, self.proj_out = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        batch, channels, height, width = x.shape
        h = self.norm(x)
        q = self.q(h).flatten(2).permute(0, 2, 1)
        k = self.k(h).flatten(2)
        v = self.v(h).flatten(2)
        w = torch.bmm(q, k) * channels**-0.5
        w = torch.softmax(w, dim=2)
        h = torch.bmm(v, w.permute(0, 2, 1))
        h = h.reshape(batch, channels, height, width)
        return x + self.proj_out(h)


def build():
    return AttnBlock()


def inputs():
    return (0.01 * torch.randn(2, 16, 5, 6) + 0.01 * torch.randn(2, 16, 1, 1),)
