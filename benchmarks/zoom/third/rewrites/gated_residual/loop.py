import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class Stack(nn.Module):
    def __init__(self, dim=16, hidden=40):
        super().__init__()
        self.adaln = nn.Linear(12, 4 * dim)
        self.fc_in = nn.ModuleList(nn.Linear(dim, hidden) for _ in range(2))
        self.fc_out = nn.ModuleList(nn.Linear(hidden, dim) for _ in range(2))

    def forward(self, hidden_states, temb):
        mod = self.adaln(temb * temb.sigmoid()).view(temb.shape[0], 4, -1)
        for i in range(2):
            scale, gate = mod[:, 2 * i : 2 * i + 1], mod[:, 2 * i + 1 : 2 * i + 2]
            y = F.layer_norm(hidden_states, hidden_states.shape[-1:], eps=1e-6)
            y = y + y * scale
            y = self.fc_in[i](y)
            inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)
            y = y * (torch.tanh(inner) + 1) * 0.5
            y = self.fc_out[i](y)
            hidden_states = hidden_states + y * gate.tanh()
        return hidden_states


def build(weights):
    names = {"adaln": "time", "fc_in.0": "up1", "fc_in.1": "up2", "fc_out.0": "down1", "fc_out.1": "down2"}
    return fill(Stack(), linears(weights, names))
