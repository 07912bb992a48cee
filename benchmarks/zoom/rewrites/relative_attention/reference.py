import torch
import torch.nn as nn


class RelativeAttention(nn.Module):
    """Attention of T5: no scale, and a bias by distance."""

    def __init__(self, width=24, heads=3, reach=4):
        super().__init__()
        self.heads, self.reach = heads, reach
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.relative = nn.Embedding(2 * reach + 1, heads)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = (layer(x).view(batch, tokens, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        places = torch.arange(tokens)
        distance = (places[None] - places[:, None]).clamp(-self.reach, self.reach) + self.reach
        bias = self.relative(distance).permute(2, 0, 1)[None]
        scores = q @ k.transpose(2, 3) + bias
        weights = scores.float().softmax(-1).type_as(scores)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, tokens, -1))


def build():
    return RelativeAttention()


def inputs():
    return (0.5 * torch.randn(2, 8, 24),)
