import numpy as np
import torch
import torch.nn as nn
from loading import fill


def unpacked(codes):
    """[rows, bytes] as [rows, 2 * bytes]"""
    second = torch.div(codes, 16, rounding_mode="floor")
    first = codes - 16 * second
    return torch.stack((first, second), dim=2).reshape(codes.shape[0], -1)


class Packed(nn.Module):
    """Multiplies with the bare codes; scales and zero points are brought in group by group."""

    def __init__(self, cin, cout, group=8):
        super().__init__()
        self.group = group
        self.register_buffer("codes", torch.zeros(cout, cin // 2, dtype=torch.uint8))
        self.register_buffer("offset", torch.zeros(cout, cin // group, dtype=torch.uint8))
        self.register_buffer("step", torch.zeros(cout, cin // group))

    def forward(self, x):
        whole = unpacked(self.codes).to(x.dtype)
        total = 0
        for number in range(self.step.shape[1]):
            columns = slice(number * self.group, (number + 1) * self.group)
            part = x[..., columns]
            product = part @ whole[:, columns].T
            product = product - part.sum(-1, keepdim=True) * self.offset[:, number].to(x.dtype)
            total = total + product.float() * self.step[:, number].float()
        return total.to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, d=32, f=48):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d))
        self.w_gate, self.w_up, self.w_down = Packed(d, f), Packed(d, f), Packed(f, d)

    def forward(self, x):
        wide = x.float()
        wide = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        h = wide.to(x.dtype) * self.gain
        gate, up = self.w_gate(h), self.w_up(h)
        return x + self.w_down(gate * torch.sigmoid(gate) * up)


def build(weights):
    arrays = {"gain": weights["norm.weight"]}
    for new, old in {"codes": "qweight", "offset": "zeros", "step": "scales"}.items():
        gate, up = np.split(weights[f"gate_up.{old}"], 2)
        arrays |= {f"w_gate.{new}": gate, f"w_up.{new}": up, f"w_down.{new}": weights[f"down.{old}"]}
    return fill(FeedForward(), arrays)
