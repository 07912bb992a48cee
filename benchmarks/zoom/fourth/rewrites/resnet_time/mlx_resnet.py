import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class ResnetBlock(nn.Module):
    def __init__(self, in_channels=16, out_channels=24, temb_channels=20):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, in_channels, eps=1e-5, pytorch_compatible=True)
        self.conv1 = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)
        self.time = nn.Linear(temb_channels, out_channels)
        self.norm2 = nn.GroupNorm(4, out_channels, eps=1e-5, pytorch_compatible=True)
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1)
        self.shortcut = nn.Linear(in_channels, out_channels)

    def __call__(self, x, temb):
        x = mx.transpose(x, (0, 2, 3, 1))
        y = nn.silu(self.norm1(x))
        y = self.conv1(y)
        y = y + self.time(nn.silu(temb))[:, None, None]
        z = nn.silu(self.norm2(y))
        z = self.conv2(z)
        residual = self.shortcut(x)
        return mx.transpose(residual + z, (0, 3, 1, 2))


def build(weights):
    arrays = linears(weights, {"norm1": "norm1", "norm2": "norm2", "time": "time_emb_proj"})
    for name in ("conv1", "conv2"):
        arrays[f"{name}.weight"] = weights[f"{name}.weight"].transpose(0, 2, 3, 1)
        arrays[f"{name}.bias"] = weights[f"{name}.bias"]
    arrays["shortcut.weight"] = weights["conv_shortcut.weight"][:, :, 0, 0]
    arrays["shortcut.bias"] = weights["conv_shortcut.bias"]
    return fill(ResnetBlock(), arrays)
