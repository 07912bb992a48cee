import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Pooler(nn.Module):
    def __init__(self, d=18, e=12):
        super().__init__()
        self.probe = nn.Parameter(torch.zeros(d))
        self.k_proj, self.v_proj = nn.Linear(d, d), nn.Linear(d, d)
        self.ln = nn.LayerNorm(d)
        self.proj = nn.Parameter(torch.zeros(e, d))

    def forward(self, tokens, keep):
        y = self.ln(tokens)
        logits = torch.matmul(self.k_proj(y), self.probe) * tokens.shape[-1] ** -0.5
        logits = logits + (1 - keep.to(logits.dtype)) * -1e9
        attn = F.softmax(logits, dim=1)
        summed = torch.bmm(attn.unsqueeze(1), self.v_proj(y)).squeeze(1)
        out = summed @ self.proj.t()
        return out / out.norm(p=2, dim=-1, keepdim=True)


def build(weights):
    return fill(
        Pooler(),
        linears(weights, {"k_proj": "key", "v_proj": "value", "ln": "norm"})
        | {"probe": weights["query"], "proj": weights["head.weight"]},
    )
