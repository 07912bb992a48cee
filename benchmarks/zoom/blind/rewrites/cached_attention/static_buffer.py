import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class StaticCacheAttention(nn.Module):
    """Keys and values live in buffers of the longest length; places not yet written are masked."""

    def __init__(self, dim=24, n_heads=3, max_len=12):
        super().__init__()
        self.n_heads, self.head_dim, self.max_len = n_heads, dim // n_heads, max_len
        self.wq, self.wk, self.wv = (nn.Linear(dim, dim) for _ in range(3))
        self.wo = nn.Linear(dim, dim, bias=False)

    def rope(self, x, input_pos):
        half = self.head_dim // 2
        theta = input_pos.float()[:, None] / 10000 ** (torch.arange(half).float() / half)
        rot = torch.stack([theta.cos(), theta.sin()]).to(x.dtype)
        lo, hi = x[..., :half], x[..., half:]
        out = torch.empty_like(x)
        out[..., :half] = lo * rot[0] - hi * rot[1]
        out[..., half:] = hi * rot[0] + lo * rot[1]
        return out

    def forward(self, x, cached_k, cached_v):
        B, T, _ = x.shape
        start = cached_k.shape[2]
        input_pos = torch.arange(start, start + T)
        split = lambda y: y.reshape(B, T, self.n_heads, self.head_dim).transpose(1, 2)  # noqa: E731
        q, k, v = self.rope(split(self.wq(x)), input_pos), self.rope(split(self.wk(x)), input_pos), split(self.wv(x))
        keys = x.new_zeros(B, self.n_heads, self.max_len, self.head_dim)
        values = torch.zeros_like(keys)
        keys[:, :, :start] = cached_k
        values[:, :, :start] = cached_v
        keys.index_copy_(2, input_pos, k)
        values.index_copy_(2, input_pos, v)
        mask = torch.arange(self.max_len) <= input_pos[:, None]
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.wo(y.transpose(1, 2).reshape(B, T, -1))


def build(weights):
    return fill(StaticCacheAttention(), linears(weights, {"wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj"}))
