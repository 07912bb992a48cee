import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class UnfoldEmbed(nn.Module):
    def __init__(self, channels=4, dim=24, patch=2):
        super().__init__()
        self.patch = patch
        self.weight = nn.Parameter(torch.zeros(dim, channels * patch * patch))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.table = nn.Embedding(40, dim)
        self.scale, self.offset = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        columns = F.unfold(x, self.patch, stride=self.patch)
        y = torch.einsum("oc,bcn->bno", self.weight, columns)
        y = y + self.bias
        y = y + self.table(torch.arange(y.shape[1]))
        y = F.layer_norm(y, y.shape[-1:], eps=1e-6)
        return y * self.scale + self.offset


def build(weights):
    return fill(UnfoldEmbed(), {
        "weight": weights["proj.weight"].reshape(24, -1), "bias": weights["proj.bias"], "table.weight": weights["positions"][0],
        "scale": weights["norm.weight"], "offset": weights["norm.bias"],
    })  # fmt: skip
