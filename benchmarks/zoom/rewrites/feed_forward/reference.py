import torch
import torch.nn as nn
import torch.nn.functional as F


class FeedForward(nn.Module):
    def __init__(self, width=20, inner=48):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.fc_in = nn.Linear(width, inner)
        self.fc_out = nn.Linear(inner, width)

    def forward(self, x):
        hidden = self.fc_in(self.norm(x))
        hidden = F.gelu(hidden, approximate="tanh")
        return x + self.fc_out(hidden)


def build():
    return FeedForward()


def inputs():
    return (torch.randn(2, 8, 20),)
