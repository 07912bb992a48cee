import numpy as np
import torch
import torch.nn as nn
from loading import fill, linears


class Stream(nn.Module):
    """One of the two streams: its fused projection, its norms and its way out."""

    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.q_gain = nn.Parameter(torch.ones(width // n_heads))
        self.k_gain = nn.Parameter(torch.ones(width // n_heads))
        self.proj = nn.Linear(width, width)

    def project(self, tokens):
        b, n, _ = tokens.shape
        packed = self.qkv(tokens).reshape(b, n, 3, self.n_heads, -1)
        qk = packed[:, :, :2].float()
        power = qk.pow(2).mean(dim=-1, keepdim=True)
        qk = (qk * (power + 1e-6).rsqrt()).to(packed.dtype)
        return qk[:, :, 0] * self.q_gain, qk[:, :, 1] * self.k_gain, packed[:, :, 2]


class MMAttention(nn.Module):
    def __init__(self, width=32, n_heads=4):
        super().__init__()
        self.txt = Stream(width, n_heads)
        self.img = Stream(width, n_heads)

    def forward(self, img, txt):
        pieces = zip(self.txt.project(txt), self.img.project(img))
        q, k, v = (torch.cat(pair, dim=1) for pair in pieces)
        logits = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        probs = logits.softmax(dim=-1)
        mixed = torch.einsum("bhij,bjhd->bihd", probs, v)
        mixed = mixed.reshape(img.shape[0], -1, img.shape[2])
        from_txt, from_img = mixed.split([txt.shape[1], img.shape[1]], dim=1)
        return torch.cat((self.txt.proj(from_txt), self.img.proj(from_img)), dim=1)


def build(weights):
    arrays = linears(weights, {"img.proj": "to_out", "txt.proj": "to_add_out"})
    names = {"img": ("to_q", "to_k", "to_v"), "txt": ("add_q_proj", "add_k_proj", "add_v_proj")}
    for side, three in names.items():
        for part in ("weight", "bias"):
            arrays[f"{side}.qkv.{part}"] = np.concatenate([weights[f"{name}.{part}"] for name in three])
        added = "added_" if side == "txt" else ""
        arrays[f"{side}.q_gain"] = weights[f"norm_{added}q.weight"]
        arrays[f"{side}.k_gain"] = weights[f"norm_{added}k.weight"]
    return fill(MMAttention(), arrays)
