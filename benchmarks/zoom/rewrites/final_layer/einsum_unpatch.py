import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class LastLayer(nn.Module):
    def __init__(self, hidden=24, out_channels=3, p=2, height=3):
        super().__init__()
        self.p, self.c, self.height = p, out_channels, height
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))
        self.linear = nn.Linear(hidden, p * p * out_channels)

    def forward(self, x, vec):
        scale, shift = torch.tensor_split(self.modulation(vec).unsqueeze(1), 2, dim=-1)
        y = F.layer_norm(x, x.shape[-1:], eps=1e-6)
        y = y * scale + y + shift
        y = self.linear(y)
        y = y.reshape(len(y), self.height, -1, self.c, self.p, self.p)
        y = torch.einsum("bhwcpq->bchpwq", y)
        return y.flatten(4).flatten(2, 3)


def build(weights):
    return fill(LastLayer(), linears(weights, {"modulation.1": "ada", "linear": "proj"}))
