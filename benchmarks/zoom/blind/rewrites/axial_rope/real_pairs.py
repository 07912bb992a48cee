import torch
import torch.nn as nn
from loading import fill, linears


class VisionAttention(nn.Module):
    def __init__(self, dim=24, num_heads=3, h=3, w=5):
        super().__init__()
        self.num_heads, self.h, self.w = num_heads, h, w
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def cos_sin(self, head_dim):
        inv = 1.0 / 1000.0 ** (torch.arange(0, head_dim // 2, 2).float() / (head_dim // 2))
        ids = torch.arange(self.h * self.w)
        ids = torch.stack([ids // self.w, ids % self.w], dim=-1) * 14
        emb = (ids[..., None].float() * inv).flatten(1)
        return emb.cos(), emb.sin()

    def apply(self, x, cos, sin):
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
        return turned.reshape(x.shape).type_as(x)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.reshape(B, N, self.num_heads, -1).transpose(1, 2) for part in (q, k, v))
        cos, sin = self.cos_sin(C // self.num_heads)
        q, k = self.apply(q, cos, sin), self.apply(k, cos, sin)
        attn = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


def build(weights):
    return fill(VisionAttention(), linears(weights, {"qkv": "qkv", "proj": "proj"}))
