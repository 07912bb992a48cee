import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Conditioned(nn.Module):
    """The picture as rows of pixels, but for the one convolution that looks at neighbours."""

    def __init__(self, c=8, d=10):
        super().__init__()
        self.gn_w, self.gn_b = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.conv_in = nn.Conv2d(c, c, 3, padding=1)
        self.to_scale, self.to_shift = nn.Linear(d, c), nn.Linear(d, c)
        self.conv_out = nn.Linear(c, c)

    def forward(self, x, cond):
        b, c, h, w = x.shape
        g = x.reshape(b, 4, c // 4 * h * w)
        g = (g - g.mean(-1, keepdim=True)) * torch.rsqrt(g.var(-1, keepdim=True, unbiased=False) + 1e-6)
        g = g.reshape(b, c, h, w) * self.gn_w.view(1, c, 1, 1) + self.gn_b.view(1, c, 1, 1)
        g = self.conv_in(g * torch.sigmoid(g))
        rows = g.flatten(2).transpose(1, 2)
        cond = F.silu(cond)
        rows = rows * (1 + self.to_scale(cond).unsqueeze(1))
        rows = rows + self.to_shift(cond).unsqueeze(1)
        rows = self.conv_out(F.gelu(rows))
        return x + rows.transpose(1, 2).reshape(b, c, h, w)


def build(weights):
    film, bias = weights["film.weight"], weights["film.bias"]
    return fill(Conditioned(), linears(weights, {"conv_in": "conv"}) | {
        "gn_w": weights["norm.weight"], "gn_b": weights["norm.bias"], "to_scale.weight": film[:8], "to_scale.bias": bias[:8],
        "to_shift.weight": film[8:], "to_shift.bias": bias[8:], "conv_out.weight": weights["mix.weight"][:, :, 0, 0],
        "conv_out.bias": weights["mix.bias"],
    })  # fmt: skip
