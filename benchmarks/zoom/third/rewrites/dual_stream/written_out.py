import torch
import torch.nn as nn
from loading import fill, linears


class TwoStreams(nn.Module):
    def __init__(self, d=24, n_head=3):
        super().__init__()
        self.n_head, self.d = n_head, d
        for side in "ab":
            setattr(self, f"{side}_q", nn.Linear(d, d))
            setattr(self, f"{side}_k", nn.Linear(d, d))
            setattr(self, f"{side}_v", nn.Linear(d, d))
            setattr(self, f"{side}_o", nn.Linear(d, d))
            setattr(self, f"{side}_g", nn.Parameter(torch.ones(d)))
            setattr(self, f"{side}_s", nn.Parameter(torch.zeros(d)))

    def normed(self, x, gain, shift):
        centred = x - x.mean(-1, keepdim=True)
        spread = centred.square().mean(-1, keepdim=True)
        return centred / torch.sqrt(spread + 1e-6) * gain + shift

    def heads(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.n_head, -1)

    def forward(self, a, b):
        na, nb = self.normed(a, self.a_g, self.a_s), self.normed(b, self.b_g, self.b_s)
        q = torch.cat([self.heads(self.a_q(na)), self.heads(self.b_q(nb))], dim=1)
        k = torch.cat([self.heads(self.a_k(na)), self.heads(self.b_k(nb))], dim=1)
        v = torch.cat([self.heads(self.a_v(na)), self.heads(self.b_v(nb))], dim=1)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / (self.d // self.n_head) ** 0.5
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(a.shape[0], -1, self.d)
        ya, yb = y.split([a.shape[1], b.shape[1]], dim=1)
        return torch.cat([self.a_o(ya) + a, self.b_o(yb) + b], dim=1)


def build(weights):
    arrays = {}
    for side in "ab":
        whole, bias = weights[f"{side}_qkv.weight"], weights[f"{side}_qkv.bias"]
        for place, name in enumerate("qkv"):
            arrays[f"{side}_{name}.weight"] = whole[24 * place : 24 * place + 24]
            arrays[f"{side}_{name}.bias"] = bias[24 * place : 24 * place + 24]
        arrays |= linears(weights, {f"{side}_o": f"{side}_out"})
        arrays |= {f"{side}_g": weights[f"{side}_norm.weight"], f"{side}_s": weights[f"{side}_norm.bias"]}
    return fill(TwoStreams(), arrays)
