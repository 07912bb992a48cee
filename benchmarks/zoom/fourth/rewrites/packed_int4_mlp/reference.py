import torch
import torch.nn as nn
import torch.nn.functional as F


class Int4Linear(nn.Module):
    """Two weights in a byte, the low half first; a scale and a zero point for each group of inputs."""

    def __init__(self, inputs, outputs, group=8):
        super().__init__()
        self.group = group
        self.register_buffer("qweight", torch.randint(0, 256, (outputs, inputs // 2), dtype=torch.uint8))
        self.register_buffer("zeros", torch.randint(5, 11, (outputs, inputs // group), dtype=torch.uint8))
        self.register_buffer("scales", (0.5 + torch.rand(outputs, inputs // group)) / (5 * inputs**0.5))

    def dequantised(self):
        low = self.qweight & 15
        high = self.qweight >> 4
        codes = torch.stack([low, high], dim=-1).flatten(1)
        codes = codes.to(self.scales.dtype).unflatten(1, (-1, self.group))
        weight = codes - self.zeros.to(self.scales.dtype)[..., None]
        weight = weight * self.scales[..., None]
        return weight.flatten(1)

    def forward(self, x):
        return F.linear(x, self.dequantised())


class QuantisedMLP(nn.Module):
    def __init__(self, dim=32, hidden=48):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.gate_up = Int4Linear(dim, 2 * hidden)
        self.down = Int4Linear(hidden, dim)

    def forward(self, x):
        h = self.gate_up(self.norm(x))
        gate, up = h.chunk(2, dim=-1)
        h = F.silu(gate) * up
        return x + self.down(h)


def build():
    return QuantisedMLP()


def inputs():
    return (torch.randn(2, 7, 32),)
