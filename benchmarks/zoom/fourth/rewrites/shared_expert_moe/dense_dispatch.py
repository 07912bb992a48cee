import numpy as np
import torch
import torch.nn as nn
from loading import fill


class DenseMixture(nn.Module):
    """Every expert sees every token; a table of weights, mostly zeros, combines them."""

    def __init__(self, d=20, f=16, n=6, k=2):
        super().__init__()
        self.k = k
        self.router = nn.Parameter(torch.zeros(d, n))
        self.w1, self.w3 = nn.Parameter(torch.zeros(n, d, f)), nn.Parameter(torch.zeros(n, d, f))
        self.w2 = nn.Parameter(torch.zeros(n, f, d))
        self.s1, self.s3 = nn.Parameter(torch.zeros(d, 2 * f)), nn.Parameter(torch.zeros(d, 2 * f))
        self.s2 = nn.Parameter(torch.zeros(2 * f, d))
        self.s_gate = nn.Parameter(torch.zeros(d, 1))

    def combine_table(self, x):
        scores = torch.softmax(x.float() @ self.router.float(), dim=-1)
        kept, places = scores.topk(self.k, dim=-1)
        kept = kept / kept.sum(-1, keepdim=True)
        table = torch.zeros_like(scores)
        return table.scatter(-1, places, kept).to(x.dtype)

    def forward(self, x):
        table = self.combine_table(x)
        gate = torch.einsum("btd,edf->btef", x, self.w1)
        up = torch.einsum("btd,edf->btef", x, self.w3)
        inner = gate * gate.sigmoid() * up
        inner = inner * table[..., None]
        routed = torch.einsum("btef,efd->btd", inner, self.w2)
        gate = x @ self.s1
        common = (gate * gate.sigmoid() * (x @ self.s3)) @ self.s2
        common = common * (x @ self.s_gate).sigmoid()
        return routed + common


def build(weights):
    arrays = {"router": weights["gate.weight"].T, "s_gate": weights["shared_expert_gate.weight"].T}
    for new, old in {"1": "gate_proj", "3": "up_proj", "2": "down_proj"}.items():
        arrays[f"w{new}"] = np.stack([weights[f"experts.{number}.{old}.weight"].T for number in range(6)])
        arrays[f"s{new}"] = weights[f"shared_expert.{old}.weight"].T
    return fill(DenseMixture(), arrays)
