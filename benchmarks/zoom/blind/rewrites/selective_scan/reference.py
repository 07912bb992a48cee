import torch
import torch.nn as nn
import torch.nn.functional as F


class SelectiveScan(nn.Module):
    def __init__(self, width=12, inner=16, states=4, rank=3, kernel=4):
        super().__init__()
        self.sizes = [rank, states, states]
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.zeros(inner, states))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = self.conv(u.transpose(1, 2))[..., :tokens].transpose(1, 2)
        u = F.silu(u)
        dt, B, C = self.x_proj(u).split(self.sizes, dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        A = -torch.exp(self.A_log)
        decay = torch.exp(dt[..., None] * A)
        fed = dt[..., None] * B[:, :, None] * u[..., None]
        state = torch.zeros_like(fed[:, 0])
        rows = []
        for step in range(tokens):
            state = decay[:, step] * state + fed[:, step]
            rows.append((state * C[:, step, None]).sum(-1))
        y = torch.stack(rows, dim=1) + self.D * u
        return self.out_proj(y * F.silu(z))


def build():
    return SelectiveScan()


def inputs():
    return (torch.randn(2, 6, 12),)
