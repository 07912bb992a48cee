import mlx.core as mx
import mlx.nn as nn
from loading import fill


class RMSNormVideo(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = mx.ones((channels,))

    def __call__(self, x):
        length = mx.linalg.norm(x.astype(mx.float32), axis=-1, keepdims=True)
        unit = x / mx.maximum(length, 1e-12)
        return (unit * x.shape[-1] ** 0.5).astype(x.dtype) * self.weight


class CausalConv3d(nn.Module):
    def __init__(self, channels, kernel=3):
        super().__init__()
        self.kernel = kernel
        self.weight = mx.zeros((channels, kernel, kernel, kernel, channels))
        self.bias = mx.zeros((channels,))

    def __call__(self, x):
        side = self.kernel // 2
        x = mx.pad(x, [(0, 0), (self.kernel - 1, 0), (side, side), (side, side), (0, 0)])
        return mx.conv3d(x, self.weight) + self.bias


class Block(nn.Module):
    def __init__(self, channels=10):
        super().__init__()
        self.norm = RMSNormVideo(channels)
        self.conv = CausalConv3d(channels)

    def __call__(self, x):
        x = x.transpose(0, 2, 3, 4, 1)
        y = nn.silu(self.norm(x))
        y = self.conv(y)
        y = x + y
        return y.transpose(0, 4, 1, 2, 3)


def build(weights):
    arrays = {"norm.weight": weights["gamma"].reshape(-1), "conv.bias": weights["conv.bias"]}
    arrays["conv.weight"] = weights["conv.weight"].transpose(0, 2, 3, 4, 1)
    return fill(Block(), arrays)
