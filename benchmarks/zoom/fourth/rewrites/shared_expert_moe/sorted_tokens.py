import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


def swiglu(x, fused, down):
    gate, up = F.linear(x, fused).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


class GroupedExperts(nn.Module):
    """Tokens sorted by expert, so that each expert gets one piece of a long row."""

    def __init__(self, d=20, f=16, n=6, k=2):
        super().__init__()
        self.n, self.k = n, k
        self.router = nn.Linear(d, n, bias=False)
        self.fused = nn.Parameter(torch.zeros(n, 2 * f, d))
        self.down = nn.Parameter(torch.zeros(n, d, f))
        self.common_fused = nn.Parameter(torch.zeros(4 * f, d))
        self.common_down = nn.Parameter(torch.zeros(d, 2 * f))
        self.common_gate = nn.Linear(d, 1, bias=False)

    def route(self, x):
        logits = x.float() @ self.router.weight.float().T
        best, expert = logits.topk(self.k, dim=-1)
        share = torch.softmax(best, dim=-1)
        return share.flatten().to(x.dtype), expert.flatten()

    def forward(self, x):
        flat = x.flatten(0, 1)
        share, expert = self.route(flat)
        order = torch.argsort(expert, stable=True)
        sources = order // self.k
        counts = torch.bincount(expert, minlength=self.n).tolist()
        pieces = flat[sources].split(counts)
        results = [swiglu(piece, self.fused[at], self.down[at]) for at, piece in enumerate(pieces)]
        scaled = torch.cat(results) * share[order, None]
        out = torch.zeros_like(flat).index_add(0, sources, scaled)
        common = swiglu(flat, self.common_fused, self.common_down)
        out = out + common * F.sigmoid(self.common_gate(flat))
        return out.view(x.shape)


def build(weights):
    def both(name):
        return np.concatenate([weights[f"{name}.gate_proj.weight"], weights[f"{name}.up_proj.weight"]])

    arrays = {"router.weight": weights["gate.weight"], "common_gate.weight": weights["shared_expert_gate.weight"]}
    arrays["fused"] = np.stack([both(f"experts.{number}") for number in range(6)])
    arrays["down"] = np.stack([weights[f"experts.{number}.down_proj.weight"] for number in range(6)])
    arrays["common_fused"] = both("shared_expert")
    arrays["common_down"] = weights["shared_expert.down_proj.weight"]
    return fill(GroupedExperts(), arrays)
