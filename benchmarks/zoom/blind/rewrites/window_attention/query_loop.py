import torch
import torch.nn as nn
from loading import fill


class PlainLoops(nn.Module):
    """One query at a time against the slice of keys that it may see."""

    def __init__(self, dim=32, heads=4, shared=2, reach=3):
        super().__init__()
        self.heads, self.shared, self.hd, self.reach = heads, shared, dim // heads, reach
        self.wq = nn.Parameter(torch.zeros(heads, dim, self.hd))
        self.wk = nn.Parameter(torch.zeros(shared, dim, self.hd))
        self.wv = nn.Parameter(torch.zeros(shared, dim, self.hd))
        self.wo = nn.Parameter(torch.zeros(heads, self.hd, dim))

    def turn(self, x):
        half = self.hd // 2
        time = torch.arange(x.shape[1], dtype=torch.float32).unsqueeze(1)
        phase = time / 10000 ** (torch.arange(half, dtype=torch.float32) / half)
        rotor = torch.polar(torch.ones_like(phase), phase)
        z = torch.complex(x[..., :half].float(), x[..., half:].float()) * rotor
        return torch.cat([z.real, z.imag], dim=-1).to(x.dtype)

    def forward(self, x):
        per_group = self.heads // self.shared
        out = torch.zeros_like(x)
        keys = torch.stack([self.turn(x @ self.wk[g]) for g in range(self.shared)])
        values = torch.stack([x @ self.wv[g] for g in range(self.shared)])
        for h in range(self.heads):
            query = self.turn(x @ self.wq[h])
            key, value = keys[h // per_group], values[h // per_group]
            rows = []
            for t in range(x.shape[1]):
                start = max(0, t - self.reach + 1)
                near = key[:, start : t + 1]
                score = (near * query[:, t : t + 1]).sum(dim=2) * self.hd**-0.5
                weight = torch.softmax(score, dim=1)
                rows.append((weight.unsqueeze(2) * value[:, start : t + 1]).sum(dim=1))
            out += torch.stack(rows, dim=1) @ self.wo[h]
        return out


def build(weights):
    per_head = lambda name: weights[f"{name}_proj.weight"].reshape(-1, 8, 32).transpose(0, 2, 1)  # noqa: E731
    out = weights["o_proj.weight"].T.reshape(4, 8, 32)
    return fill(PlainLoops(), {"wq": per_head("q"), "wk": per_head("k"), "wv": per_head("v"), "wo": out})
