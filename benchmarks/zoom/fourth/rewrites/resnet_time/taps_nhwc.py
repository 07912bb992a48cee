import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


def group_norm(x, groups, gain, bias):
    b, h, w, c = x.shape
    cells = x.view(b, h, w, groups, c // groups)
    var, mean = torch.var_mean(cells.float(), dim=(1, 2, 4), correction=0, keepdim=True)
    cells = (cells - mean) * (var + 1e-5).rsqrt()
    return cells.view(b, h, w, c).to(x.dtype) * gain + bias


class TapConv(nn.Module):
    """Convolution over [batch, row, column, channel]: a sum of one product for each tap."""

    def __init__(self, cin, cout):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(3, 3, cin, cout))
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        _, height, width, _ = x.shape
        framed = F.pad(x, (0, 0, 1, 1, 1, 1))
        total = self.bias
        for dy in range(3):
            for dx in range(3):
                part = framed[:, dy : dy + height, dx : dx + width]
                total = total + part @ self.kernel[dy, dx]
        return total


class UNetResidual(nn.Module):
    def __init__(self, cin=16, cout=24, ct=20, groups=4):
        super().__init__()
        self.groups = groups
        self.gain_a, self.bias_a = nn.Parameter(torch.ones(cin)), nn.Parameter(torch.zeros(cin))
        self.gain_b, self.bias_b = nn.Parameter(torch.ones(cout)), nn.Parameter(torch.zeros(cout))
        self.conv_a, self.conv_b = TapConv(cin, cout), TapConv(cout, cout)
        self.emb = nn.Linear(ct, cout)
        self.project = nn.Parameter(torch.zeros(cin, cout))
        self.project_bias = nn.Parameter(torch.zeros(cout))

    def forward(self, image, temb):
        x = image.permute(0, 2, 3, 1).contiguous()
        h = group_norm(x, self.groups, self.gain_a, self.bias_a)
        h = self.conv_a(F.silu(h))
        h = h + self.emb(F.silu(temb))[:, None, None, :]
        h = group_norm(h, self.groups, self.gain_b, self.bias_b)
        h = self.conv_b(F.silu(h))
        h = h + x @ self.project + self.project_bias
        return h.permute(0, 3, 1, 2)


def build(weights):
    arrays = linears(weights, {"emb": "time_emb_proj"})
    for side, number in (("a", 1), ("b", 2)):
        arrays[f"gain_{side}"] = weights[f"norm{number}.weight"]
        arrays[f"bias_{side}"] = weights[f"norm{number}.bias"]
        arrays[f"conv_{side}.kernel"] = weights[f"conv{number}.weight"].transpose(2, 3, 1, 0)
        arrays[f"conv_{side}.bias"] = weights[f"conv{number}.bias"]
    arrays["project"] = weights["conv_shortcut.weight"][:, :, 0, 0].T
    arrays["project_bias"] = weights["conv_shortcut.bias"]
    return fill(UNetResidual(), arrays)
