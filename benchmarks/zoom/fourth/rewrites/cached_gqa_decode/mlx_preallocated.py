import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class KVCache:
    """Room for all tokens from the start; offset tells how much of it is filled."""

    def __init__(self, batch, heads, length, dims, dtype):
        self.keys = mx.zeros((batch, heads, length, dims), dtype=dtype)
        self.values = mx.zeros((batch, heads, length, dims), dtype=dtype)
        self.offset = 0

    def update(self, keys, values):
        end = self.offset + keys.shape[2]
        self.keys[:, :, self.offset : end] = keys
        self.values[:, :, self.offset : end] = values
        self.offset = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Attention(nn.Module):
    def __init__(self, dims=32, num_heads=4, num_kv_heads=2):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = dims // num_heads
        self.norm = nn.RMSNorm(dims, eps=1e-6)
        self.wq = nn.Linear(dims, num_heads * self.head_dim)
        self.wk = nn.Linear(dims, num_kv_heads * self.head_dim)
        self.wv = nn.Linear(dims, num_kv_heads * self.head_dim)
        self.wo = nn.Linear(dims, dims, bias=False)

    def tokens(self, x, cache, position):
        B, L, D = x.shape
        h = self.norm(x)
        q = self.wq(h).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        k = self.wk(h).reshape(B, L, self.num_kv_heads, -1).transpose(0, 2, 1, 3)
        v = self.wv(h).reshape(B, L, self.num_kv_heads, -1).transpose(0, 2, 1, 3)
        q = mx.fast.rope(q, self.head_dim, traditional=False, base=10000.0, scale=1.0, offset=position)
        k = mx.fast.rope(k, self.head_dim, traditional=False, base=10000.0, scale=1.0, offset=position)
        k, v = cache.update(k, v)
        mask = "causal" if L > 1 else None
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=self.head_dim**-0.5, mask=mask)
        return x + self.wo(y.transpose(0, 2, 1, 3).reshape(B, L, D))

    def __call__(self, x, prompt=5):
        B, L, _ = x.shape
        cache = KVCache(B, self.num_kv_heads, L, self.head_dim, x.dtype)
        outputs = [self.tokens(x[:, :prompt], cache, 0)]
        for at in range(prompt, L):
            y = self.tokens(x[:, at : at + 1], cache, at)
            outputs.append(y)
        return mx.concatenate(outputs, axis=1)


def build(weights):
    names = {"norm": "input_layernorm", "wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj"}
    return fill(Attention(), linears(weights, names))
