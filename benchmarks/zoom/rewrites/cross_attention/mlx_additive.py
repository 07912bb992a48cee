import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class TextAttention(nn.Module):
    def __init__(self, dims=24, text_dims=20, heads=3):
        super().__init__()
        self.heads = heads
        self.query_proj = nn.Linear(dims, dims, bias=False)
        self.key_proj = nn.Linear(text_dims, dims, bias=False)
        self.value_proj = nn.Linear(text_dims, dims, bias=False)
        self.out_proj = nn.Linear(dims, dims)

    def __call__(self, x, text, text_mask):
        B, L, D = x.shape
        S = text.shape[1]
        q = self.query_proj(x).reshape(B, L, self.heads, -1).transpose(0, 2, 1, 3)
        k = self.key_proj(text).reshape(B, S, self.heads, -1).transpose(0, 2, 1, 3)
        v = self.value_proj(text).reshape(B, S, self.heads, -1).transpose(0, 2, 1, 3)
        bias = (1 - text_mask.astype(x.dtype)) * -1e9
        bias = bias.reshape(B, 1, 1, S)
        out = mx.fast.scaled_dot_product_attention(q, k, v, scale=(D // self.heads) ** -0.5, mask=bias)
        out = out.transpose(0, 2, 1, 3).reshape(B, L, D)
        return x + self.out_proj(out)


def build(weights):
    return fill(TextAttention(), linears(weights, {"query_proj": "to_q", "key_proj": "to_k", "value_proj": "to_v", "out_proj": "to_out"}))
