import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class LMHead(nn.Module):
    def __init__(self, dim=32, vocab=20):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.lm_head = nn.Parameter(torch.zeros(vocab, dim))

    def forward(self, x):
        scale = self.scale
        x = F.rms_norm(x, (x.shape[-1],), scale, 1e-6)
        return F.linear(x, self.lm_head)


def build(weights):
    return fill(LMHead(), {"scale": weights["weight"], "lm_head": weights["head.weight"]})
