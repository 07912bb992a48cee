import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class MambaMixer(nn.Module):
    def __init__(self, hidden=12, intermediate=16, state_size=4, time_step_rank=3, conv_kernel=4):
        super().__init__()
        self.rank, self.state_size, self.kernel = time_step_rank, state_size, conv_kernel
        self.in_proj = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.conv1d = nn.Conv1d(intermediate, intermediate, conv_kernel, groups=intermediate)
        self.x_proj = nn.Linear(intermediate, time_step_rank + 2 * state_size, bias=False)
        self.dt_proj = nn.Linear(time_step_rank, intermediate)
        self.A_log = mx.zeros((intermediate, state_size))
        self.D = mx.ones((intermediate,))
        self.out_proj = nn.Linear(intermediate, hidden, bias=False)

    def step(self, x, state, A):
        delta, B, C = mx.split(self.x_proj(x), [self.rank, self.rank + self.state_size], axis=-1)
        delta = nn.softplus(self.dt_proj(delta))
        state = state * mx.exp(mx.expand_dims(delta, -1) * A)
        state = state + mx.expand_dims(delta * x, -1) * mx.expand_dims(B, -2)
        y = (state @ mx.expand_dims(C, -1)).squeeze(-1)
        return y + self.D * x, state

    def __call__(self, x):
        x, z = mx.split(self.in_proj(x), 2, axis=-1)
        x = nn.silu(self.conv1d(mx.pad(x, [(0, 0), (self.kernel - 1, 0), (0, 0)])))
        A = -mx.exp(self.A_log)
        state = mx.zeros((x.shape[0], x.shape[2], self.state_size), dtype=x.dtype)
        outputs = []
        for t in range(x.shape[1]):
            y, state = self.step(x[:, t], state, A)
            outputs.append(y)
        return self.out_proj(mx.stack(outputs, axis=1) * nn.silu(z))


def build(weights):
    arrays = linears(weights, {name: name for name in ("in_proj", "x_proj", "dt_proj", "out_proj")})
    arrays |= {"A_log": weights["A_log"], "D": weights["D"]}
    return fill(MambaMixer(), arrays | {"conv1d.weight": weights["conv.weight"].transpose(0, 2, 1), "conv1d.bias": weights["conv.bias"]})
