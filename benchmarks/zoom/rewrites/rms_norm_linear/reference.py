import torch
import torch.nn as nn


class NormedHead(nn.Module):
    def __init__(self, width=32, out=20):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, out, bias=False)

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + 1e-6)
        return self.head(self.weight * hidden_states.to(dtype))


def build():
    return NormedHead()


def inputs():
    return (2 * torch.randn(2, 7, 32),)
