import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class SpatialAttention(nn.Module):
    """With linear layers over the places as tokens."""

    def __init__(self, dim=16, groups=4):
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, dim, eps=1e-6)
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, image):
        b, c, h, w = image.shape
        places = image.reshape(b, c, h * w)
        tokens = self.group_norm(places).transpose(1, 2)
        query, key, value = self.to_qkv(tokens).tensor_split(3, dim=-1)
        query = query / query.shape[-1] ** 0.5
        scores = torch.einsum("bid,bjd->bij", query, key)
        probs = F.softmax(scores - scores.amax(-1, keepdim=True), dim=-1)
        mixed = torch.einsum("bij,bjd->bid", probs, value)
        mixed = self.to_out(mixed)
        return image + mixed.transpose(1, 2).reshape(b, c, h, w)


def build(weights):
    arrays = linears(weights, {"group_norm": "norm"})
    matrices = [weights[f"{name}.weight"][:, :, 0, 0] for name in "qkv"]
    arrays["to_qkv.weight"] = np.concatenate(matrices)
    arrays["to_qkv.bias"] = np.concatenate([weights[f"{name}.bias"] for name in "qkv"])
    arrays["to_out.weight"] = weights["proj_out.weight"][:, :, 0, 0]
    arrays["to_out.bias"] = weights["proj_out.bias"]
    return fill(SpatialAttention(), arrays)
