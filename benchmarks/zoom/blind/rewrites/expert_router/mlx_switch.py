import mlx.core as mx
import mlx.nn as nn
import numpy as np
from loading import fill, linears


class MLP(nn.Module):
    def __init__(self, dims, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(dims, hidden, bias=False), nn.Linear(dims, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dims, bias=False)

    def __call__(self, x):
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    """Only the chosen experts are computed: their weights are taken out for each token."""

    def __init__(self, dims=16, hidden=10, n=9, n_group=3, topk_group=2, top_k=3, routed_scaling_factor=2.5):
        super().__init__()
        self.n_group, self.topk_group, self.top_k, self.routed_scaling_factor = n_group, topk_group, top_k, routed_scaling_factor
        self.gate = nn.Linear(dims, n, bias=False)
        self.bias = mx.zeros((n,))
        self.gate_proj, self.up_proj = mx.zeros((n, hidden, dims)), mx.zeros((n, hidden, dims))
        self.down_proj = mx.zeros((n, dims, hidden))
        self.shared_experts = MLP(dims, hidden)

    def group_select(self, x):
        gates = x.astype(mx.float32) @ self.gate.weight.astype(mx.float32).T
        scores = mx.sigmoid(gates)
        biased = scores + self.bias.astype(mx.float32)
        by_group = biased.reshape(x.shape[0], self.n_group, -1)
        strength = mx.topk(by_group, 2, axis=-1).sum(axis=-1, keepdims=True)
        losers = mx.argsort(strength, axis=-2)[:, : self.n_group - self.topk_group]
        by_group = mx.put_along_axis(by_group, losers, mx.array(-1e9), axis=-2)
        biased = by_group.flatten(1)
        inds = mx.argpartition(-biased, kth=self.top_k - 1, axis=-1)[:, : self.top_k]
        chosen = mx.take_along_axis(scores, inds, axis=-1)
        chosen = chosen / chosen.sum(axis=-1, keepdims=True)
        return inds, (chosen * self.routed_scaling_factor).astype(x.dtype)

    def __call__(self, x):
        inds, scores = self.group_select(x)
        column = x[:, None, :, None]
        hidden = nn.silu(self.gate_proj[inds] @ column) * (self.up_proj[inds] @ column)
        y = (self.down_proj[inds] @ hidden).squeeze(-1)
        y = (y * scores[..., None]).sum(axis=1)
        return y + self.shared_experts(x)


def build(weights):
    arrays = {f"{part}_proj": np.stack([weights[f"experts.{index}.{part}.weight"] for index in range(9)]) for part in ("gate", "up", "down")}
    arrays |= linears(weights, {"gate": "router"} | {f"shared_experts.{part}_proj": f"shared.{part}" for part in ("gate", "up", "down")})
    return fill(MoE(), arrays | {"bias": weights["correction"]})
