import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class Attention(nn.Module):
    def __init__(self, dims=24, n_heads=3):
        super().__init__()
        self.n_heads = n_heads
        self.scale = (dims // n_heads) ** -0.5
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dims, dims) for _ in range(3))
        self.o_proj = nn.Linear(dims, dims, bias=False)
        self.rope = nn.RoPE(dims // n_heads, traditional=False, base=10000)

    def __call__(self, x, key_cache, value_cache):
        B, L, _ = x.shape
        offset = key_cache.shape[2]
        queries = self.q_proj(x).reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)
        keys = self.k_proj(x).reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)
        values = self.v_proj(x).reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)
        queries = self.rope(queries, offset=offset)
        keys = self.rope(keys, offset=offset)
        keys = mx.concatenate([key_cache, keys], axis=2)
        values = mx.concatenate([value_cache, values], axis=2)
        out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask="causal")
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(B, L, -1))


def build(weights):
    return fill(Attention(), linears(weights, {name: name for name in ("q_proj", "k_proj", "v_proj", "o_proj")}))
