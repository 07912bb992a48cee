import math

import torch
import torch.nn as nn


class BucketAttention(nn.Module):
    """T5's encoder attention: no scale, and a bias for each bucket of distances, which grow wider with the distance."""

    def __init__(self, width=18, heads=3, buckets=8, furthest=16):
        super().__init__()
        self.heads, self.size, self.buckets, self.furthest = heads, width // heads, buckets, furthest
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.bias = nn.Embedding(buckets, heads)

    def bucket(self, tokens):
        distance = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
        side = self.buckets // 2
        later = (distance > 0).long() * side
        distance = distance.abs()
        exact = side // 2
        wide = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.furthest / exact) * (side - exact)
        wide = (exact + wide.long()).clamp(max=side - 1)
        return later + torch.where(distance < exact, distance, wide)

    def forward(self, x):
        batch, tokens, _ = x.shape
        hidden = self.norm(x)
        q = self.q(hidden).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k = self.k(hidden).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        v = self.v(hidden).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) + self.bias(self.bucket(tokens)).permute(2, 0, 1)
        mixed = scores.float().softmax(-1).to(x.dtype) @ v
        return x + self.o(mixed.transpose(1, 2).flatten(2))


def build():
    return BucketAttention()


def inputs():
    return (torch.randn(2, 9, 18),)
