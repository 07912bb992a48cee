import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class ScanWithoutLoop(nn.Module):
    """All steps at once: the state after t is a sum over s <= t, each fed by what decayed since."""

    def __init__(self, d_model=12, d_inner=16, d_state=4, dt_rank=3, d_conv=4):
        super().__init__()
        self.dt_rank, self.d_state = dt_rank, d_state
        self.up, self.gate = nn.Linear(d_model, d_inner, bias=False), nn.Linear(d_model, d_inner, bias=False)
        self.conv1d = nn.Conv1d(d_inner, d_inner, d_conv, groups=d_inner)
        self.to_dt = nn.Linear(d_inner, dt_rank, bias=False)
        self.to_b, self.to_c = nn.Linear(d_inner, d_state, bias=False), nn.Linear(d_inner, d_state, bias=False)
        self.dt = nn.Linear(dt_rank, d_inner)
        self.log_a = nn.Parameter(torch.zeros(d_inner, d_state))
        self.skip = nn.Parameter(torch.ones(d_inner))
        self.down = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, x):
        L = x.shape[1]
        u = self.up(x).mT
        u = self.conv1d(F.pad(u, (self.conv1d.kernel_size[0] - 1, 0))).mT
        u = u * u.sigmoid()
        delta = F.softplus(self.dt(self.to_dt(u)))
        B, C = self.to_b(u), self.to_c(u)
        rate = torch.einsum("bld,dn->bldn", delta, self.log_a.exp())
        total = rate.cumsum(dim=1)
        since = total[:, None] - total[:, :, None]  # batch, source, time, inner, state: negative of the log of what is left
        causal = torch.ones(L, L, dtype=torch.bool, device=x.device).triu()
        left = torch.where(causal[:, :, None, None], torch.exp(-since), 0)
        driven = torch.einsum("bsd,bsn->bsdn", delta * u, B)
        y = torch.einsum("bstdn,bsdn,btn->btd", left, driven, C)
        y = y + u * self.skip
        return self.down(y * F.silu(self.gate(x)))


def build(weights):
    up, gate = weights["in_proj.weight"][:16], weights["in_proj.weight"][16:]
    dt, b, c = weights["x_proj.weight"][:3], weights["x_proj.weight"][3:7], weights["x_proj.weight"][7:]
    return fill(ScanWithoutLoop(), {
        "up.weight": up, "gate.weight": gate, "conv1d.weight": weights["conv.weight"], "conv1d.bias": weights["conv.bias"], "to_dt.weight": dt,
        "to_b.weight": b, "to_c.weight": c, "dt.weight": weights["dt_proj.weight"], "dt.bias": weights["dt_proj.bias"],
        "log_a": weights["A_log"], "skip": weights["D"], "down.weight": weights["out_proj.weight"],
    })  # fmt: skip
