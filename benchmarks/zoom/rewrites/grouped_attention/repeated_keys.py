import torch
import torch.nn as nn
from loading import fill, linears


class CausalGQA(nn.Module):
    def __init__(self, dim=32, n_heads=4, n_kv_heads=2):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        n_rep = self.n_heads // self.n_kv_heads
        keys = torch.repeat_interleave(xk, n_rep, dim=2).transpose(1, 2)
        values = torch.repeat_interleave(xv, n_rep, dim=2).transpose(1, 2)
        scores = xq.transpose(1, 2) @ keys.transpose(2, 3) / self.head_dim**0.5
        mask = torch.full((seqlen, seqlen), float("-inf"), dtype=x.dtype).triu(1)
        scores = torch.softmax(scores + mask, dim=-1)
        output = (scores @ values).transpose(1, 2).reshape(bsz, seqlen, -1)
        return self.wo(output)


def build(weights):
    return fill(CausalGQA(), linears(weights, {"wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj"}))
