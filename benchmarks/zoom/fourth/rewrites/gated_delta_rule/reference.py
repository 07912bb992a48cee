import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedDeltaNet(nn.Module):
    """Linear attention whose state is decayed and then corrected by each token."""

    def __init__(self, dim=24, heads=2, key_dim=6, value_dim=8):
        super().__init__()
        self.heads, self.key_dim, self.value_dim = heads, key_dim, value_dim
        self.q_proj = nn.Linear(dim, heads * key_dim, bias=False)
        self.k_proj = nn.Linear(dim, heads * key_dim, bias=False)
        self.v_proj = nn.Linear(dim, heads * value_dim, bias=False)
        self.z_proj = nn.Linear(dim, heads * value_dim, bias=False)
        self.b_proj = nn.Linear(dim, heads, bias=False)
        self.a_proj = nn.Linear(dim, heads, bias=False)
        self.A_log = nn.Parameter(torch.zeros(heads) - 1.0)
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        self.norm = nn.RMSNorm(value_dim, eps=1e-6)
        self.out_proj = nn.Linear(heads * value_dim, dim, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.key_dim).float()
        k = self.k_proj(x).view(batch, length, self.heads, self.key_dim).float()
        v = self.v_proj(x).view(batch, length, self.heads, self.value_dim).float()
        z = self.z_proj(x).view(batch, length, self.heads, self.value_dim)
        q = F.normalize(q, dim=-1)
        k = F.normalize(k, dim=-1)
        beta = torch.sigmoid(self.b_proj(x)).float()
        g = -self.A_log.float().exp() * F.softplus(self.a_proj(x).float() + self.dt_bias.float())

        state = torch.zeros(batch, self.heads, self.key_dim, self.value_dim)
        outputs = []
        for t in range(length):
            state = state * g[:, t].exp()[..., None, None]
            memory = (state * k[:, t, :, :, None]).sum(-2)
            delta = (v[:, t] - memory) * beta[:, t, :, None]
            state = state + k[:, t, :, :, None] * delta[:, :, None, :]
            outputs.append((state * q[:, t, :, :, None]).sum(-2))
        y = torch.stack(outputs, dim=1).to(x.dtype)
        y = self.norm(y) * F.silu(z)
        return self.out_proj(y.flatten(2))


def build():
    return GatedDeltaNet()


def inputs():
    return (torch.randn(2, 9, 24),)
