import numpy as np
import torch
import torch.nn as nn
from loading import fill


class DenseMoE(nn.Module):
    """All experts at once by einsum; those not chosen have weight zero."""

    def __init__(self, dim=20, inner=16, n=4, k=2):
        super().__init__()
        self.k = k
        self.gate = nn.Linear(dim, n, bias=False)
        self.w1, self.b1 = nn.Parameter(torch.zeros(n, dim, inner)), nn.Parameter(torch.zeros(n, inner))
        self.w2, self.b2 = nn.Parameter(torch.zeros(n, inner, dim)), nn.Parameter(torch.zeros(n, dim))

    def forward(self, x):
        scores = torch.softmax(self.gate(x), dim=-1)
        top, where = torch.topk(scores, self.k, dim=-1)
        top = top / top.sum(dim=-1, keepdim=True)
        dense = torch.zeros_like(scores).scatter(-1, where, top)
        hidden = torch.einsum("btd,ndi->btni", x, self.w1) + self.b1
        hidden = torch.relu(hidden)
        outputs = torch.einsum("btni,nid->btnd", hidden, self.w2) + self.b2
        return (dense.unsqueeze(-1) * outputs).sum(dim=2)


def build(weights):
    stack = lambda name: np.stack([weights[f"{name.format(i)}"] for i in range(4)])  # noqa: E731
    return fill(DenseMoE(), {
        "gate.weight": weights["router.weight"], "w1": stack("up.{}.weight").transpose(0, 2, 1), "b1": stack("up.{}.bias"),
        "w2": stack("down.{}.weight").transpose(0, 2, 1), "b2": stack("down.{}.bias"),
    })  # fmt: skip
