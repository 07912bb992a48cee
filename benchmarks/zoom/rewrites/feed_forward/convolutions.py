import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class ConvFeedForward(nn.Module):
    """Channels first: the linear layers are convolutions of width one."""

    def __init__(self, channels=20, inner=48):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels, eps=1e-5)
        self.norm_last = nn.LayerNorm(channels, eps=1e-5)
        self.expand = nn.Conv1d(channels, inner, 1)
        self.reduce = nn.Conv1d(inner, channels, 1)

    def forward(self, x):
        y = self.norm_last(x).transpose(1, 2)
        y = self.expand(y)
        y = F.gelu(y, approximate="tanh")
        y = self.reduce(y)
        return x + y.transpose(1, 2)


def build(weights):
    module = ConvFeedForward()
    del module.norm
    return fill(module, {
        "norm_last.weight": weights["norm.weight"], "norm_last.bias": weights["norm.bias"],
        "expand.weight": weights["fc_in.weight"][:, :, None], "expand.bias": weights["fc_in.bias"],
        "reduce.weight": weights["fc_out.weight"][:, :, None], "reduce.bias": weights["fc_out.bias"],
    })  # fmt: skip
