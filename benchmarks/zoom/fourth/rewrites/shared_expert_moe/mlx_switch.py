import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill


class SwitchGLU(nn.Module):
    """Gathers each token's experts' matrices."""

    def __init__(self, dims, hidden, num_experts):
        super().__init__()
        self.gate = mx.zeros((num_experts, hidden, dims))
        self.up = mx.zeros((num_experts, hidden, dims))
        self.down = mx.zeros((num_experts, dims, hidden))

    def __call__(self, x, indices):
        x = x[:, None, :, None]
        gate = mx.take(self.gate, indices, axis=0) @ x
        up = mx.take(self.up, indices, axis=0) @ x
        y = mx.take(self.down, indices, axis=0) @ (nn.silu(gate) * up)
        return y.squeeze(-1)


class MLP(nn.Module):
    def __init__(self, dims, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dims, hidden, bias=False)
        self.up_proj = nn.Linear(dims, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dims, bias=False)

    def __call__(self, x):
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    def __init__(self, dims=20, hidden=16, num_experts=6, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(dims, num_experts, bias=False)
        self.switch = SwitchGLU(dims, hidden, num_experts)
        self.shared = MLP(dims, 2 * hidden)
        self.shared_gate = nn.Linear(dims, 1, bias=False)

    def __call__(self, x):
        B, L, D = x.shape
        x = x.reshape(B * L, D)
        logits = x.astype(mx.float32) @ self.router.weight.astype(mx.float32).T
        gates = mx.softmax(logits, axis=-1)
        indices = mx.argpartition(-gates, kth=self.top_k - 1, axis=-1)[:, : self.top_k]
        scores = mx.take_along_axis(gates, indices, axis=-1)
        scores = scores / scores.sum(axis=-1, keepdims=True)
        y = self.switch(x, indices)
        y = (y * scores[..., None].astype(x.dtype)).sum(axis=1)
        shared = mx.sigmoid(self.shared_gate(x)) * self.shared(x)
        return (y + shared).reshape(B, L, D)


def build(weights):
    arrays = {"router.weight": weights["gate.weight"], "shared_gate.weight": weights["shared_expert_gate.weight"]}
    for name in ("gate", "up", "down"):
        experts = [weights[f"experts.{number}.{name}_proj.weight"] for number in range(6)]
        arrays[f"switch.{name}"] = np.stack(experts)
        arrays[f"shared.{name}_proj.weight"] = weights[f"shared_expert.{name}_proj.weight"]
    return fill(MoE(), arrays)
