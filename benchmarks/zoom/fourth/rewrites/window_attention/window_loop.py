import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class WindowLoop(nn.Module):
    """Cuts the windows out one after the other; no mask tensor is kept."""

    def __init__(self, dim=24, heads=3, window=4, shift=2):
        super().__init__()
        self.heads, self.w, self.s = heads, window, shift
        self.ln = nn.LayerNorm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.table = nn.Parameter(torch.zeros(2 * window - 1, 2 * window - 1, heads))

    def bias(self):
        """[heads, query, key]"""
        place = torch.arange(self.w)
        apart = place[:, None] - place[None, :] + self.w - 1
        rows = apart[:, None, :, None].expand(self.w, self.w, self.w, self.w)
        columns = apart[None, :, None, :].expand(self.w, self.w, self.w, self.w)
        return self.table[rows, columns].reshape(self.w**2, self.w**2, self.heads).permute(2, 0, 1)

    def side(self, start, length):
        """For each place of a window: 1 where the picture was wrapped around."""
        return (torch.arange(start, start + self.w) >= length - self.s).long()

    def window(self, part, top, left, size):
        b = part.shape[0]
        flat = part.reshape(b, self.w**2, -1)
        q, k, v = (layer(flat).view(b, self.w**2, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        kind = (self.side(top, size[0])[:, None] * 2 + self.side(left, size[1])[None, :]).flatten()
        strangers = (kind[:, None] != kind[None, :]).to(part.dtype)
        extra = self.bias() - 100.0 * strangers
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=extra[None].to(q.dtype))
        y = self.o(y.transpose(1, 2).reshape(b, self.w**2, -1))
        return y.view(b, self.w, self.w, -1)

    def forward(self, x):
        _, height, width, _ = x.shape
        rolled = self.ln(x).roll((-self.s, -self.s), (1, 2))
        bands = []
        for top in range(0, height, self.w):
            band = []
            for left in range(0, width, self.w):
                part = rolled[:, top : top + self.w, left : left + self.w]
                band.append(self.window(part, top, left, (height, width)))
            bands.append(torch.cat(band, dim=2))
        y = torch.cat(bands, dim=1)
        y = y.roll((self.s, self.s), (1, 2))
        return y + x


def build(weights):
    arrays = linears(weights, {"ln": "norm", "o": "proj"})
    for place, name in enumerate("qkv"):
        for part in ("weight", "bias"):
            arrays[f"{name}.{part}"] = weights[f"qkv.{part}"][24 * place : 24 * place + 24]
    arrays["table"] = weights["bias_table"].reshape(7, 7, 3)
    return fill(WindowLoop(), arrays)
