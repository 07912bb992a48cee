import torch
import torch.nn as nn
from loading import fill, linears


def rms(x, gain):
    wide = x.float()
    wide = wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return wide.type_as(x) * gain


class BlockwiseJoint(nn.Module):
    """Never joins the streams: the four blocks of the score matrix are computed one by one."""

    def __init__(self, d=32, h=4):
        super().__init__()
        self.h, self.hd = h, d // h
        for stream in ("x", "c"):
            for role in ("q", "k", "v", "o"):
                setattr(self, f"{stream}_{role}", nn.Linear(d, d))
            setattr(self, f"{stream}_q_gain", nn.Parameter(torch.ones(self.hd)))
            setattr(self, f"{stream}_k_gain", nn.Parameter(torch.ones(self.hd)))

    def heads(self, t):
        return t.view(t.size(0), t.size(1), self.h, self.hd).permute(0, 2, 1, 3)

    def read(self, q, keys, values):
        """Attention of one stream's queries over both streams."""
        q = q * self.hd**-0.5
        to_c = torch.matmul(q, keys[0].mT)
        to_x = torch.matmul(q, keys[1].mT)
        top = torch.maximum(to_c.amax(-1, keepdim=True), to_x.amax(-1, keepdim=True))
        to_c, to_x = torch.exp(to_c - top), torch.exp(to_x - top)
        total = to_c.sum(-1, keepdim=True) + to_x.sum(-1, keepdim=True)
        y = (to_c @ values[0] + to_x @ values[1]) / total
        return y.permute(0, 2, 1, 3).reshape(q.size(0), q.size(2), -1)

    def forward(self, x, c):
        qx = rms(self.heads(self.x_q(x)), self.x_q_gain)
        kx = rms(self.heads(self.x_k(x)), self.x_k_gain)
        vx = self.heads(self.x_v(x))
        qc = rms(self.heads(self.c_q(c)), self.c_q_gain)
        kc = rms(self.heads(self.c_k(c)), self.c_k_gain)
        vc = self.heads(self.c_v(c))
        yc = self.c_o(self.read(qc, (kc, kx), (vc, vx)))
        yx = self.x_o(self.read(qx, (kc, kx), (vc, vx)))
        return torch.cat([yc, yx], dim=1)


def build(weights):
    names = {"x_q": "to_q", "x_k": "to_k", "x_v": "to_v", "x_o": "to_out"}
    names |= {"c_q": "add_q_proj", "c_k": "add_k_proj", "c_v": "add_v_proj", "c_o": "to_add_out"}
    arrays = linears(weights, names)
    for role in "qk":
        arrays[f"x_{role}_gain"] = weights[f"norm_{role}.weight"]
        arrays[f"c_{role}_gain"] = weights[f"norm_added_{role}.weight"]
    return fill(BlockwiseJoint(), arrays)
