"""The attention of reference.py, ported to MLX. It runs without an error, and its result is wrong."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np


def rotate(x, cos, sin):
    """x: [heads, tokens, channels]"""
    a, b = mx.split(x, 2, axis=-1)
    return mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(width, width) for _ in range(4))

    def __call__(self, x, cos, sin):
        tokens, width = x.shape
        q, k, v = (
            layer(x).reshape(tokens, self.heads, -1).transpose(1, 0, 2) for layer in (self.to_q, self.to_k, self.to_v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        scores = q @ k.swapaxes(-1, -2) * (width // self.heads) ** -0.5
        mixed = mx.softmax(scores, axis=-1) @ v
        return self.to_out(mixed.transpose(1, 0, 2).reshape(tokens, width))


if __name__ == "__main__":
    given = np.load("weights.npz")
    attention = Attention()
    attention.load_weights([(name, mx.array(given[name])) for name in given.files if name[0] != "_"])
    mx.eval(attention(*(mx.array(given[name]) for name in ("_x", "_cos", "_sin"))))
