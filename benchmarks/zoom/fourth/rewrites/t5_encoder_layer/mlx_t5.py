import math

import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class RelativeBias(nn.Module):
    def __init__(self, num_buckets, num_heads, max_distance):
        super().__init__()
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.embeddings = nn.Embedding(num_buckets, num_heads)

    def buckets(self, rpos):
        num_buckets = self.num_buckets // 2
        offset = (rpos > 0).astype(mx.int32) * num_buckets
        rpos = mx.abs(rpos)
        max_exact = num_buckets // 2
        scale = (num_buckets - max_exact) / math.log(self.max_distance / max_exact)
        large = max_exact + (mx.log(mx.maximum(rpos, 1) / max_exact) * scale).astype(mx.int32)
        large = mx.minimum(large, num_buckets - 1)
        return offset + mx.where(rpos < max_exact, rpos, large)

    def __call__(self, L):
        query_position = mx.arange(L)[:, None]
        key_position = mx.arange(L)[None, :]
        relative = key_position - query_position
        return self.embeddings(self.buckets(relative)).transpose(2, 0, 1)


class Layer(nn.Module):
    def __init__(self, dims=24, num_heads=3, hidden=40):
        super().__init__()
        self.num_heads = num_heads
        self.ln1, self.ln2 = nn.RMSNorm(dims, eps=1e-6), nn.RMSNorm(dims, eps=1e-6)
        self.query, self.key, self.value, self.out = (nn.Linear(dims, dims, bias=False) for _ in range(4))
        self.position = RelativeBias(16, num_heads, 20)
        self.gate, self.up = nn.Linear(dims, hidden, bias=False), nn.Linear(dims, hidden, bias=False)
        self.down = nn.Linear(hidden, dims, bias=False)

    def __call__(self, x):
        B, L, D = x.shape
        y = self.ln1(x)
        q, k, v = (w(y).reshape(B, L, self.num_heads, -1) for w in (self.query, self.key, self.value))
        q, k, v = q.transpose(0, 2, 1, 3), k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
        mask = self.position(L).astype(x.dtype)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, mask=mask)
        x = x + self.out(y.transpose(0, 2, 1, 3).reshape(B, L, D))
        y = self.ln2(x)
        y = nn.gelu_approx(self.gate(y)) * self.up(y)
        return x + self.down(y)


def build(weights):
    names = {"ln1": "attention_norm", "ln2": "ff_norm", "query": "q", "key": "k", "value": "v", "out": "o"}
    names |= {"position.embeddings": "relative_attention_bias", "gate": "wi_0", "up": "wi_1", "down": "wo"}
    return fill(Layer(), linears(weights, names))
