import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class TokenMixer(nn.Module):
    def __init__(self, d=16, n=6):
        super().__init__()
        self.inv_freq = 1.0 / (100.0 ** (torch.arange(0, d, 2).float() / d))
        self.tok, self.chan = nn.Linear(n, n), nn.Linear(d, d)
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x, pos):
        freqs = torch.outer(pos.float(), self.inv_freq)
        cos, sin = freqs.cos().repeat_interleave(2, dim=-1), freqs.sin().repeat_interleave(2, dim=-1)
        even, odd = x[..., ::2], x[..., 1::2]
        turned = torch.stack([-odd, even], dim=-1).reshape(x.shape)
        x = (x * cos + turned * sin).to(x.dtype)
        mixed = torch.einsum("btd,st->bsd", x, self.tok.weight) + self.tok.bias[:, None]
        x = x + mixed
        y = F.relu(self.chan(x)).square()
        return torch.addcmul(x, y, self.weight)


def build(weights):
    return fill(
        TokenMixer(), linears(weights, {"tok": "over_tokens", "chan": "over_channels"}) | {"weight": weights["gain"]}
    )
