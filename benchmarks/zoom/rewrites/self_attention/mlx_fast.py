import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class Attention(nn.Module):
    def __init__(self, dims=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dims // num_heads) ** -0.5
        self.q_proj = nn.Linear(dims, dims)
        self.k_proj = nn.Linear(dims, dims)
        self.v_proj = nn.Linear(dims, dims)
        self.o_proj = nn.Linear(dims, dims)
        self.q_norm = nn.RMSNorm(dims // num_heads, eps=1e-6)
        self.k_norm = nn.RMSNorm(dims // num_heads, eps=1e-6)

    def __call__(self, x):
        B, L, D = x.shape
        queries = self.q_proj(x).reshape(B, L, self.num_heads, -1)
        keys = self.k_proj(x).reshape(B, L, self.num_heads, -1)
        values = self.v_proj(x).reshape(B, L, self.num_heads, -1)
        queries = self.q_norm(queries).transpose(0, 2, 1, 3)
        keys = self.k_norm(keys).transpose(0, 2, 1, 3)
        values = values.transpose(0, 2, 1, 3)
        output = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale)
        return self.o_proj(output.transpose(0, 2, 1, 3).reshape(B, L, D))


def build(weights):
    names = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "o_proj": "to_out", "q_norm": "norm_q", "k_norm": "norm_k"}
    return fill(Attention(), linears(weights, names))
