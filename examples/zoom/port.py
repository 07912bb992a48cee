"""The block of reference.py, ported to MLX under names of its own, with one mistake in it."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

NAMES = {"attn.to_q": "attention.q_proj", "attn.to_k": "attention.k_proj", "attn.to_v": "attention.v_proj", "attn.to_out": "attention.o_proj",
         "attn.norm_q": "attention.q_norm", "attn.norm_k": "attention.k_norm", "mod": "modulation", "up": "fc1", "down": "fc2"}  # fmt: skip


def rope(x, cos, sin):
    """x: [batch, tokens, heads, channels]"""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = mx.stack([even * cos + odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))
        self.q_norm, self.k_norm = (nn.RMSNorm(width // heads, eps=1e-6) for _ in range(2))

    def __call__(self, x, cos, sin):
        batch, tokens, width = x.shape
        q = self.q_norm(self.q_proj(x).reshape(batch, tokens, self.heads, -1))
        k = self.k_norm(self.k_proj(x).reshape(batch, tokens, self.heads, -1))
        v = self.v_proj(x).reshape(batch, tokens, self.heads, -1).transpose(0, 2, 1, 3)
        q = rope(q, cos[:, None], sin[:, None]).transpose(0, 2, 1, 3)
        k = rope(k, cos[:, None], sin[:, None]).transpose(0, 2, 1, 3)
        scores = (q @ k.swapaxes(-1, -2)) * (width // self.heads) ** -0.5
        mixed = mx.softmax(scores, axis=-1) @ v
        return self.o_proj(mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, width))


class Layer(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.attention = Attention(width, heads)
        self.modulation = nn.Linear(width, 6 * width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    @staticmethod
    def norm(x):
        centred = x - mx.mean(x, axis=-1, keepdims=True)
        return centred * mx.rsqrt(mx.mean(mx.square(centred), axis=-1, keepdims=True) + 1e-6)

    def __call__(self, x, temb, cos, sin):
        shift1, scale1, gate1, shift2, scale2, gate2 = mx.split(self.modulation(nn.silu(temb))[:, None], 6, axis=-1)
        x = x + gate1 * self.attention(self.norm(x) * (1 + scale1) + shift1, cos, sin)
        return x + gate2 * self.fc2(nn.gelu_approx(self.fc1(self.norm(x) * (1 + scale2) + shift2)))


if __name__ == "__main__":
    given = np.load("weights.npz")
    layer = Layer()
    layer.load_weights([(f"{NAMES[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}", mx.array(given[name]))
                        for name in given.files if name[0] != "_"])  # fmt: skip
    result = layer(*(mx.array(given[name]) for name in ("_x", "_temb", "_cos", "_sin")))
    print("mean square", mx.mean(mx.square(result)).item())
