import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class QuickGELU(nn.Module):
    def forward(self, x):
        return x / (1 + torch.exp(-1.702 * x))


class ResidualAttentionBlock(nn.Module):
    """As the first published code has it: one packed projection, tokens before batch."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), QuickGELU(), nn.Linear(2 * width, width))

    def mix(self, x):
        length, batch, width = x.shape
        packed = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = packed.view(length, batch, 3, self.heads, -1).unbind(2)
        q, k, v = q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3), v.permute(1, 2, 0, 3)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.permute(2, 0, 1, 3).reshape(length, batch, width))

    def forward(self, x):
        x = x + self.mix(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class TextTower(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.vocabulary = nn.Parameter(torch.zeros(50, width))
        self.positions = nn.Parameter(torch.zeros(9, width))
        self.blocks = nn.Sequential(*(ResidualAttentionBlock(width, 3) for _ in range(2)))
        self.ln_final = nn.LayerNorm(width)
        self.projection = nn.Parameter(torch.zeros(width, 16))

    def forward(self, ids):
        x = self.vocabulary[ids] + self.positions[: ids.shape[1]]
        x = self.blocks(x.transpose(0, 1))
        is_end = ids == 49
        rows = is_end.to(x.dtype) / is_end.sum(1, keepdim=True)
        pooled = torch.einsum("bl,lbd->bd", rows, x)
        pooled = self.ln_final(pooled)
        return pooled @ self.projection


def build(weights):
    arrays = linears(weights, {"ln_final": "final_layer_norm"})
    arrays |= {"vocabulary": weights["token_embedding.weight"], "positions": weights["position_embedding.weight"]}
    arrays["projection"] = weights["text_projection.weight"].T
    for n in range(2):
        new, old = f"blocks.{n}", f"layers.{n}"
        names = {"out_proj": "out_proj", "ln_1": "layer_norm1", "ln_2": "layer_norm2", "mlp.0": "fc1", "mlp.2": "fc2"}
        arrays |= linears(weights, {f"{new}.{a}": f"{old}.{b}" for a, b in names.items()})
        for part in ("weight", "bias"):
            arrays[f"{new}.in_proj_{part}"] = np.concatenate([weights[f"{old}.{name}_proj.{part}"] for name in "qkv"])
    return fill(TextTower(), arrays)
