import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class ChannelNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(dim, 1, 1)), nn.Parameter(torch.zeros(dim, 1, 1))

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        x = x - mean
        return x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6) * self.gamma + self.beta


class Block(nn.Module):
    """Never leaves NCHW: the linear layers are convolutions of one pixel."""

    def __init__(self, dim=8):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 5, groups=dim, padding="same", bias=False)
        self.norm = ChannelNorm(dim)
        self.pw1, self.pw2 = nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(3 * dim, dim, 1)
        self.grn_w, self.grn_b = nn.Parameter(torch.zeros(1, 3 * dim, 1, 1)), nn.Parameter(torch.zeros(1, 3 * dim, 1, 1))

    def grn(self, y):
        gx = torch.norm(y, p=2, dim=(2, 3), keepdim=True)
        nx = gx / (gx.mean(dim=1, keepdim=True) + 1e-6)
        return self.grn_w * (y * nx) + self.grn_b + y

    def forward(self, x):
        y = self.norm(self.dwconv(x))
        y = self.grn(F.gelu(self.pw1(y)))
        return self.pw2(y) + x


def build(weights):
    column = lambda name: weights[name][:, None, None]  # noqa: E731
    return fill(Block(), {
        "dwconv.weight": weights["depthwise.weight"], "norm.gamma": column("norm.weight"), "norm.beta": column("norm.bias"),
        "pw1.weight": weights["expand.weight"][:, :, None, None], "pw1.bias": weights["expand.bias"],
        "pw2.weight": weights["project.weight"][:, :, None, None], "pw2.bias": weights["project.bias"],
        "grn_w": column("response_gain")[None], "grn_b": column("response_bias")[None],
    })  # fmt: skip
