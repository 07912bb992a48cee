import torch
import torch.nn as nn
from loading import fill


class FunctionalBlock(nn.Module):
    """No layers: a dictionary of weights, matmuls with transposed weights, statistics by var_mean."""

    def __init__(self, dim=24):
        super().__init__()
        self.p = nn.ParameterDict({
            "mod_w": nn.Parameter(torch.zeros(dim, 6 * dim)), "mod_b": nn.Parameter(torch.zeros(6 * dim)),
            "mix_w": nn.Parameter(torch.zeros(dim, dim)), "mix_b": nn.Parameter(torch.zeros(dim)),
            "up_w": nn.Parameter(torch.zeros(dim, 2 * dim)), "up_b": nn.Parameter(torch.zeros(2 * dim)),
            "down_w": nn.Parameter(torch.zeros(2 * dim, dim)), "down_b": nn.Parameter(torch.zeros(dim)),
        })  # fmt: skip

    def forward(self, x, cond):
        p = self.p
        emb = torch.nn.functional.silu(cond) @ p["mod_w"] + p["mod_b"]
        emb = emb.view(-1, 6, emb.shape[-1] // 6)
        shift1, scale1, gate1, shift2, scale2, gate2 = emb.transpose(0, 1).unsqueeze(2)
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        y = (x - mean) * (variance + 1e-6).rsqrt()
        y = y + y * scale1 + shift1
        y = y @ p["mix_w"] + p["mix_b"]
        x = torch.addcmul(x, gate1, y)
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        y = (x - mean) * (variance + 1e-6).rsqrt()
        y = y + y * scale2 + shift2
        y = y @ p["up_w"] + p["up_b"]
        y = 0.5 * y * (1 + torch.erf(y / 2**0.5))
        y = y @ p["down_w"] + p["down_b"]
        return torch.addcmul(x, gate2, y)


def build(weights):
    names = {"mod": "modulation", "mix": "mixer", "up": "up", "down": "down"}
    return fill(FunctionalBlock(), {f"p.{new}_w": weights[f"{old}.weight"].T for new, old in names.items()}
                | {f"p.{new}_b": weights[f"{old}.bias"] for new, old in names.items()})  # fmt: skip
