import torch
import torch.nn as nn
from loading import fill


class Kernelised(nn.Module):
    def __init__(self, d=20, h=2):
        super().__init__()
        self.h = h
        self.w_in = nn.Parameter(torch.zeros(3 * d, d))
        self.w_out = nn.Parameter(torch.zeros(d, d))
        self.gain = nn.Parameter(torch.ones(d))

    def phi(self, x):
        return torch.where(x > 0, x + 1, x.exp())

    def forward(self, x):
        n = x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        y = x * n * self.gain
        q, k, v = torch.einsum("btd,ed->bte", y, self.w_in).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.h, -1)) for t in (q, k, v))
        q, k = self.phi(q), self.phi(k)
        kv = torch.einsum("bthd,bthe->bhde", k, v)
        z = torch.einsum("bthd,bhd->bth", q, k.sum(dim=1))
        out = torch.einsum("bthd,bhde->bthe", q, kv)
        out = out / (z + 1e-6).unsqueeze(-1)
        return x + out.flatten(2) @ self.w_out.t()


def build(weights):
    import numpy as np

    return fill(Kernelised(), {"w_in": np.concatenate([weights[f"{name}.weight"] for name in "qkv"]), "w_out": weights["out.weight"],
                               "gain": weights["norm.weight"]})  # fmt: skip
