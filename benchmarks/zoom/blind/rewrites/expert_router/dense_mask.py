import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class MoELayer(nn.Module):
    """Experts and the shared one stacked into three tensors; experts not chosen get zero."""

    def __init__(self, dim=16, inner=10, n=9, n_group=3, topk_group=2, top_k=3):
        super().__init__()
        self.n_group, self.topk_group, self.top_k = n_group, topk_group, top_k
        self.routed_scaling_factor = 2.5
        self.gate_weight = nn.Parameter(torch.zeros(n, dim))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(n))
        self.gate_up = nn.Parameter(torch.zeros(n + 1, dim, 2 * inner))
        self.down = nn.Parameter(torch.zeros(n + 1, inner, dim))

    def route(self, x):
        affinity = (x.float() @ self.gate_weight.float().T).sigmoid()
        biased = affinity + self.e_score_correction_bias.float()
        per_group = biased.unflatten(-1, (self.n_group, -1))
        group_score = per_group.sort(-1, descending=True).values[..., :2].sum(-1)
        threshold = group_score.sort(-1, descending=True).values[:, self.topk_group - 1, None]
        allowed = (group_score >= threshold).repeat_interleave(per_group.shape[-1], dim=-1)
        biased = torch.where(allowed, biased, -1e9)
        picked = torch.zeros_like(biased).scatter_(1, biased.argsort(-1, descending=True)[:, : self.top_k], 1.0)
        dense = affinity * picked
        dense = dense / dense.sum(-1, keepdim=True) * self.routed_scaling_factor
        return F.pad(dense, (0, 1), value=1.0).to(x.dtype)

    def forward(self, x):
        gate, up = torch.einsum("td,edi->tei", x, self.gate_up).chunk(2, dim=-1)
        per_expert = torch.einsum("tei,eid->ted", F.silu(gate) * up, self.down)
        return torch.einsum("te,ted->td", self.route(x), per_expert)


def build(weights):
    names = [f"experts.{index}" for index in range(9)] + ["shared"]
    stacked = {part: np.stack([weights[f"{name}.{part}.weight"].T for name in names]) for part in ("gate", "up", "down")}
    return fill(MoELayer(), {
        "gate_weight": weights["router.weight"], "e_score_correction_bias": weights["correction"],
        "gate_up": np.concatenate([stacked["gate"], stacked["up"]], axis=-1), "down": stacked["down"],
    })  # fmt: skip
