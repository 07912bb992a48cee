import torch
import torch.nn as nn
import torch.nn.functional as F


class JointAttention(nn.Module):
    """Text and image tokens, each with weights of its own, in one attention."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.image_mod, self.text_mod = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.image_qkv, self.text_qkv = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.image_norm_q, self.image_norm_k = nn.RMSNorm(self.size, eps=1e-6), nn.RMSNorm(self.size, eps=1e-6)
        self.text_norm_q, self.text_norm_k = nn.RMSNorm(self.size, eps=1e-6), nn.RMSNorm(self.size, eps=1e-6)
        self.image_out, self.text_out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.view(*x.shape[:2], 3, self.heads, self.size).permute(2, 0, 3, 1, 4)

    def forward(self, image, text, conditioning):
        conditioning = F.silu(conditioning)[:, None]
        image_shift, image_scale, image_gate = self.image_mod(conditioning).chunk(3, dim=-1)
        text_shift, text_scale, text_gate = self.text_mod(conditioning).chunk(3, dim=-1)
        image_in = F.layer_norm(image, image.shape[-1:], eps=1e-6) * (1 + image_scale) + image_shift
        text_in = F.layer_norm(text, text.shape[-1:], eps=1e-6) * (1 + text_scale) + text_shift
        image_q, image_k, image_v = self.split(self.image_qkv(image_in))
        text_q, text_k, text_v = self.split(self.text_qkv(text_in))
        q = torch.cat([self.text_norm_q(text_q), self.image_norm_q(image_q)], dim=2)
        k = torch.cat([self.text_norm_k(text_k), self.image_norm_k(image_k)], dim=2)
        v = torch.cat([text_v, image_v], dim=2)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        text_mixed, image_mixed = mixed.split([text.shape[1], image.shape[1]], dim=1)
        image = image + image_gate * self.image_out(image_mixed)
        text = text + text_gate * self.text_out(text_mixed)
        return torch.cat([text, image], dim=1)


def build():
    return JointAttention()


def inputs():
    return torch.randn(2, 6, 24), torch.randn(2, 4, 24), torch.randn(2, 24)
