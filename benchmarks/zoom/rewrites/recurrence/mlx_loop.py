import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class Recurrent(nn.Module):
    def __init__(self, dims=16):
        super().__init__()
        self.conv = nn.Conv1d(dims, dims, 3, groups=dims)
        self.gate = nn.Linear(dims, dims)
        self.feed = nn.Linear(dims, dims)
        self.proj = nn.Linear(dims, dims)

    def __call__(self, x):
        y = mx.pad(x, [(0, 0), (2, 0), (0, 0)])
        y = nn.silu(self.conv(y))
        keep = mx.sigmoid(self.gate(y))
        feed = self.feed(y)
        h = mx.zeros((x.shape[0], x.shape[2]), dtype=x.dtype)
        outputs = []
        for t in range(x.shape[1]):
            h = feed[:, t] + keep[:, t] * (h - feed[:, t])
            outputs.append(h)
        return x + self.proj(mx.stack(outputs, axis=1))


def build(weights):
    arrays = linears(weights, {"gate": "forget", "feed": "value", "proj": "out"})
    return fill(Recurrent(), arrays | {"conv.weight": weights["conv.weight"].transpose(0, 2, 1), "conv.bias": weights["conv.bias"]})
