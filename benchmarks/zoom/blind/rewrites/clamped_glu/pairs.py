import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class SwigluMLP(nn.Module):
    def __init__(self, hidden_size=16, intermediate=12):
        super().__init__()
        self.norm_weight = nn.Parameter(torch.ones(hidden_size))
        self.gate_up, self.down = nn.Linear(hidden_size, 2 * intermediate), nn.Linear(intermediate, hidden_size)

    def forward(self, x):
        t = F.rms_norm(x.float(), (x.shape[-1],), eps=1e-5)
        t = torch.addcmul(t, t, self.norm_weight.float()).type_as(x)
        t = self.gate_up(t)
        x_glu, x_linear = t.unflatten(-1, (-1, 2)).unbind(dim=-1)
        x_glu = torch.clamp(x_glu, max=1.5)
        x_linear = torch.clamp(x_linear, -1.5, 1.5)
        out_glu = x_glu * torch.sigmoid(1.702 * x_glu)
        t = torch.addcmul(out_glu, out_glu, x_linear)
        return self.down(t).add_(x)


def build(weights):
    return fill(SwigluMLP(), linears(weights, {"gate_up": "up", "down": "down"}) | {"norm_weight": weights["norm"]})
