import torch
import torch.nn as nn
import torch.nn.functional as F


class AdapterLinear(nn.Module):
    """A layer with a low-rank adapter whose rows are brought to learned lengths, inside a small feed-forward."""

    def __init__(self, width=16, out=12, rank=4, alpha=12):
        super().__init__()
        self.scale = alpha / rank
        self.base = nn.Linear(width, width)
        self.lora_a = nn.Linear(width, rank, bias=False)
        self.lora_b = nn.Linear(rank, width, bias=False)
        self.magnitude = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, out)

    def forward(self, x):
        adapted = self.base.weight + self.scale * self.lora_b.weight @ self.lora_a.weight
        length = torch.linalg.vector_norm(adapted, dim=1)
        hidden = F.linear(x, self.base.weight)
        delta = self.lora_b(self.lora_a(x))
        hidden = hidden + self.scale * delta
        hidden = hidden * (self.magnitude / length) + self.base.bias
        return self.out(F.gelu(hidden))


def build():
    return AdapterLinear()


def inputs():
    return (torch.randn(2, 5, 16),)
