import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Dispatch(nn.Module):
    """Tokens are sorted into the experts' lists and added back at their places."""

    def __init__(self, dim=16, inner=10, count=9):
        super().__init__()
        self.count, self.group_size, self.route_scale = count, 3, 2.5
        self.gate = nn.Linear(dim, count, bias=False)
        self.gate_bias = nn.Parameter(torch.zeros(count))
        self.w1 = nn.ModuleList(nn.Linear(dim, inner, bias=False) for _ in range(count + 1))
        self.w2 = nn.ModuleList(nn.Linear(inner, dim, bias=False) for _ in range(count + 1))
        self.w3 = nn.ModuleList(nn.Linear(dim, inner, bias=False) for _ in range(count + 1))

    def expert(self, index, x):
        return self.w2[index](F.silu(self.w1[index](x)).mul_(self.w3[index](x)))

    def forward(self, x):
        logits = x.float().matmul(self.gate.weight.float().t())
        probs = logits.sigmoid()
        biased = probs + self.gate_bias.float()
        keep = []
        for row in biased:
            groups = row.split(self.group_size)
            strength = torch.stack([group.topk(2)[0].sum() for group in groups])
            worst = int(strength.argmin())
            row = row.clone()
            row[worst * self.group_size : (worst + 1) * self.group_size] = float("-inf")
            keep.append(row.topk(3)[1])
        keep = torch.stack(keep)
        weight = torch.take_along_dim(probs, keep, dim=1)
        weight /= weight.sum(dim=1, keepdim=True)
        weight *= self.route_scale
        weight = weight.type_as(x)
        y = torch.zeros_like(x)
        for index in range(self.count):
            token, slot = torch.where(keep == index)
            if len(token):
                y.index_add_(0, token, self.expert(index, x[token]) * weight[token, slot, None])
        return y + self.expert(self.count, x)


def build(weights):
    names = {"gate": "router"}
    for new, old in {"w1": "gate", "w2": "down", "w3": "up"}.items():
        names |= {f"{new}.{index}": f"experts.{index}.{old}" for index in range(9)} | {f"{new}.9": f"shared.{old}"}
    return fill(Dispatch(), linears(weights, names) | {"gate_bias": weights["correction"]})
