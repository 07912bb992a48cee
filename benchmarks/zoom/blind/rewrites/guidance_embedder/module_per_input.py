import math

import torch
import torch.nn as nn
from loading import fill, linears


class Wave(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels

    def forward(self, t):
        half = self.channels // 2
        exponent = torch.arange(half).float().mul(-math.log(10000.0)).div(half)
        emb = t.unsqueeze(-1).float() * exponent.exp().unsqueeze(0)
        emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)
        return torch.cat([emb[:, half:], emb[:, :half]], dim=-1)


class CombinedEmbeddings(nn.Module):
    def __init__(self, embedding_dim=20, pooled_dim=10):
        super().__init__()
        self.time_proj = Wave(16)
        mlp = lambda size: nn.Sequential(nn.Linear(size, embedding_dim), nn.SiLU(), nn.Linear(embedding_dim, embedding_dim))  # noqa: E731
        self.timestep_embedder, self.guidance_embedder, self.text_embedder = mlp(16), mlp(16), mlp(pooled_dim)

    def forward(self, timestep, guidance, pooled_projection):
        timestep = timestep * 1000
        guidance = guidance * 1000
        timesteps_proj = self.time_proj(timestep)
        timesteps_emb = self.timestep_embedder(timesteps_proj.to(pooled_projection.dtype))
        guidance_proj = self.time_proj(guidance)
        guidance_emb = self.guidance_embedder(guidance_proj.to(pooled_projection.dtype))
        conditioning = timesteps_emb + guidance_emb
        return conditioning + self.text_embedder(pooled_projection)


def build(weights):
    names = {}
    for new, old in {"timestep_embedder": "time", "guidance_embedder": "guidance", "text_embedder": "text"}.items():
        names |= {f"{new}.0": f"{old}_in", f"{new}.2": f"{old}_out"}
    return fill(CombinedEmbeddings(), linears(weights, names))
