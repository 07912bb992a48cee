import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class T5Attention(nn.Module):
    def __init__(self, d_model=24, n_heads=3, max_distance=4):
        super().__init__()
        self.n_heads, self.max_distance = n_heads, max_distance
        self.proj = nn.ParameterDict({name: nn.Parameter(torch.zeros(d_model, d_model)) for name in "qkvo"})
        self.bias_table = nn.Parameter(torch.zeros(2 * max_distance + 1, n_heads))

    def forward(self, hidden):
        n = hidden.shape[1]
        heads = {name: F.linear(hidden, self.proj[name]).unflatten(-1, (self.n_heads, -1)).movedim(2, 1) for name in "qkv"}
        rows = torch.arange(n).unsqueeze(1)
        columns = torch.arange(n).unsqueeze(0)
        index = torch.clip(columns - rows, -self.max_distance, self.max_distance) + self.max_distance
        bias = self.bias_table[index.flatten()].T.reshape(1, self.n_heads, n, n)
        y = F.scaled_dot_product_attention(heads["q"], heads["k"], heads["v"], attn_mask=bias, scale=1.0)
        return F.linear(y.movedim(1, 2).flatten(2), self.proj["o"])


def build(weights):
    return fill(T5Attention(), {f"proj.{name}": weights[f"{name}.weight"] for name in "qkvo"} | {"bias_table": weights["relative.weight"]})
