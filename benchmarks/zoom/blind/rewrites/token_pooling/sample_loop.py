import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Pooler(nn.Module):
    """One prompt at a time for the attention, with its padding cut off."""

    def __init__(self, dim=16, n_heads=2, n_latents=3):
        super().__init__()
        self.n_heads = n_heads
        self.latents = nn.Parameter(torch.zeros(n_latents, dim))
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.mean = nn.Linear(dim, dim)

    def forward(self, embeds, attention_mask):
        keep = attention_mask.unsqueeze(-1).type_as(embeds)
        average = torch.einsum("bnd,bnk->bd", embeds, keep) / keep.sum(dim=1)
        average = self.mean(average)
        query = self.query(self.latents).unflatten(1, (self.n_heads, -1))
        rows = []
        for sample, valid in zip(embeds, attention_mask.bool()):
            kept = sample[valid]
            key = self.key(kept).unflatten(1, (self.n_heads, -1))
            value = self.value(kept).unflatten(1, (self.n_heads, -1))
            attention = torch.einsum("qhd,khd->hqk", query, key) / key.shape[-1] ** 0.5
            attended = torch.einsum("hqk,khd->qhd", F.softmax(attention, dim=-1), value)
            rows.append(self.out(attended.flatten(1)))
        joined = torch.cat([average.unsqueeze(1), torch.stack(rows)], dim=1)
        return joined / joined.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def build(weights):
    arrays = linears(weights, {"query": "to_q", "out": "to_out", "mean": "mean_proj"}) | {"latents": weights["queries"]}
    for part in ("weight", "bias"):
        arrays[f"key.{part}"], arrays[f"value.{part}"] = np.split(weights[f"to_kv.{part}"], 2)
    return fill(Pooler(), arrays)
