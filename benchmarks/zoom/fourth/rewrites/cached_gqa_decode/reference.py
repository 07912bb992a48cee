import torch
import torch.nn as nn
import torch.nn.functional as F


def rotary(x, start, theta=10000.0):
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half).float() / half)
    positions = torch.arange(start, start + x.shape[2]).float()
    angles = positions[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)


class CachedAttention(nn.Module):
    """A language model's attention: a prompt at once, then one token after the other with a cache."""

    def __init__(self, dim=32, heads=4, kv_heads=2, prompt=5):
        super().__init__()
        self.heads, self.kv_heads, self.prompt = heads, kv_heads, prompt
        self.head_dim = dim // heads
        self.input_layernorm = nn.RMSNorm(dim, eps=1e-6)
        self.q_proj = nn.Linear(dim, heads * self.head_dim)
        self.k_proj = nn.Linear(dim, kv_heads * self.head_dim)
        self.v_proj = nn.Linear(dim, kv_heads * self.head_dim)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def attend(self, x, cache):
        batch, length, dim = x.shape
        start = cache[0].shape[2]
        h = self.input_layernorm(x)
        query = self.q_proj(h).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        key = self.k_proj(h).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        value = self.v_proj(h).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        query = rotary(query, start)
        key = rotary(key, start)
        keys = torch.cat([cache[0], key], dim=2)
        values = torch.cat([cache[1], value], dim=2)

        repeats = self.heads // self.kv_heads
        all_keys = keys.repeat_interleave(repeats, dim=1)
        all_values = values.repeat_interleave(repeats, dim=1)
        mask = torch.ones(length, start + length, dtype=torch.bool).tril(start)
        attended = F.scaled_dot_product_attention(query, all_keys, all_values, attn_mask=mask)
        attended = attended.transpose(1, 2).reshape(batch, length, dim)
        return x + self.o_proj(attended), (keys, values)

    def forward(self, x):
        empty = x.new_zeros(x.shape[0], self.kv_heads, 0, self.head_dim)
        out, cache = self.attend(x[:, : self.prompt], (empty, empty))
        outputs = [out]
        for t in range(self.prompt, x.shape[1]):
            out, cache = self.attend(x[:, t : t + 1], cache)
            outputs.append(out)
        return torch.cat(outputs, dim=1)


def build():
    return CachedAttention()


def inputs():
    return (torch.randn(2, 8, 32),)
