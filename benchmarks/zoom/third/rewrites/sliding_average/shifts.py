import torch
import torch.nn as nn
from loading import fill, linears


class ShortConv(nn.Module):
    def __init__(self, d=14):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))
        self.vg = nn.Linear(d, 2 * d)
        self.o = nn.Linear(2 * d, d)
        self.filter = nn.Parameter(torch.zeros(4, d))

    def forward(self, x):
        y = nn.functional.rms_norm(x, x.shape[-1:], self.w, 1e-6)
        v, g = self.vg(y).tensor_split(2, dim=-1)
        out = v * self.filter[3]
        for back in range(1, 4):
            shifted = torch.zeros_like(v)
            shifted[:, back:] = v[:, :-back]
            out = out + shifted * self.filter[3 - back]
        out = out * g.sigmoid()
        return self.o(torch.cat((out, y), dim=-1)) + x


def build(weights):
    import numpy as np

    return fill(ShortConv(), linears(weights, {"o": "out"}) | {
        "w": weights["norm.weight"], "vg.weight": np.concatenate([weights["value.weight"], weights["gate.weight"]]),
        "vg.bias": np.concatenate([weights["value.bias"], weights["gate.bias"]]), "filter": weights["taps"][:, 0].T,
    })  # fmt: skip
