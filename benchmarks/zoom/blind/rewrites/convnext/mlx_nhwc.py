import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class GRN(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.gamma = mx.zeros((dims,))
        self.beta = mx.zeros((dims,))

    def __call__(self, x):
        g = mx.sqrt(mx.square(x).sum(axis=(1, 2), keepdims=True))
        n = g / (g.mean(axis=-1, keepdims=True) + 1e-6)
        return self.gamma * (x * n) + self.beta + x


class ConvNeXtV2(nn.Module):
    def __init__(self, dims=8):
        super().__init__()
        self.dwconv = nn.Conv2d(dims, dims, 5, padding=2, groups=dims, bias=False)
        self.norm = nn.LayerNorm(dims, eps=1e-6)
        self.pwconv1 = nn.Linear(dims, 3 * dims)
        self.grn = GRN(3 * dims)
        self.pwconv2 = nn.Linear(3 * dims, dims)

    def __call__(self, x):
        x = x.transpose(0, 2, 3, 1)
        y = self.dwconv(x)
        y = self.norm(y)
        y = nn.gelu(self.pwconv1(y))
        y = self.grn(y)
        x = x + self.pwconv2(y)
        return x.transpose(0, 3, 1, 2)


def build(weights):
    arrays = linears(weights, {"norm": "norm", "pwconv1": "expand", "pwconv2": "project"})
    arrays |= {"grn.gamma": weights["response_gain"], "grn.beta": weights["response_bias"]}
    return fill(ConvNeXtV2(), arrays | {"dwconv.weight": weights["depthwise.weight"].transpose(0, 2, 3, 1)})
