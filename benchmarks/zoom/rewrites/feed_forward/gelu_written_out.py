import math

import torch
import torch.nn as nn
from loading import fill, linears


def new_gelu(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class MLP(nn.Module):
    def __init__(self, n_embd=20, n_inner=48):
        super().__init__()
        self.ln = nn.LayerNorm(n_embd, eps=1e-5)
        self.c_fc = nn.Linear(n_embd, n_inner)
        self.c_proj = nn.Linear(n_inner, n_embd)

    def forward(self, x):
        h = self.ln(x)
        h = self.c_fc(h)
        h = new_gelu(h)
        h = self.c_proj(h)
        return x + h


def build(weights):
    return fill(MLP(), linears(weights, {"ln": "norm", "c_fc": "fc_in", "c_proj": "fc_out"}))
