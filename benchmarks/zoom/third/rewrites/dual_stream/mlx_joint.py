import mlx.core as mx
import mlx.nn as nn
from loading import fill


class JointBlock(nn.Module):
    def __init__(self, dims=24, num_heads=3):
        super().__init__()
        self.num_heads = num_heads
        self.norm_a, self.norm_b = nn.LayerNorm(dims, eps=1e-6), nn.LayerNorm(dims, eps=1e-6)
        self.in_a, self.in_b = nn.Linear(dims, 3 * dims), nn.Linear(dims, 3 * dims)
        self.out_a, self.out_b = nn.Linear(dims, dims), nn.Linear(dims, dims)

    def __call__(self, a, b):
        B, La, D = a.shape
        joint = mx.concatenate([self.in_a(self.norm_a(a)), self.in_b(self.norm_b(b))], axis=1)
        queries, keys, values = mx.split(joint, 3, axis=-1)
        queries = queries.reshape(B, -1, self.num_heads, D // self.num_heads).transpose(0, 2, 1, 3)
        keys = keys.reshape(B, -1, self.num_heads, D // self.num_heads).transpose(0, 2, 1, 3)
        values = values.reshape(B, -1, self.num_heads, D // self.num_heads).transpose(0, 2, 1, 3)
        y = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=(D // self.num_heads) ** -0.5)
        y = y.transpose(0, 2, 1, 3).reshape(B, -1, D)
        return mx.concatenate([a + self.out_a(y[:, :La]), b + self.out_b(y[:, La:])], axis=1)


def build(weights):
    arrays = {}
    for side in "ab":
        for new, old in {"norm": "norm", "in": "qkv", "out": "out"}.items():
            for part in ("weight", "bias"):
                arrays[f"{new}_{side}.{part}"] = weights[f"{side}_{old}.{part}"]
    return fill(JointBlock(), arrays)
