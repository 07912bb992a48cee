import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class ShiftedSums(nn.Module):
    """The depthwise convolution as a sum of shifted images, pixels as rows of a matrix, and sums in place."""

    def __init__(self, c=8, k=5):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(k, k, c))
        self.ln_w, self.ln_b = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.w1, self.b1 = nn.Parameter(torch.zeros(c, 3 * c)), nn.Parameter(torch.zeros(3 * c))
        self.w2, self.b2 = nn.Parameter(torch.zeros(3 * c, c)), nn.Parameter(torch.zeros(c))
        self.gain, self.offset = nn.Parameter(torch.zeros(3 * c)), nn.Parameter(torch.zeros(3 * c))

    def forward(self, image):
        b, c, h, w = image.shape
        x = image.movedim(1, -1)
        k = self.kernel.shape[0]
        framed = F.pad(x, (0, 0, k // 2, k // 2, k // 2, k // 2))
        acc = torch.zeros_like(x)
        for row in range(k):
            for column in range(k):
                acc += framed[:, row : row + h, column : column + w] * self.kernel[row, column]
        rows = acc.reshape(b, h * w, c)
        rows = F.layer_norm(rows, (c,), self.ln_w, self.ln_b, 1e-6)
        rows = F.gelu(torch.matmul(rows, self.w1) + self.b1)
        energy = rows.square().sum(1, keepdim=True).sqrt()
        energy = energy.div(energy.mean(-1, keepdim=True).add(1e-6))
        rows = rows * (1 + self.gain * energy) + self.offset
        rows = torch.matmul(rows, self.w2) + self.b2
        return rows.view(b, h, w, c).add_(x).movedim(-1, 1)


def build(weights):
    return fill(ShiftedSums(), {
        "kernel": weights["depthwise.weight"][:, 0].transpose(1, 2, 0), "ln_w": weights["norm.weight"], "ln_b": weights["norm.bias"],
        "w1": weights["expand.weight"].T, "b1": weights["expand.bias"], "w2": weights["project.weight"].T, "b2": weights["project.bias"],
        "gain": weights["response_gain"], "offset": weights["response_bias"],
    })  # fmt: skip
