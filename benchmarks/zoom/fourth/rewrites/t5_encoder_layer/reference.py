import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class T5Norm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(self.weight.dtype)


class T5EncoderLayer(nn.Module):
    """Unscaled attention with a bias for each bucket of distances, then a gated feed-forward part."""

    def __init__(self, dim=24, heads=3, hidden=40, buckets=16, max_distance=20):
        super().__init__()
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.attention_norm, self.ff_norm = T5Norm(dim), T5Norm(dim)
        self.q, self.k = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.v, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.relative_attention_bias = nn.Embedding(buckets, heads)
        self.wi_0, self.wi_1 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.wo = nn.Linear(hidden, dim, bias=False)

    def bucket(self, relative):
        half = self.buckets // 2
        result = (relative > 0).long() * half
        distance = relative.abs()
        exact = half // 2
        far = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = (exact + (far * (half - exact)).long()).clamp(max=half - 1)
        return result + torch.where(distance < exact, distance, far)

    def bias(self, length):
        relative = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        return self.relative_attention_bias(self.bucket(relative)).permute(2, 0, 1)

    def forward(self, x):
        batch, length, dim = x.shape
        h = self.attention_norm(x)
        q = self.q(h).view(batch, length, self.heads, -1).transpose(1, 2)
        k = self.k(h).view(batch, length, self.heads, -1).transpose(1, 2)
        v = self.v(h).view(batch, length, self.heads, -1).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(3, 2))
        scores = scores + self.bias(length)
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        h = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, dim)
        x = x + self.o(h)
        h = self.ff_norm(x)
        h = F.gelu(self.wi_0(h), approximate="tanh") * self.wi_1(h)
        return x + self.wo(h)


def build():
    return T5EncoderLayer()


def inputs():
    return (0.004 * torch.randn(2, 12, 24),)
