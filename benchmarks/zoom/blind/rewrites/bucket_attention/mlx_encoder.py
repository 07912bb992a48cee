import math

import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class RelativeBias(nn.Module):
    def __init__(self, num_buckets, max_distance, num_heads):
        super().__init__()
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.embeddings = nn.Embedding(num_buckets, num_heads)

    def __call__(self, length):
        context = mx.arange(length)[:, None]
        memory = mx.arange(length)[None]
        relative = memory - context
        num_buckets = self.num_buckets // 2
        buckets = mx.where(relative > 0, num_buckets, 0)
        relative = mx.abs(relative)
        max_exact = num_buckets // 2
        scale = (num_buckets - max_exact) / math.log(self.max_distance / max_exact)
        large = max_exact + (mx.log(mx.maximum(relative, 1).astype(mx.float32) / max_exact) * scale).astype(mx.int32)
        large = mx.minimum(large, num_buckets - 1)
        values = self.embeddings(buckets + mx.where(relative < max_exact, relative, large))
        return values.transpose(2, 0, 1)


class T5Attention(nn.Module):
    def __init__(self, dims=18, num_heads=3):
        super().__init__()
        self.num_heads = num_heads
        self.ln = nn.RMSNorm(dims, eps=1e-6)
        self.query_proj, self.key_proj = nn.Linear(dims, dims, bias=False), nn.Linear(dims, dims, bias=False)
        self.value_proj, self.out_proj = nn.Linear(dims, dims, bias=False), nn.Linear(dims, dims, bias=False)
        self.relative = RelativeBias(8, 16, num_heads)

    def __call__(self, x):
        B, L, _ = x.shape
        y = self.ln(x)
        queries = self.query_proj(y).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        keys = self.key_proj(y).reshape(B, L, self.num_heads, -1).transpose(0, 2, 3, 1)
        values = self.value_proj(y).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        scores = queries @ keys
        scores = scores + self.relative(L)
        scores = mx.softmax(scores.astype(mx.float32), axis=-1).astype(x.dtype)
        y = (scores @ values).transpose(0, 2, 1, 3).reshape(B, L, -1)
        return x + self.out_proj(y)


def build(weights):
    names = {"ln": "norm", "query_proj": "q", "key_proj": "k", "value_proj": "v", "out_proj": "o", "relative.embeddings": "bias"}
    return fill(T5Attention(), linears(weights, names))
