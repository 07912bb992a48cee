import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RoutedExperts(nn.Module):
    """Experts come in groups: the best groups first, then the best experts of those, and one expert that sees every token."""

    def __init__(self, width=16, inner=10, experts=9, groups=3, kept_groups=2, chosen=3, scale=2.5):
        super().__init__()
        self.groups, self.kept_groups, self.chosen, self.scale = groups, kept_groups, chosen, scale
        self.router = nn.Linear(width, experts, bias=False)
        self.correction = nn.Parameter(torch.zeros(experts))
        self.experts = nn.ModuleList(Expert(width, inner) for _ in range(experts))
        self.shared = Expert(width, inner)

    def forward(self, x):
        scores = torch.sigmoid(F.linear(x.float(), self.router.weight.float()))
        ranked = scores + self.correction.float()
        grouped = ranked.view(len(x), self.groups, -1)
        best_groups = grouped.topk(2, dim=-1).values.sum(-1).topk(self.kept_groups, dim=-1).indices
        kept = torch.zeros(len(x), self.groups, dtype=torch.bool).scatter(1, best_groups, True)
        ranked = grouped.masked_fill(~kept[:, :, None], float("-inf")).flatten(1)
        indices = ranked.topk(self.chosen, dim=-1).indices
        weights = scores.gather(1, indices)
        weights = weights / weights.sum(-1, keepdim=True)
        weights = (weights * self.scale).to(x.dtype)
        out = self.shared(x)
        for index, expert in enumerate(self.experts):
            share = (weights * (indices == index)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        return out


def build():
    return RoutedExperts()


def inputs():
    return (torch.randn(6, 16),)
