import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SparseMoeBlock(nn.Module):
    """Each token goes to its best experts, and all tokens to one that is shared."""

    def __init__(self, dim=20, hidden=16, experts=6, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))
        self.shared_expert = Expert(dim, 2 * hidden)
        self.shared_expert_gate = nn.Linear(dim, 1, bias=False)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        logits = F.linear(tokens.float(), self.gate.weight.float())
        probabilities = F.softmax(logits, dim=-1)
        weights, chosen = torch.topk(probabilities, self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)

        routed = torch.zeros_like(tokens)
        for place in range(self.top_k):
            for number, expert in enumerate(self.experts):
                mine = chosen[:, place] == number
                routed[mine] += expert(tokens[mine]) * weights[mine, place, None]

        shared = self.shared_expert(tokens)
        shared = torch.sigmoid(self.shared_expert_gate(tokens)) * shared
        return (routed + shared).view_as(x)


def build():
    return SparseMoeBlock()


def inputs():
    return (torch.randn(2, 8, 20),)
