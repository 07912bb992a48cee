import mlx.nn as nn
from loading import fill


class FastAttention(nn.Module):
    def __init__(self, dims=20, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(dims, dims, bias=False) for _ in range(4))
        self.norm = nn.RMSNorm(dims, eps=1e-6)

    def __call__(self, x):
        B, L, D = x.shape
        y = self.norm(x)
        queries = nn.elu(self.to_q(y)).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3) + 1
        keys = nn.elu(self.to_k(y)).reshape(B, L, self.num_heads, -1).transpose(0, 2, 3, 1) + 1
        values = self.to_v(y).reshape(B, L, self.num_heads, -1).transpose(0, 2, 1, 3)
        state = keys @ values
        norm = queries @ keys.sum(axis=-1, keepdims=True) + 1e-6
        out = (queries @ state) / norm
        return x + self.to_out(out.transpose(0, 2, 1, 3).reshape(B, L, D))


def build(weights):
    names = {"to_q": "q", "to_k": "k", "to_v": "v", "to_out": "out", "norm": "norm"}
    return fill(FastAttention(), {f"{new}.weight": weights[f"{old}.weight"] for new, old in names.items()})
