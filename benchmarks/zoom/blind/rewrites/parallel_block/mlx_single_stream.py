import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class SingleStream(nn.Module):
    def __init__(self, hidden_size=24, num_heads=3, mlp_size=36):
        super().__init__()
        self.hidden_size, self.num_heads = hidden_size, num_heads
        self.lin = nn.Linear(hidden_size, 3 * hidden_size)
        self.pre_norm = nn.LayerNorm(hidden_size, eps=1e-6, affine=False)
        self.linear1 = nn.Linear(hidden_size, 3 * hidden_size + mlp_size)
        self.query_norm = nn.RMSNorm(hidden_size // num_heads, eps=1e-6)
        self.key_norm = nn.RMSNorm(hidden_size // num_heads, eps=1e-6)
        self.linear2 = nn.Linear(hidden_size + mlp_size, hidden_size)

    def __call__(self, x, vec):
        B, L, _ = x.shape
        shift, scale, gate = mx.split(self.lin(nn.silu(vec))[:, None], 3, axis=-1)
        x_mod = (1 + scale) * self.pre_norm(x) + shift
        y = self.linear1(x_mod)
        qkv, mlp = y[..., : 3 * self.hidden_size], y[..., 3 * self.hidden_size :]
        qkv = qkv.reshape(B, L, 3, self.num_heads, -1).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q, k = self.query_norm(q), self.key_norm(k)
        attn = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5)
        attn = attn.transpose(0, 2, 1, 3).reshape(B, L, -1)
        y = self.linear2(mx.concatenate([attn, nn.gelu_approx(mlp)], axis=2))
        return x + gate * y


def build(weights):
    names = {"lin": "modulation", "linear1": "linear_in", "linear2": "linear_out", "query_norm": "norm_q", "key_norm": "norm_k"}
    return fill(SingleStream(), linears(weights, names))
