import torch
import torch.nn as nn


class ClampedGlu(nn.Module):
    """Gate and value lie alternately in one layer's output, and both are clamped."""

    def __init__(self, width=16, inner=12, limit=1.5, alpha=1.702):
        super().__init__()
        self.limit, self.alpha = limit, alpha
        self.norm = nn.Parameter(torch.zeros(width))
        self.up = nn.Linear(width, 2 * inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        wide = x.float()
        hidden = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        hidden = (hidden * (1 + self.norm.float())).to(x.dtype)
        hidden = self.up(hidden)
        gate, value = hidden[..., ::2], hidden[..., 1::2]
        gate = gate.clamp(max=self.limit)
        value = value.clamp(min=-self.limit, max=self.limit)
        gate = gate * torch.sigmoid(self.alpha * gate)
        hidden = gate * (value + 1)
        return x + self.down(hidden)


def build():
    return ClampedGlu()


def inputs():
    return (torch.randn(2, 6, 16),)
