import torch
import torch.nn as nn
import torch.nn.functional as F


class JointAttention(nn.Module):
    """Image and text tokens of a diffusion transformer attend together, each with projections of its own."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.add_q_proj, self.add_k_proj, self.add_v_proj = (
            nn.Linear(dim, dim),
            nn.Linear(dim, dim),
            nn.Linear(dim, dim),
        )
        self.norm_q, self.norm_k = nn.RMSNorm(dim // heads, eps=1e-6), nn.RMSNorm(dim // heads, eps=1e-6)
        self.norm_added_q, self.norm_added_k = nn.RMSNorm(dim // heads, eps=1e-6), nn.RMSNorm(dim // heads, eps=1e-6)
        self.to_out, self.to_add_out = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, hidden_states, encoder_hidden_states):
        img_query = self.to_q(hidden_states).unflatten(-1, (self.heads, -1))
        img_key = self.to_k(hidden_states).unflatten(-1, (self.heads, -1))
        img_value = self.to_v(hidden_states).unflatten(-1, (self.heads, -1))
        txt_query = self.add_q_proj(encoder_hidden_states).unflatten(-1, (self.heads, -1))
        txt_key = self.add_k_proj(encoder_hidden_states).unflatten(-1, (self.heads, -1))
        txt_value = self.add_v_proj(encoder_hidden_states).unflatten(-1, (self.heads, -1))

        img_query = self.norm_q(img_query)
        img_key = self.norm_k(img_key)
        txt_query = self.norm_added_q(txt_query)
        txt_key = self.norm_added_k(txt_key)

        query = torch.cat([txt_query, img_query], dim=1).transpose(1, 2)
        key = torch.cat([txt_key, img_key], dim=1).transpose(1, 2)
        value = torch.cat([txt_value, img_value], dim=1).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, key, value)
        attended = attended.transpose(1, 2).flatten(2)

        text_length = encoder_hidden_states.shape[1]
        text = self.to_add_out(attended[:, :text_length])
        image = self.to_out(attended[:, text_length:])
        return torch.cat([text, image], dim=1)


def build():
    return JointAttention()


def inputs():
    return torch.randn(2, 9, 32), torch.randn(2, 5, 32)
