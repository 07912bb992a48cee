import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class SlidingAttention(nn.Module):
    def __init__(self, dims=32, n_heads=4, n_kv_heads=2, sliding_window=3):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dims // n_heads
        self.scale = self.head_dim**-0.5
        self.sliding_window = sliding_window
        self.q_proj = nn.Linear(dims, n_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(dims, n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(dims, n_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(n_heads * self.head_dim, dims, bias=False)

    def mask(self, n):
        rows = mx.arange(n)[:, None]
        columns = mx.arange(n)[None]
        return (rows >= columns) & (rows < columns + self.sliding_window)

    def __call__(self, x):
        B, L, _ = x.shape
        queries = self.q_proj(x).reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)
        keys = self.k_proj(x).reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
        values = self.v_proj(x).reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
        queries = mx.fast.rope(queries, self.head_dim, traditional=False, base=10000.0, scale=1.0, offset=0)
        keys = mx.fast.rope(keys, self.head_dim, traditional=False, base=10000.0, scale=1.0, offset=0)
        out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask=self.mask(L))
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(B, L, -1))


def build(weights):
    return fill(SlidingAttention(), linears(weights, {name: name for name in ("q_proj", "k_proj", "v_proj", "o_proj")}))
