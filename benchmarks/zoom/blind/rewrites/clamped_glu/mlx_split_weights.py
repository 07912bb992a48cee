import mlx.core as mx
import mlx.nn as nn
from loading import fill


class GatedMLP(nn.Module):
    """The fused layer taken apart into one for the gate and one for the value."""

    def __init__(self, dims=16, hidden_dims=12):
        super().__init__()
        self.weight = mx.zeros((dims,))
        self.gate_proj, self.up_proj = nn.Linear(dims, hidden_dims), nn.Linear(dims, hidden_dims)
        self.down_proj = nn.Linear(hidden_dims, dims)

    def __call__(self, x):
        y = mx.fast.rms_norm(x, 1 + self.weight, 1e-5)
        gate = mx.minimum(self.gate_proj(y), 1.5)
        up = mx.clip(self.up_proj(y), -1.5, 1.5)
        glu = gate * mx.sigmoid(1.702 * gate)
        y = glu * (up + 1)
        return x + self.down_proj(y)


def build(weights):
    return fill(GatedMLP(), {
        "weight": weights["norm"], "gate_proj.weight": weights["up.weight"][::2], "gate_proj.bias": weights["up.bias"][::2],
        "up_proj.weight": weights["up.weight"][1::2], "up_proj.bias": weights["up.bias"][1::2],
        "down_proj.weight": weights["down.weight"], "down_proj.bias": weights["down.bias"],
    })  # fmt: skip
