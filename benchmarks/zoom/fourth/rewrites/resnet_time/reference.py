import torch
import torch.nn as nn
import torch.nn.functional as F


class ResnetBlock2D(nn.Module):
    """Residual block of a UNet, with the time embedding added between its convolutions."""

    def __init__(self, in_channels=16, out_channels=24, temb_channels=20, groups=4):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, in_channels, eps=1e-5)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.time_emb_proj = nn.Linear(temb_channels, out_channels)
        self.norm2 = nn.GroupNorm(groups, out_channels, eps=1e-5)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, input_tensor, temb):
        hidden_states = F.silu(self.norm1(input_tensor))
        hidden_states = self.conv1(hidden_states)
        temb = self.time_emb_proj(F.silu(temb))
        hidden_states = hidden_states + temb[:, :, None, None]
        hidden_states = F.silu(self.norm2(hidden_states))
        hidden_states = self.conv2(hidden_states)
        shortcut = self.conv_shortcut(input_tensor)
        return shortcut + hidden_states


def build():
    return ResnetBlock2D()


def inputs():
    return torch.randn(2, 16, 6, 7) + torch.randn(2, 16, 1, 1), torch.randn(2, 20)
