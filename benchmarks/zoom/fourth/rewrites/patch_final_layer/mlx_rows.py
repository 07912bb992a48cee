import mlx.core as mx
import mlx.nn as nn
from loading import fill


def wave_table(length, dims):
    rates = mx.exp(mx.arange(dims // 2) * (-mx.log(mx.array(10000.0)) / (dims // 2)))
    angles = mx.arange(length)[:, None] * rates[None]
    return mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=-1)


def standardized(x):
    return (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True) + 1e-6)


class LatentTokens(nn.Module):
    def __init__(self, c=4, p=2, d=32):
        super().__init__()
        self.c, self.p, self.d = c, p, d
        self.w_in, self.b_in = mx.zeros((c, p, p, d)), mx.zeros((d,))
        self.w_mod, self.b_mod = mx.zeros((d, 2, d)), mx.zeros((2, d))
        self.w_out, self.b_out = mx.zeros((d, p, p, c)), mx.zeros((p, p, c))

    def positions(self, h, w):
        """[rows, columns, dims]: half of the dims for each of the two"""
        half = self.d // 2
        rows = mx.broadcast_to(wave_table(h, half)[:, None], (h, w, half))
        columns = mx.broadcast_to(wave_table(w, half)[None], (h, w, half))
        return mx.concatenate([rows, columns], axis=-1)

    def __call__(self, z, cond):
        b, c, height, width = z.shape
        h, w = height // self.p, width // self.p
        cells = z.reshape(b, c, h, self.p, w, self.p)
        x = mx.einsum("bchpwq,cpqd->bhwd", cells, self.w_in) + self.b_in
        x = x + self.positions(h, w).astype(x.dtype)
        vectors = mx.einsum("bd,dke->bke", nn.silu(cond), self.w_mod) + self.b_mod
        x = standardized(x)
        x = x * (vectors[:, 1] + 1)[:, None, None] + vectors[:, 0][:, None, None]
        cells = mx.einsum("bhwd,dpqc->bhwpqc", x, self.w_out) + self.b_out
        image = cells.transpose(0, 5, 1, 3, 2, 4)
        return image.reshape(b, c, height, width)


def build(weights):
    arrays = {"w_in": weights["proj.weight"].transpose(1, 2, 3, 0), "b_in": weights["proj.bias"]}
    arrays["w_mod"] = weights["adaLN_modulation.weight"].reshape(2, 32, 32).transpose(2, 0, 1)
    arrays["b_mod"] = weights["adaLN_modulation.bias"].reshape(2, 32)
    arrays["w_out"] = weights["linear.weight"].reshape(2, 2, 4, 32).transpose(3, 0, 1, 2)
    arrays["b_out"] = weights["linear.bias"].reshape(2, 2, 4)
    return fill(LatentTokens(), arrays)
