import torch
import torch.nn as nn
import torch.nn.functional as F


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class DiTBlock(nn.Module):
    """Transformer block whose norms and residuals a conditioning vector modulates."""

    def __init__(self, hidden_size=32, num_heads=4, mlp_ratio=2):
        super().__init__()
        self.num_heads = num_heads
        self.norm1 = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.proj = nn.Linear(hidden_size, hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.fc1 = nn.Linear(hidden_size, mlp_ratio * hidden_size)
        self.fc2 = nn.Linear(mlp_ratio * hidden_size, hidden_size)
        self.adaLN = nn.Linear(hidden_size, 6 * hidden_size)

    def attend(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x, c):
        c = F.silu(c)
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = self.adaLN(c).chunk(6, dim=1)
        h = modulate(self.norm1(x), shift_msa, scale_msa)
        x = x + gate_msa.unsqueeze(1) * self.attend(h)
        h = modulate(self.norm2(x), shift_mlp, scale_mlp)
        h = F.gelu(self.fc1(h), approximate="tanh")
        return x + gate_mlp.unsqueeze(1) * self.fc2(h)


def build():
    return DiTBlock()


def inputs():
    return torch.randn(2, 10, 32), torch.randn(2, 32)
