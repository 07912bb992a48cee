import torch
import torch.nn as nn


class PatchEmbedding(nn.Module):
    def __init__(self, channels=4, width=24, patch=2):
        super().__init__()
        self.proj = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.positions = nn.Parameter(torch.zeros(1, 40, width))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, latents):
        tokens = self.proj(latents).flatten(2).transpose(1, 2)
        tokens = tokens + self.positions[:, : tokens.shape[1]]
        return self.norm(tokens)


def build():
    return PatchEmbedding()


def inputs():
    return (torch.randn(2, 4, 8, 12),)
