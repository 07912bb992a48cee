import torch
import torch.nn as nn
from loading import fill


class Samplers(nn.Module):
    """Both convolutions as products of patches, cut with strided windows."""

    def __init__(self, c=12):
        super().__init__()
        self.shrink_weight = nn.Parameter(torch.zeros(9 * c, 2 * c))
        self.shrink_bias = nn.Parameter(torch.zeros(2 * c))
        self.grow_weight = nn.Parameter(torch.zeros(18 * c, c))
        self.grow_bias = nn.Parameter(torch.zeros(c))

    def bordered(self, x, top, bottom, left, right):
        b, c, h, w = x.shape
        canvas = x.new_zeros(b, c, h + top + bottom, w + left + right)
        canvas[:, :, top : top + h, left : left + w] = x
        return canvas

    def patches(self, x, stride):
        windows = x.unfold(2, 3, stride).unfold(3, 3, stride)
        return windows.permute(0, 2, 3, 1, 4, 5).flatten(3)

    def forward(self, x):
        framed = self.bordered(x, 0, 1, 0, 1)
        half = self.patches(framed, stride=2) @ self.shrink_weight + self.shrink_bias
        half = half * torch.sigmoid(half)
        half = half.permute(0, 3, 1, 2)
        full = half.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        framed = self.bordered(full, 1, 1, 1, 1)
        out = self.patches(framed, stride=1) @ self.grow_weight + self.grow_bias
        return out.permute(0, 3, 1, 2)


def build(weights):
    arrays = {"shrink_bias": weights["down.bias"], "grow_bias": weights["up.bias"]}
    arrays["shrink_weight"] = weights["down.weight"].reshape(24, -1).T
    arrays["grow_weight"] = weights["up.weight"].reshape(12, -1).T
    return fill(Samplers(), arrays)
