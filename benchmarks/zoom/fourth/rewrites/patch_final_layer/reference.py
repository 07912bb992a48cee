import torch
import torch.nn as nn
import torch.nn.functional as F


def sincos(dim, positions):
    omega = 1.0 / 10000 ** (torch.arange(dim // 2).float() / (dim / 2))
    angles = torch.outer(positions.flatten().float(), omega)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class PatchInAndOut(nn.Module):
    """First and last layer of a diffusion transformer: latents to tokens with places, and back to latents."""

    def __init__(self, channels=4, patch=2, width=32, height=4, columns=6):
        super().__init__()
        self.channels, self.patch, self.grid = channels, patch, (height, columns)
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)
        self.norm_final = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.adaLN_modulation = nn.Linear(width, 2 * width)
        self.linear = nn.Linear(width, patch * patch * channels)
        rows, cols = torch.meshgrid(torch.arange(height), torch.arange(columns), indexing="ij")
        table = torch.cat([sincos(width // 2, rows), sincos(width // 2, cols)], dim=1)
        self.register_buffer("pos_embed", table, persistent=False)

    def unpatchify(self, x):
        height, width = self.grid
        x = x.reshape(x.shape[0], height, width, self.patch, self.patch, self.channels)
        x = torch.einsum("nhwpqc->nchpwq", x)
        return x.reshape(x.shape[0], self.channels, height * self.patch, width * self.patch)

    def forward(self, latents, c):
        x = self.proj(latents).flatten(2).transpose(1, 2)
        x = x + self.pos_embed
        shift, scale = self.adaLN_modulation(F.silu(c)).chunk(2, dim=1)
        x = self.norm_final(x)
        x = x * (1 + scale[:, None]) + shift[:, None]
        x = self.linear(x)
        return self.unpatchify(x)


def build():
    return PatchInAndOut()


def inputs():
    return torch.randn(2, 4, 8, 12), torch.randn(2, 32)
