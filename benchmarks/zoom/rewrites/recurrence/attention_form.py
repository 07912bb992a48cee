import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class ParallelRecurrence(nn.Module):
    """The same recurrence as one weighted sum: a token's weight is the product of the decays after it."""

    def __init__(self, dim=16):
        super().__init__()
        self.kernel, self.kernel_bias = nn.Parameter(torch.zeros(3, dim)), nn.Parameter(torch.zeros(dim))
        self.f = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x):
        padded = F.pad(x, (0, 0, 2, 0))
        y = sum(padded[:, i : i + x.shape[1]] * self.kernel[i] for i in range(3)) + self.kernel_bias
        y = F.silu(y)
        log_decay = F.logsigmoid(self.f(y)).float()
        fresh = torch.sigmoid(-self.f(y))
        fed = fresh * self.v(y)
        total = log_decay.cumsum(1)
        gaps = total[:, :, None] - total[:, None]
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        weights = torch.exp(gaps.masked_fill(~causal[None, :, :, None], float("-inf"))).to(x.dtype)
        return x + self.o(torch.einsum("btsd,bsd->btd", weights, fed))


def build(weights):
    arrays = {f"{new}.{part}": weights[f"{old}.{part}"] for new, old in {"f": "forget", "v": "value", "o": "out"}.items() for part in ("weight", "bias")}
    return fill(ParallelRecurrence(), arrays | {"kernel": weights["conv.weight"][:, 0].T, "kernel_bias": weights["conv.bias"]})
