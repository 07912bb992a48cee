import numpy as np
import torch
import torch.nn as nn
from loading import fill, linears


class SingleBlock(nn.Module):
    def __init__(self, dim=24, num_heads=3, mlp_dim=36):
        super().__init__()
        self.num_heads = num_heads
        self.ada = nn.ModuleDict({name: nn.Linear(dim, dim) for name in ("shift", "scale", "gate")})
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim) for _ in range(3))
        self.q_norm, self.k_norm = nn.Parameter(torch.ones(dim // num_heads)), nn.Parameter(torch.ones(dim // num_heads))
        self.proj_mlp = nn.Linear(dim, mlp_dim)
        self.act_mlp = nn.GELU(approximate="tanh")
        self.proj_out = nn.Linear(dim + mlp_dim, dim)

    def per_head(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).movedim(-2, 1)

    def forward(self, hidden_states, temb):
        residual = hidden_states
        temb = torch.nn.functional.silu(temb).unsqueeze(1)
        centred = hidden_states - hidden_states.mean(dim=-1, keepdim=True)
        norm = centred / (centred.var(dim=-1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        norm = norm * (1 + self.ada["scale"](temb)) + self.ada["shift"](temb)
        mlp = self.act_mlp(self.proj_mlp(norm))
        query, key, value = self.per_head(self.to_q(norm)), self.per_head(self.to_k(norm)), self.per_head(self.to_v(norm))
        query = query * torch.rsqrt(query.pow(2).mean(-1, keepdim=True) + 1e-6) * self.q_norm
        key = key * torch.rsqrt(key.pow(2).mean(-1, keepdim=True) + 1e-6) * self.k_norm
        attn = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
        attn = torch.matmul(attn.softmax(dim=-1), value)
        attn = attn.movedim(1, -2).flatten(-2)
        hidden_states = self.proj_out(torch.cat([attn, mlp], dim=2))
        return residual + self.ada["gate"](temb) * hidden_states


def build(weights):
    arrays = linears(weights, {"proj_out": "linear_out"}) | {"q_norm": weights["norm_q.weight"], "k_norm": weights["norm_k.weight"]}
    for part in ("weight", "bias"):
        for name, piece in zip(("shift", "scale", "gate"), np.split(weights[f"modulation.{part}"], 3)):
            arrays[f"ada.{name}.{part}"] = piece
        for name, piece in zip(("to_q", "to_k", "to_v", "proj_mlp"), np.split(weights[f"linear_in.{part}"], (24, 48, 72))):
            arrays[f"{name}.{part}"] = piece
    return fill(SingleBlock(), arrays)
