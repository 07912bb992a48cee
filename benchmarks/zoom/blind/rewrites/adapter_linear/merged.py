import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class Merged(nn.Module):
    """The adapter is merged into the weight first, then there is one product."""

    def __init__(self, d=16, o=12, r=4):
        super().__init__()
        self.alpha, self.r = 12, r
        self.W, self.b = nn.Parameter(torch.zeros(d, d)), nn.Parameter(torch.zeros(d))
        self.A, self.B = nn.Parameter(torch.zeros(r, d)), nn.Parameter(torch.zeros(d, r))
        self.m = nn.Parameter(torch.ones(d, 1))
        self.head = nn.Linear(d, o)

    def forward(self, x):
        direction = torch.addmm(self.W, self.B, self.A, alpha=self.alpha / self.r)
        norm = direction.norm(p=2, dim=1, keepdim=True)
        weight = self.m * direction / norm
        y = torch.einsum("bti,oi->bto", x, weight) + self.b
        return self.head(F.gelu(y))


def build(weights):
    return fill(Merged(), {
        "W": weights["base.weight"], "b": weights["base.bias"], "A": weights["lora_a.weight"], "B": weights["lora_b.weight"],
        "m": weights["magnitude"][:, None], "head.weight": weights["out.weight"], "head.bias": weights["out.bias"],
    })  # fmt: skip
