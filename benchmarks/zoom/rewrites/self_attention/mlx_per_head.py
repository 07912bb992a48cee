import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


def normalise(x, weight):
    return weight * x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-6)


class HeadLoop(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.query_weight = mx.ones(self.size)
        self.key_weight = mx.ones(self.size)

    def __call__(self, x):
        q = self.query(x)
        k = self.key(x)
        v = self.value(x)
        parts = []
        for head in range(self.heads):
            span = slice(head * self.size, (head + 1) * self.size)
            qh = normalise(q[..., span], self.query_weight)
            kh = normalise(k[..., span], self.key_weight)
            attention = mx.softmax(qh @ kh.swapaxes(1, 2) / self.size**0.5, axis=-1)
            parts.append(attention @ v[..., span])
        return self.output(mx.concatenate(parts, axis=-1))


def build(weights):
    return fill(HeadLoop(), {
        **linears(weights, {"query": "to_q", "key": "to_k", "value": "to_v", "output": "to_out"}),
        "query_weight": weights["norm_q.weight"], "key_weight": weights["norm_k.weight"],
    })  # fmt: skip
