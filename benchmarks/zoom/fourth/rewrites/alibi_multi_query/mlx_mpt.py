import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class Attention(nn.Module):
    def __init__(self, dims=32, num_heads=4):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dims // num_heads
        self.norm = nn.LayerNorm(dims, eps=1e-5)
        self.wqkv = nn.Linear(dims, dims + 2 * self.head_dim)
        self.wo = nn.Linear(dims, dims)

    def position_bias(self, L, dtype):
        exponents = mx.arange(1, self.num_heads + 1) * (8 / self.num_heads)
        slopes = mx.power(2.0, -exponents)
        places = mx.arange(L)
        bias = slopes[:, None, None] * (places[None, None, :] - places[None, :, None])
        return bias.astype(dtype)

    def causal_mask(self, L, dtype):
        future = mx.triu(mx.ones((L, L)), k=1)
        return (future * -1e9).astype(dtype)

    def __call__(self, x):
        B, L, D = x.shape
        qkv = self.wqkv(self.norm(x))
        q = qkv[..., :D].reshape(B, L, self.num_heads, self.head_dim).transpose(0, 2, 1, 3)
        k = qkv[:, None, :, D : D + self.head_dim]
        v = qkv[:, None, :, D + self.head_dim :]
        mask = self.position_bias(L, x.dtype) + self.causal_mask(L, x.dtype)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=self.head_dim**-0.5, mask=mask)
        y = y.transpose(0, 2, 1, 3).reshape(B, L, D)
        return x + self.wo(y)


def build(weights):
    return fill(Attention(), linears(weights, {"norm": "norm", "wqkv": "Wqkv", "wo": "out_proj"}))
