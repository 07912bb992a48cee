import torch
import torch.nn as nn
from loading import fill


class AttnBlock(nn.Module):
    def __init__(self, in_channels=8):
        super().__init__()
        self.group_norm = nn.GroupNorm(4, in_channels, eps=1e-6)
        self.to_q, self.to_k, self.to_v = (nn.Linear(in_channels, in_channels) for _ in range(3))
        self.to_out = nn.Linear(in_channels, in_channels)

    def forward(self, hidden_states):
        residual = hidden_states
        b, c, h, w = hidden_states.shape
        hidden_states = self.group_norm(hidden_states.view(b, c, h * w)).transpose(1, 2)
        query, key, value = self.to_q(hidden_states), self.to_k(hidden_states), self.to_v(hidden_states)
        scores = torch.baddbmm(query.new_zeros(b, h * w, h * w), query, key.transpose(1, 2), beta=0, alpha=c**-0.5)
        hidden_states = torch.bmm(scores.softmax(dim=-1), value)
        hidden_states = self.to_out(hidden_states)
        hidden_states = hidden_states.transpose(-1, -2).reshape(b, c, h, w)
        return hidden_states + residual


def build(weights):
    arrays = {f"group_norm.{part}": weights[f"norm.{part}"] for part in ("weight", "bias")}
    for new, old in {"to_q": "q", "to_k": "k", "to_v": "v", "to_out": "proj"}.items():
        arrays |= {f"{new}.weight": weights[f"{old}.weight"][:, :, 0, 0], f"{new}.bias": weights[f"{old}.bias"]}
    return fill(AttnBlock(), arrays)
