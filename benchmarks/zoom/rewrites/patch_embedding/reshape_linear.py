import torch
import torch.nn as nn
from loading import fill


class Patchify(nn.Module):
    def __init__(self, channels=4, dim=24, p=2):
        super().__init__()
        self.p = p
        self.embed = nn.Linear(channels * p * p, dim)
        self.pos = nn.Parameter(torch.zeros(40, dim))
        self.ln = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        b, c, h, w = x.shape
        p = self.p
        x = x.view(b, c, h // p, p, w // p, p)
        x = x.permute(0, 2, 4, 1, 3, 5)
        x = x.reshape(b, (h // p) * (w // p), c * p * p)
        x = self.embed(x)
        x = x + self.pos[: x.shape[1]]
        return self.ln(x)


def build(weights):
    return fill(Patchify(), {
        "embed.weight": weights["proj.weight"].reshape(24, -1), "embed.bias": weights["proj.bias"], "pos": weights["positions"][0],
        "ln.weight": weights["norm.weight"], "ln.bias": weights["norm.bias"],
    })  # fmt: skip
