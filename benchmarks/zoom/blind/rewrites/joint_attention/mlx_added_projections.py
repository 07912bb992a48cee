import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill, linears


class MMAttention(nn.Module):
    def __init__(self, dims=24, heads=3):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dims, eps=1e-6, affine=False)
        self.mod, self.mod_context = nn.Linear(dims, 3 * dims), nn.Linear(dims, 3 * dims)
        self.to_q, self.to_k, self.to_v = (nn.Linear(dims, dims) for _ in range(3))
        self.add_q_proj, self.add_k_proj, self.add_v_proj = (nn.Linear(dims, dims) for _ in range(3))
        self.norm_q, self.norm_k = nn.RMSNorm(dims // heads, eps=1e-6), nn.RMSNorm(dims // heads, eps=1e-6)
        self.norm_added_q, self.norm_added_k = nn.RMSNorm(dims // heads, eps=1e-6), nn.RMSNorm(dims // heads, eps=1e-6)
        self.to_out, self.to_add_out = nn.Linear(dims, dims), nn.Linear(dims, dims)

    def heads_first(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).swapaxes(1, 2)

    def __call__(self, hidden, context, temb):
        temb = nn.silu(temb)
        shift, scale, gate = mx.split(mx.expand_dims(self.mod(temb), 1), 3, axis=-1)
        c_shift, c_scale, c_gate = mx.split(mx.expand_dims(self.mod_context(temb), 1), 3, axis=-1)
        normed = self.norm(hidden) * (scale + 1) + shift
        c_normed = self.norm(context) * (c_scale + 1) + c_shift
        query = self.norm_q(self.heads_first(self.to_q(normed)))
        key = self.norm_k(self.heads_first(self.to_k(normed)))
        value = self.heads_first(self.to_v(normed))
        c_query = self.norm_added_q(self.heads_first(self.add_q_proj(c_normed)))
        c_key = self.norm_added_k(self.heads_first(self.add_k_proj(c_normed)))
        c_value = self.heads_first(self.add_v_proj(c_normed))
        query = mx.concatenate([c_query, query], axis=2)
        key = mx.concatenate([c_key, key], axis=2)
        value = mx.concatenate([c_value, value], axis=2)
        out = mx.fast.scaled_dot_product_attention(query, key, value, scale=query.shape[-1] ** -0.5)
        out = out.swapaxes(1, 2).flatten(2)
        c_out, out = mx.split(out, [context.shape[1]], axis=1)
        context = context + c_gate * self.to_add_out(c_out)
        hidden = hidden + gate * self.to_out(out)
        return mx.concatenate([context, hidden], axis=1)


def build(weights):
    arrays = linears(weights, {
        "mod": "image_mod", "mod_context": "text_mod", "to_out": "image_out", "to_add_out": "text_out", "norm_q": "image_norm_q",
        "norm_k": "image_norm_k", "norm_added_q": "text_norm_q", "norm_added_k": "text_norm_k",
    })  # fmt: skip
    for old, names in {"image_qkv": ("to_q", "to_k", "to_v"), "text_qkv": ("add_q_proj", "add_k_proj", "add_v_proj")}.items():
        for part in ("weight", "bias"):
            for name, piece in zip(names, np.split(weights[f"{old}.{part}"], 3)):
                arrays[f"{name}.{part}"] = piece
    return fill(MMAttention(), arrays)
