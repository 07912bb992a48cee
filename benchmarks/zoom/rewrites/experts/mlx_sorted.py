import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class SparseMlp(nn.Module):
    def __init__(self, dims=20, inner=16, experts=4, per_token=2):
        super().__init__()
        self.per_token = per_token
        self.gate = nn.Linear(dims, experts, bias=False)
        self.expand = [nn.Linear(dims, inner) for _ in range(experts)]
        self.shrink = [nn.Linear(inner, dims) for _ in range(experts)]

    def __call__(self, x):
        logits = self.gate(x)
        order = mx.argsort(-logits, axis=-1)[..., : self.per_token]
        chosen = mx.take_along_axis(logits, order, axis=-1)
        weights = mx.softmax(chosen, axis=-1)
        total = None
        for index, (expand, shrink) in enumerate(zip(self.expand, self.shrink)):
            y = shrink(nn.relu(expand(x)))
            weight = mx.where(order == index, weights, 0).sum(axis=-1, keepdims=True)
            total = y * weight if total is None else total + y * weight
        return total


def build(weights):
    names = {f"expand.{i}": f"up.{i}" for i in range(4)} | {f"shrink.{i}": f"down.{i}" for i in range(4)} | {"gate": "router"}
    return fill(SparseMlp(), linears(weights, names))
