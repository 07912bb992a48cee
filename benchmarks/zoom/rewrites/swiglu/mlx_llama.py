import mlx.nn as nn
from loading import fill, linears


class MLP(nn.Module):
    def __init__(self, dim=24, hidden_dim=40):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden_dim, bias=False)

    def __call__(self, x):
        gate = self.w1(x)
        up = self.w3(x)
        return self.w2(nn.silu(gate) * up)


def build(weights):
    return fill(MLP(), linears(weights, {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}))
