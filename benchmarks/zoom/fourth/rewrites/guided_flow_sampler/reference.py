import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Denoiser(nn.Module):
    def __init__(self, channels=8, width=24, cond=12):
        super().__init__()
        self.x_in = nn.Linear(channels, width)
        self.t_in = nn.Linear(16, width)
        self.c_in = nn.Linear(cond, width)
        self.out = nn.Linear(width, channels)

    def timestep_embedding(self, t):
        frequencies = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        angles = 1000.0 * t * frequencies
        return torch.cat([angles.cos(), angles.sin()])

    def forward(self, x, t, cond):
        emb = self.timestep_embedding(t).to(x.dtype)
        h = self.x_in(x) + self.t_in(emb) + self.c_in(cond)[:, None]
        return self.out(F.silu(h))


class GuidedFlowSampler(nn.Module):
    """Euler steps of a flow with guidance; the guided velocity keeps the length of the conditional one."""

    def __init__(self, steps=4, shift=3.0, guidance=4.0):
        super().__init__()
        self.steps, self.shift, self.guidance = steps, shift, guidance
        self.model = Denoiser()

    def schedule(self):
        sigmas = torch.linspace(1.0, 1.0 / self.steps, self.steps)
        sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        return torch.cat([sigmas, torch.zeros(1)]).tolist()

    def forward(self, latents, positive, negative):
        sigmas = self.schedule()
        latents = latents.float()
        for i in range(self.steps):
            inp = latents.to(positive.dtype)
            cond = self.model(inp, sigmas[i], positive).float()
            uncond = self.model(inp, sigmas[i], negative).float()
            combined = uncond + self.guidance * (cond - uncond)
            ratio = cond.norm(dim=-1, keepdim=True) / combined.norm(dim=-1, keepdim=True)
            velocity = combined * ratio
            latents = latents + (sigmas[i + 1] - sigmas[i]) * velocity
        return latents


def build():
    return GuidedFlowSampler()


def inputs():
    return torch.randn(2, 6, 8), torch.randn(2, 12), torch.randn(2, 12)
