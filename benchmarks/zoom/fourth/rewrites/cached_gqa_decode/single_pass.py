import numpy as np
import torch
import torch.nn as nn
from loading import fill


class GroupedQueryAttention(nn.Module):
    """The same without a cache: the whole sequence in one causal pass."""

    def __init__(self, d=32, n_q=4, n_kv=2):
        super().__init__()
        self.n_q, self.n_kv, self.hd = n_q, n_kv, d // n_q
        self.gain = nn.Parameter(torch.ones(d))
        self.wqkv = nn.Linear(d, (n_q + 2 * n_kv) * self.hd)
        self.wo = nn.Linear(d, d, bias=False)

    def rope(self, x):
        """x: [batch, token, head, dim]; the pairs are (i, i + half), as complex numbers"""
        first, second = x.float().chunk(2, dim=-1)
        rates = 10000.0 ** (-torch.arange(0, self.hd, 2) / self.hd)
        phase = torch.arange(x.shape[1])[:, None, None] * rates
        turned = torch.complex(first, second) * torch.exp(1j * phase)
        return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)

    def forward(self, x):
        b, n, d = x.shape
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        h = (x * scale).to(x.dtype) * self.gain
        heads = self.wqkv(h).view(b, n, -1, self.hd)
        q, k, v = heads.split([self.n_q, self.n_kv, self.n_kv], dim=2)
        q, k = self.rope(q), self.rope(k)
        group = self.n_q // self.n_kv
        pair = torch.stack((k, v))
        pair = pair.unsqueeze(4).expand(-1, -1, -1, -1, group, -1).flatten(3, 4)
        logits = torch.einsum("bnhd,bmhd->bhnm", q, pair[0]) / self.hd**0.5
        allowed = torch.tril(torch.ones(n, n, dtype=torch.bool))
        logits = torch.where(allowed, logits, float("-inf"))
        weights = torch.softmax(logits, dim=-1)
        y = torch.einsum("bhnm,bmhd->bnhd", weights, pair[1])
        return x + self.wo(y.reshape(b, n, d))


def build(weights):
    arrays = {"gain": weights["input_layernorm.weight"], "wo.weight": weights["o_proj.weight"]}
    for part in ("weight", "bias"):
        arrays[f"wqkv.{part}"] = np.concatenate([weights[f"{name}_proj.{part}"] for name in "qkv"])
    return fill(GroupedQueryAttention(), arrays)
