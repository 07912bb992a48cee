import torch
import torch.nn as nn
from loading import fill


class EinsumPixels(nn.Module):
    """Rows and columns stay apart; every product is an einsum over channels or over both."""

    def __init__(self, c=8, g=4):
        super().__init__()
        self.g = g
        self.scale, self.shift = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        for name in ("wq", "wk", "wv", "wo"):
            self.register_parameter(name, nn.Parameter(torch.zeros(c, c)))
        for name in ("bq", "bk", "bv", "bo"):
            self.register_parameter(name, nn.Parameter(torch.zeros(c, 1, 1)))

    def normed(self, x):
        y = x.unflatten(1, (self.g, -1))
        y = y - y.mean((2, 3, 4), keepdim=True)
        y = y * torch.rsqrt(y.square().mean((2, 3, 4), keepdim=True) + 1e-6)
        y = y.flatten(1, 2)
        return y * self.scale[:, None, None] + self.shift[:, None, None]

    def forward(self, x):
        y = self.normed(x)
        q = torch.einsum("oc,bchw->bohw", self.wq, y) + self.bq
        k = torch.einsum("oc,bchw->bohw", self.wk, y) + self.bk
        v = torch.einsum("oc,bchw->bohw", self.wv, y) + self.bv
        logits = torch.einsum("bchw,bcij->bhwij", q, k).mul_(x.shape[1] ** -0.5)
        weights = torch.softmax(logits.flatten(3), dim=-1).view_as(logits)
        mixed = torch.einsum("bhwij,bcij->bchw", weights, v)
        out = torch.einsum("oc,bchw->bohw", self.wo, mixed) + self.bo
        return out.add_(x)


def build(weights):
    arrays = {"scale": weights["norm.weight"], "shift": weights["norm.bias"]}
    for new, old in {"q": "q", "k": "k", "v": "v", "o": "proj"}.items():
        arrays |= {f"w{new}": weights[f"{old}.weight"][:, :, 0, 0], f"b{new}": weights[f"{old}.bias"][:, None, None]}
    return fill(EinsumPixels(), arrays)
