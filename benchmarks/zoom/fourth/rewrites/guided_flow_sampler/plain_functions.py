import math

import torch
import torch.nn as nn
from loading import fill


def time_shift(t, shift):
    return shift * t / (1.0 + (shift - 1.0) * t)


def time_code(t, dim):
    half = dim // 2
    rates = torch.exp(torch.arange(half) * (-math.log(10000.0) / half))
    phase = rates * (t * 1000.0)
    return torch.stack([phase.cos(), phase.sin()]).flatten()


def cfg_rescaled(positive, negative, weight):
    """Guided prediction with the conditional one's length at every token."""
    guided = negative * (1 - weight) + positive * weight
    wanted = positive.square().sum(dim=2, keepdim=True).sqrt()
    actual = guided.square().sum(dim=2, keepdim=True).sqrt()
    return guided * wanted / actual


class Sampler(nn.Module):
    def __init__(self, c=8, d=24, dc=12):
        super().__init__()
        self.w_in = nn.Parameter(torch.zeros(c + dc + 16, d))
        self.b_in = nn.Parameter(torch.zeros(d))
        self.w_out = nn.Parameter(torch.zeros(d, c))
        self.b_out = nn.Parameter(torch.zeros(c))

    def predict(self, x, t, cond):
        """The three linear layers as one, over everything put side by side."""
        b, n, _ = x.shape
        code = time_code(t, 16).to(cond.dtype).expand(b, n, -1)
        wide = torch.cat([x.to(cond.dtype), cond[:, None].expand(-1, n, -1), code], dim=2)
        hidden = torch.addmm(self.b_in, wide.flatten(0, 1), self.w_in)
        hidden = hidden / (1 + torch.exp(-hidden))
        return torch.addmm(self.b_out, hidden, self.w_out).view(b, n, -1).float()

    def forward(self, x, positive, negative, steps=4, guidance=4.0):
        times = [time_shift(1.0 - step / steps, 3.0) for step in range(steps + 1)]
        x = x.float()
        for step in range(steps):
            with_prompt = self.predict(x, times[step], positive)
            without = self.predict(x, times[step], negative)
            velocity = cfg_rescaled(with_prompt, without, guidance)
            dt = times[step + 1] - times[step]
            x = x + dt * velocity
        return x


def build(weights):
    parts = [weights[f"model.{name}_in.weight"].T for name in "xct"]
    bias = sum(weights[f"model.{name}_in.bias"] for name in "xct")
    arrays = {"w_in": torch.cat([torch.from_numpy(part) for part in parts]).numpy(), "b_in": bias}
    arrays |= {"w_out": weights["model.out.weight"].T, "b_out": weights["model.out.bias"]}
    return fill(Sampler(), arrays)
