import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedRecurrence(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.forget = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        mixed = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        decay = torch.sigmoid(self.forget(mixed))
        value = self.value(mixed)
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + (1 - decay[:, step]) * value[:, step]
            states.append(state)
        return x + self.out(torch.stack(states, 1))


def build():
    return GatedRecurrence()


def inputs():
    return (torch.randn(3, 6, 16),)
