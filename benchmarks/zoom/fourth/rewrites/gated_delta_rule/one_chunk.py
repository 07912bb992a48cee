import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class ChunkedDelta(nn.Module):
    """The whole sequence as one chunk: a triangular system gives all corrections at once."""

    def __init__(self, d=24, h=2, dk=6, dv=8):
        super().__init__()
        self.h = h
        self.query, self.key = nn.Linear(d, h * dk, bias=False), nn.Linear(d, h * dk, bias=False)
        self.value, self.gate = nn.Linear(d, h * dv, bias=False), nn.Linear(d, h * dv, bias=False)
        self.write, self.forget = nn.Linear(d, h, bias=False), nn.Linear(d, h, bias=False)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(h)), nn.Parameter(torch.zeros(h))
        self.norm_weight = nn.Parameter(torch.ones(dv))
        self.merge = nn.Linear(h * dv, d, bias=False)

    def heads(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def chunk(self, q, k, v, log_fade, write):
        n = q.shape[2]
        total = log_fade.cumsum(-1)
        apart = total[..., :, None] - total[..., None, :]
        fade = apart.tril().exp().tril()
        overlap = (k @ k.mT) * fade
        system = torch.eye(n) + write[..., None] * overlap.tril(-1)
        corrections = torch.linalg.solve_triangular(system, write[..., None] * v, upper=False)
        seen = (q @ k.mT) * fade
        seen = seen.tril(0)
        return seen @ corrections

    def forward(self, x):
        q = F.normalize(self.heads(self.query(x)).float(), dim=-1)
        k = F.normalize(self.heads(self.key(x)).float(), dim=-1)
        v = self.heads(self.value(x)).float()
        write = torch.sigmoid(self.write(x)).float().transpose(1, 2)
        forget = F.softplus(self.forget(x).float() + self.dt_bias.float())
        log_fade = -(self.A_log.float().exp() * forget).transpose(1, 2)
        y = self.chunk(q, k, v, log_fade, write).to(x.dtype)
        y = F.rms_norm(y, y.shape[-1:], self.norm_weight, 1e-6)
        y = y * F.silu(self.heads(self.gate(x)))
        return self.merge(y.transpose(1, 2).flatten(2))


def build(weights):
    names = {"query": "q", "key": "k", "value": "v", "gate": "z", "write": "b", "forget": "a", "merge": "out"}
    arrays = linears(weights, {new: f"{old}_proj" for new, old in names.items()})
    arrays |= {"A_log": weights["A_log"], "dt_bias": weights["dt_bias"], "norm_weight": weights["norm.weight"]}
    return fill(ChunkedDelta(), arrays)
