import mlx.nn as nn
from loading import fill


class ResBlock(nn.Module):
    def __init__(self, in_channels=8, out_channels=12, temb_channels=16):
        super().__init__()
        self.norm_in = nn.GroupNorm(4, in_channels, eps=1e-6, pytorch_compatible=True)
        self.conv_in = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.emb = nn.Linear(temb_channels, out_channels)
        self.norm_out = nn.GroupNorm(4, out_channels, eps=1e-6, pytorch_compatible=True)
        self.conv_out = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.skip = nn.Linear(in_channels, out_channels)

    def __call__(self, x, temb):
        x = x.transpose(0, 2, 3, 1)
        y = nn.silu(self.norm_in(x))
        y = self.conv_in(y)
        t = self.emb(nn.silu(temb))[:, None, None]
        y = y + t
        y = nn.silu(self.norm_out(y))
        y = self.conv_out(y)
        y = y + self.skip(x)
        return y.transpose(0, 3, 1, 2)


def build(weights):
    arrays = {}
    for new, old in {"norm_in": "norm1", "conv_in": "conv1", "emb": "time_proj", "norm_out": "norm2", "conv_out": "conv2", "skip": "shortcut"}.items():
        weight = weights[f"{old}.weight"]
        if new == "skip":
            weight = weight[:, :, 0, 0]
        elif weight.ndim == 4:
            weight = weight.transpose(0, 2, 3, 1)
        arrays |= {f"{new}.weight": weight, f"{new}.bias": weights[f"{old}.bias"]}
    return fill(ResBlock(), arrays)
