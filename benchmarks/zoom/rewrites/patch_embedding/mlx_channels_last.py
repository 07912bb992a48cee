import mlx.core as mx
import mlx.nn as nn
from loading import fill


class PatchEmbed(nn.Module):
    def __init__(self, channels=4, dims=24, patch=2):
        super().__init__()
        self.conv = nn.Conv2d(channels, dims, patch, stride=patch)
        self.pos_embed = mx.zeros((40, dims))
        self.norm = nn.LayerNorm(dims, eps=1e-6)

    def __call__(self, image):
        y = image.transpose(0, 2, 3, 1)
        y = self.conv(y)
        y = y.reshape(y.shape[0], -1, y.shape[-1])
        y = y + self.pos_embed[: y.shape[1]]
        return self.norm(y)


def build(weights):
    return fill(PatchEmbed(), {
        "conv.weight": weights["proj.weight"].transpose(0, 2, 3, 1), "conv.bias": weights["proj.bias"], "pos_embed": weights["positions"][0],
        "norm.weight": weights["norm.weight"], "norm.bias": weights["norm.bias"],
    })  # fmt: skip
