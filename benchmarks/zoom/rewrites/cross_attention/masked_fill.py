import torch
import torch.nn as nn
from loading import fill, linears


class CrossAttn(nn.Module):
    def __init__(self, dim=24, ctx_dim=20, num_heads=3):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(ctx_dim, dim, bias=False)
        self.v = nn.Linear(ctx_dim, dim, bias=False)
        self.o = nn.Linear(dim, dim)

    def forward(self, hidden, encoder, encoder_mask):
        b, n, d = hidden.shape
        m = encoder.shape[1]
        q = self.q(hidden).view(b, n, self.num_heads, -1).permute(0, 2, 1, 3)
        k = self.k(encoder).view(b, m, self.num_heads, -1).permute(0, 2, 3, 1)
        v = self.v(encoder).view(b, m, self.num_heads, -1).permute(0, 2, 1, 3)
        scores = torch.matmul(q, k) * self.scale
        hide = encoder_mask[:, None, None, :] == 0
        scores = scores.masked_fill(hide, float("-inf"))
        probs = torch.softmax(scores.float(), dim=-1).to(v.dtype)
        out = torch.matmul(probs, v).permute(0, 2, 1, 3).reshape(b, n, d)
        return hidden + self.o(out)


def build(weights):
    return fill(CrossAttn(), linears(weights, {"q": "to_q", "k": "to_k", "v": "to_v", "o": "to_out"}))
