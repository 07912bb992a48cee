import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class GQA(nn.Module):
    def __init__(self, dims=32, heads=4, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dims // heads
        self.q_proj = nn.Linear(dims, dims)
        self.k_proj = nn.Linear(dims, kv_heads * self.head_dim)
        self.v_proj = nn.Linear(dims, kv_heads * self.head_dim)
        self.o_proj = nn.Linear(dims, dims, bias=False)

    def __call__(self, x):
        B, L, _ = x.shape
        q = self.q_proj(x).reshape(B, L, self.kv_heads, self.heads // self.kv_heads, self.head_dim).transpose(0, 2, 3, 1, 4)
        k = self.k_proj(x).reshape(B, L, self.kv_heads, 1, self.head_dim).transpose(0, 2, 3, 1, 4)
        v = self.v_proj(x).reshape(B, L, self.kv_heads, 1, self.head_dim).transpose(0, 2, 3, 1, 4)
        scores = (q * self.head_dim**-0.5) @ k.swapaxes(-1, -2)
        later = mx.arange(L)[None] > mx.arange(L)[:, None]
        scores = mx.where(later, -1e9, scores)
        weights = mx.softmax(scores.astype(mx.float32), axis=-1).astype(x.dtype)
        y = (weights @ v).transpose(0, 3, 1, 2, 4)
        return self.o_proj(y.reshape(B, L, -1))


def build(weights):
    return fill(GQA(), linears(weights, {name: name for name in ("q_proj", "k_proj", "v_proj", "o_proj")}))
