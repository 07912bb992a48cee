import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class DoRALinear(nn.Module):
    def __init__(self, dims=16, rank=4, scale=3.0):
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(dims, dims)
        self.lora_a, self.lora_b = mx.zeros((dims, rank)), mx.zeros((rank, dims))
        self.m = mx.ones((dims,))

    def __call__(self, x):
        w = self.linear.weight
        y = x @ w.T
        z = (x @ self.lora_a) @ self.lora_b
        out = y + self.scale * z
        adapted = w + (self.scale * self.lora_b.T) @ self.lora_a.T
        denom = mx.sqrt(mx.square(adapted).sum(axis=1))
        return (self.m / denom) * out + self.linear.bias


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = DoRALinear()
        self.down = nn.Linear(16, 12)

    def __call__(self, x):
        return self.down(nn.gelu(self.up(x)))


def build(weights):
    arrays = linears(weights, {"up.linear": "base", "down": "out"}) | {"up.m": weights["magnitude"]}
    return fill(FeedForward(), arrays | {"up.lora_a": weights["lora_a.weight"].T, "up.lora_b": weights["lora_b.weight"].T})
