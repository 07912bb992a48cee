import numpy as np
import torch
import torch.nn as nn
from loading import fill


def unit(x, eps=1e-12):
    return x / x.norm(dim=-1, keepdim=True).clamp_min(eps)


def step(state, q, k, v, fade, rate):
    """One token: state is [batch, heads, value, key]."""
    faded = fade[:, :, None, None] * state
    recalled = torch.einsum("bhvk,bhk->bhv", faded, k)
    correction = rate[:, :, None] * (v - recalled)
    state = faded + torch.einsum("bhv,bhk->bhvk", correction, k)
    return state, torch.einsum("bhvk,bhk->bhv", state, q)


class DeltaMixer(nn.Module):
    def __init__(self, dim=24, heads=2, dk=6, dv=8):
        super().__init__()
        self.heads, self.sizes = heads, (dk, dk, dv, dv)
        self.in_proj = nn.Linear(dim, heads * sum(self.sizes), bias=False)
        self.ba_proj = nn.Linear(dim, 2 * heads, bias=False)
        self.rate_log = nn.Parameter(torch.zeros(heads))
        self.dt = nn.Parameter(torch.zeros(heads))
        self.gain = nn.Parameter(torch.ones(dv))
        self.out = nn.Linear(heads * dv, dim, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v, z = self.in_proj(x).view(b, n, self.heads, -1).split(self.sizes, dim=-1)
        q, k, v = unit(q.float()), unit(k.float()), v.float()
        rate, a = self.ba_proj(x).chunk(2, dim=-1)
        rate = rate.sigmoid().float()
        width = torch.log1p(torch.exp(a.float() + self.dt.float()))
        fade = torch.exp(-torch.exp(self.rate_log.float()) * width)
        state = q.new_zeros(b, self.heads, self.sizes[2], self.sizes[0])
        rows = []
        for at in range(n):
            state, row = step(state, q[:, at], k[:, at], v[:, at], fade[:, at], rate[:, at])
            rows.append(row)
        y = torch.stack(rows, 1)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = y.to(x.dtype) * self.gain
        y = y * z * torch.sigmoid(z)
        return self.out(y.reshape(b, n, -1))


def build(weights):
    rows = [weights[f"{name}_proj.weight"].reshape(2, -1, 24) for name in "qkvz"]
    arrays = {"in_proj.weight": np.concatenate(rows, axis=1).reshape(-1, 24)}
    arrays["ba_proj.weight"] = np.concatenate([weights["b_proj.weight"], weights["a_proj.weight"]])
    arrays |= {"rate_log": weights["A_log"], "dt": weights["dt_bias"]}
    arrays |= {"gain": weights["norm.weight"], "out.weight": weights["out_proj.weight"]}
    return fill(DeltaMixer(), arrays)
