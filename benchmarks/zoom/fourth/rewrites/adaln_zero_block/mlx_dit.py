import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class DiTBlock(nn.Module):
    def __init__(self, dims=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.ln = nn.LayerNorm(dims, eps=1e-6, affine=False)
        self.in_proj = nn.Linear(dims, 3 * dims)
        self.out_proj = nn.Linear(dims, dims)
        self.linear1 = nn.Linear(dims, 2 * dims)
        self.linear2 = nn.Linear(2 * dims, dims)
        self.modulation = nn.Linear(dims, 6 * dims)

    def attention(self, x):
        B, L, D = x.shape
        q, k, v = mx.split(self.in_proj(x), 3, axis=-1)
        q, k, v = (t.reshape(B, L, self.num_heads, -1).swapaxes(1, 2) for t in (q, k, v))
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(D // self.num_heads) ** -0.5)
        return self.out_proj(y.swapaxes(1, 2).reshape(B, L, D))

    def __call__(self, x, vec):
        params = self.modulation(nn.silu(vec))[:, None, :]
        attn_params, mlp_params = mx.split(params, 2, axis=-1)

        shift, scale, gate = mx.split(attn_params, 3, axis=-1)
        y = self.ln(x) * (1 + scale) + shift
        x = x + gate * self.attention(y)

        shift, scale, gate = mx.split(mlp_params, 3, axis=-1)
        y = self.ln(x) * (1 + scale) + shift
        y = self.linear2(nn.gelu_approx(self.linear1(y)))
        return x + gate * y


def build(weights):
    names = {"in_proj": "qkv", "out_proj": "proj", "linear1": "fc1", "linear2": "fc2", "modulation": "adaLN"}
    return fill(DiTBlock(), linears(weights, names))
