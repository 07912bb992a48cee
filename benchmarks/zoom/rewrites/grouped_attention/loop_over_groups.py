import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class GroupLoop(nn.Module):
    def __init__(self, dim=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, dim // heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, groups * self.size)
        self.value = nn.Linear(dim, groups * self.size)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        queries = self.query(x).split(self.size * self.heads // self.groups, dim=-1)
        keys = self.key(x).split(self.size, dim=-1)
        values = self.value(x).split(self.size, dim=-1)
        mixed = []
        for group in range(self.groups):
            for q in queries[group].split(self.size, dim=-1):
                y = F.scaled_dot_product_attention(q, keys[group], values[group], is_causal=True)
                mixed.append(y)
        return self.output(torch.cat(mixed, -1))


def build(weights):
    return fill(GroupLoop(), linears(weights, {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}))
