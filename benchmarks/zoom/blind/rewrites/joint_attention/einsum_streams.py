import torch
import torch.nn as nn
from loading import fill, linears


class Stream(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head = n_head
        self.ada = nn.Linear(dim, 3 * dim)
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.q_scale = nn.Parameter(torch.ones(dim // n_head))
        self.k_scale = nn.Parameter(torch.ones(dim // n_head))
        self.proj = nn.Linear(dim, dim)

    @staticmethod
    def rms(x, scale):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale

    def before(self, x, c):
        shift, scale, gate = self.ada(c).unflatten(-1, (3, -1)).unbind(-2)
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        h = (x - mean) * torch.rsqrt(variance + 1e-6)
        h = torch.einsum("bnd,bd->bnd", h, 1 + scale) + shift.unsqueeze(1)
        q, k, v = self.to_qkv(h).unflatten(-1, (3, self.n_head, -1)).unbind(2)
        return self.rms(q, self.q_scale), self.rms(k, self.k_scale), v, gate

    def after(self, x, y, gate):
        return x + torch.einsum("bnd,bd->bnd", self.proj(y), gate)


class DoubleStream(nn.Module):
    def __init__(self, dim=24, n_head=3):
        super().__init__()
        self.img, self.txt = Stream(dim, n_head), Stream(dim, n_head)

    def forward(self, img, txt, vec):
        n_txt = txt.shape[1]
        c = vec * torch.sigmoid(vec)
        iq, ik, iv, igate = self.img.before(img, c)
        tq, tk, tv, tgate = self.txt.before(txt, c)
        q, k, v = torch.cat((tq, iq), 1), torch.cat((tk, ik), 1), torch.cat((tv, iv), 1)
        attn = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        y = torch.einsum("bhqk,bkhd->bqhd", attn.softmax(-1), v).flatten(2)
        ty, iy = y[:, :n_txt], y[:, n_txt:]
        return torch.cat((self.txt.after(txt, ty, tgate), self.img.after(img, iy, igate)), 1)


def build(weights):
    arrays = {}
    for new, old in {"img": "image", "txt": "text"}.items():
        arrays |= linears(weights, {f"{new}.ada": f"{old}_mod", f"{new}.to_qkv": f"{old}_qkv", f"{new}.proj": f"{old}_out"})
        arrays |= {f"{new}.q_scale": weights[f"{old}_norm_q.weight"], f"{new}.k_scale": weights[f"{old}_norm_k.weight"]}
    return fill(DoubleStream(), arrays)
