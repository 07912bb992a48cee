import torch
import torch.nn as nn
import torch.nn.functional as F


class ModulatedBlock(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.modulation = nn.Linear(width, 6 * width)
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.mixer = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, conditioning):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(F.silu(conditioning)).unsqueeze(1).chunk(6, dim=-1)
        hidden = self.norm1(x) * (1 + scale_a) + shift_a
        x = x + gate_a * self.mixer(hidden)
        hidden = self.norm2(x) * (1 + scale_m) + shift_m
        return x + gate_m * self.down(F.gelu(self.up(hidden)))


def build():
    return ModulatedBlock()


def inputs():
    return torch.randn(2, 7, 24), torch.randn(2, 24)
