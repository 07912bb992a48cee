import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class ChannelsFirstScan(nn.Module):
    """Time comes last; the convolution is a sum over its taps, and the state is one buffer."""

    def __init__(self, shapes):
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, x):
        b, t, _ = x.shape
        both = self.w_in @ x.permute(0, 2, 1)
        d = both.shape[1] // 2
        u, z = both[:, :d], both[:, d:]
        taps = self.taps.shape[1]
        padded = torch.cat([u.new_zeros(b, d, taps - 1), u], dim=2)
        conv = self.taps_bias[:, None].expand(b, d, t).clone()
        for tap in range(taps):
            conv.addcmul_(padded[:, :, tap : tap + t], self.taps[:, tap, None])
        u = F.silu(conv)
        rank = self.w_dt.shape[1]
        projected = self.w_x @ u
        dt = F.softplus(self.w_dt @ projected[:, :rank] + self.b_dt[:, None])
        n = self.a_log.shape[1]
        B, C = projected[:, rank : rank + n], projected[:, rank + n :]
        minus_a = self.a_log.exp()
        state = u.new_zeros(b, d, n)
        y = torch.empty_like(u)
        for i in range(t):
            state.mul_(torch.exp(-dt[:, :, i : i + 1] * minus_a))
            state.add_((dt[:, :, i] * u[:, :, i]).unsqueeze(2) * B[:, None, :, i])
            y[:, :, i] = torch.bmm(state, C[:, :, i : i + 1]).squeeze(2)
        y.addcmul_(self.d_skip[:, None], u)
        y.mul_(F.silu(z))
        return (self.w_out @ y).permute(0, 2, 1)


def build(weights):
    arrays = {
        "w_in": weights["in_proj.weight"], "taps": weights["conv.weight"][:, 0], "taps_bias": weights["conv.bias"], "w_x": weights["x_proj.weight"],
        "w_dt": weights["dt_proj.weight"], "b_dt": weights["dt_proj.bias"], "a_log": weights["A_log"], "d_skip": weights["D"],
        "w_out": weights["out_proj.weight"],
    }  # fmt: skip
    return fill(ChannelsFirstScan({name: value.shape for name, value in arrays.items()}), arrays)
