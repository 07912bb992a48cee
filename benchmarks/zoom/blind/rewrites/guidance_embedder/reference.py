import math

import torch
import torch.nn as nn
import torch.nn.functional as F

KEEP_F32 = (0, 1)


def waves(value, size):
    frequencies = torch.exp(-math.log(10000) * torch.arange(size // 2, dtype=torch.float32) / (size // 2))
    angles = 1000 * value.float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class GuidanceEmbedder(nn.Module):
    """One vector of the time, the strength of guidance and a summary of the prompt."""

    def __init__(self, width=20, size=16, pooled=10):
        super().__init__()
        self.size = size
        self.time_in, self.time_out = nn.Linear(size, width), nn.Linear(width, width)
        self.guidance_in, self.guidance_out = nn.Linear(size, width), nn.Linear(width, width)
        self.text_in, self.text_out = nn.Linear(pooled, width), nn.Linear(width, width)

    def forward(self, time, guidance, pooled):
        time_waves = waves(time, self.size).to(pooled.dtype)
        guidance_waves = waves(guidance, self.size).to(pooled.dtype)
        time = self.time_out(F.silu(self.time_in(time_waves)))
        guidance = self.guidance_out(F.silu(self.guidance_in(guidance_waves)))
        text = self.text_out(F.silu(self.text_in(pooled)))
        return time + guidance + text


def build():
    return GuidanceEmbedder()


def inputs():
    return torch.tensor([0.913, 0.447, 0.1305]), torch.tensor([1.5, 2.21, 0.8]), torch.randn(3, 10)
