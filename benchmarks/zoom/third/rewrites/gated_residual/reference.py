import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedResidual(nn.Module):
    """Two feed-forward layers one after the other, each with a gate made from the time."""

    def __init__(self, width=16, inner=40):
        super().__init__()
        self.time = nn.Linear(12, 4 * width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.up1, self.down1 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.up2, self.down2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, t):
        scale1, gate1, scale2, gate2 = self.time(F.silu(t)).unsqueeze(1).chunk(4, -1)
        x = x + torch.tanh(gate1) * self.down1(F.gelu(self.up1(self.norm1(x) * (1 + scale1)), approximate="tanh"))
        x = x + torch.tanh(gate2) * self.down2(F.gelu(self.up2(self.norm2(x) * (1 + scale2)), approximate="tanh"))
        return x


def build():
    return GatedResidual()


def inputs():
    return torch.randn(2, 6, 16), torch.randn(2, 12)
