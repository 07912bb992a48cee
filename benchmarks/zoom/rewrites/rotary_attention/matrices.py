import torch
import torch.nn as nn
from loading import fill


class MatrixRotation(nn.Module):
    """Each pair of channels is turned by a 2x2 matrix, as Flux does."""

    def __init__(self, dim=48, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, angles):
        b, n, d = x.shape
        rows = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1)
        matrices = rows.unflatten(-1, (2, 2))
        qkv = self.qkv(x).view(b, n, 3, self.heads, d // self.heads)
        q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
        q = self.turned(q, matrices)
        k = self.turned(k, matrices)
        scores = q @ k.mT
        scores = scores / (d // self.heads) ** 0.5
        y = torch.softmax(scores, -1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, n, d))

    def turned(self, x, matrices):
        pairs = x.float().unflatten(-1, (-1, 2)).unsqueeze(-1)
        return (matrices @ pairs).squeeze(-1).flatten(-2).to(x.dtype)


def build(weights):
    return fill(MatrixRotation(), {"qkv.weight": weights["qkv.weight"], "proj.weight": weights["out.weight"], "proj.bias": weights["out.bias"]})
