import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


def distance_buckets(length, buckets, furthest):
    """Half of the buckets for keys before the query, half for those after; fine near it, coarse far away."""
    steps = np.arange(length)[None] - np.arange(length)[:, None]
    side = buckets // 2
    near = side // 2
    away = np.abs(steps)
    ratio = np.log(np.maximum(away, 1) / near) / np.log(furthest / near)
    coarse = np.minimum(near + np.trunc(ratio * (side - near)).astype(int), side - 1)
    table = np.where(away < near, away, coarse)
    return table + np.where(steps > 0, side, 0)


class EncoderBlock(nn.Module):
    def __init__(self, d=24, n_heads=3, d_ff=40):
        super().__init__()
        self.n_heads = n_heads
        self.gain_attn, self.gain_ff = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.qkv = nn.Parameter(torch.zeros(3, n_heads, d, d // n_heads))
        self.out = nn.Parameter(torch.zeros(n_heads, d // n_heads, d))
        self.distance = nn.Parameter(torch.zeros(16, n_heads))
        self.up = nn.Parameter(torch.zeros(d, 2 * d_ff))
        self.down = nn.Parameter(torch.zeros(d_ff, d))

    def rms(self, x, gain):
        wide = x.float()
        size = torch.sqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide / size).to(x.dtype) * gain

    def forward(self, x):
        y = self.rms(x, self.gain_attn)
        q, k, v = torch.einsum("bld,shde->sbhle", y, self.qkv).unbind(0)
        logits = torch.einsum("bhqe,bhke->bhqk", q, k)
        table = torch.from_numpy(distance_buckets(x.shape[1], 16, 20))
        logits = logits + torch.movedim(self.distance[table], -1, 0)
        probs = logits.float().exp()
        probs = (probs / probs.sum(-1, keepdim=True)).to(x.dtype)
        x = x + torch.einsum("bhqk,bhke,hed->bqd", probs, v, self.out)
        gate, linear = (self.rms(x, self.gain_ff) @ self.up).chunk(2, dim=-1)
        return x + (F.gelu(gate, approximate="tanh") * linear) @ self.down


def build(weights):
    arrays = {"gain_attn": weights["attention_norm.weight"], "gain_ff": weights["ff_norm.weight"]}
    three = [weights[f"{name}.weight"].reshape(3, 8, 24).transpose(0, 2, 1) for name in "qkv"]
    arrays["qkv"] = np.stack(three)
    arrays["out"] = weights["o.weight"].T.reshape(3, 8, 24)
    arrays["distance"] = weights["relative_attention_bias.weight"]
    arrays["up"] = np.concatenate([weights["wi_0.weight"], weights["wi_1.weight"]]).T
    arrays["down"] = weights["wo.weight"].T
    return fill(EncoderBlock(), arrays)
