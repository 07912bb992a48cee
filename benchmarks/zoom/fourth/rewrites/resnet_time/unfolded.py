import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Grouped(nn.Module):
    def __init__(self, channels, groups=4):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        n, c, h, w = x.shape
        rows = x.reshape(n, self.groups, c // self.groups, h * w).float()
        rows = rows - rows.mean(dim=(2, 3), keepdim=True)
        spread = rows.square().mean(dim=(2, 3), keepdim=True)
        rows = rows * torch.rsqrt(spread + 1e-5)
        flat = rows.reshape(n, c, h * w).to(x.dtype)
        flat = flat * self.weight[:, None] + self.bias[:, None]
        return flat.reshape(n, c, h, w)


class MatmulConv(nn.Module):
    """3 x 3 convolution as a product with the unfolded patches."""

    def __init__(self, cin, cout):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(cout, cin * 9))
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        columns = F.unfold(x, kernel_size=3, padding=1)
        return (self.weight @ columns + self.bias[:, None]).unflatten(2, x.shape[2:])


class Residual(nn.Module):
    def __init__(self, cin=16, cout=24, ct=20):
        super().__init__()
        self.gn_in, self.gn_out = Grouped(cin), Grouped(cout)
        self.first, self.second = MatmulConv(cin, cout), MatmulConv(cout, cout)
        self.time = nn.Linear(ct, cout)
        self.skip = nn.Linear(cin, cout)

    def forward(self, x, t):
        y = self.gn_in(x)
        y = self.first(y * y.sigmoid())
        offset = self.time(t * t.sigmoid())
        y = self.gn_out(y + offset.view(*offset.shape, 1, 1))
        y = self.second(y * y.sigmoid())
        straight = self.skip(x.movedim(1, -1)).movedim(-1, 1)
        return y + straight


def build(weights):
    arrays = linears(weights, {"gn_in": "norm1", "gn_out": "norm2", "time": "time_emb_proj"})
    for new, old in {"first": "conv1", "second": "conv2", "skip": "conv_shortcut"}.items():
        arrays[f"{new}.weight"] = weights[f"{old}.weight"].reshape(24, -1)
        arrays[f"{new}.bias"] = weights[f"{old}.bias"]
    return fill(Residual(), arrays)
