"""A set by the author of the matcher, who had seen how it scored on the other two. All were written down before any was tried, and scored once."""

from __future__ import annotations

from mistakes import Mistake

MISTAKES = (
    Mistake("dual_stream/written_out", "self.heads(self.a_k(na)), self.heads(self.b_k(nb))", "self.heads(self.b_k(nb)), self.heads(self.a_k(na))"),
    Mistake("dual_stream/mlx_joint", "self.in_b(self.norm_b(b))", "self.in_b(self.norm_a(b))"),
    Mistake("film_block/rows", "g.mean(-1, keepdim=True)) * torch.rsqrt", "g.mean(-1, keepdim=True)) * torch.sqrt"),
    Mistake("film_block/mlx_nhwc", "h = h + h * params[..., :half] + params[..., half:]", "h = h + h * params[..., half:] + params[..., :half]"),
    Mistake("linear_attention/einsum", "q, k = self.phi(q), self.phi(k)", "q, k = self.phi(q), self.phi(k) - 1"),
    Mistake("linear_attention/mlx_heads", "norm = queries @ keys.sum(axis=-1, keepdims=True) + 1e-6", "norm = queries @ keys.mean(axis=-1, keepdims=True) + 1e-6"),
    Mistake("gated_residual/loop", "            y = y + y * scale\n", "            y = y * scale\n"),
    Mistake("gated_residual/mlx_fused", "return x + mx.tanh(gate) * y", "return x + gate * y", missing="x = x + torch.tanh(gate1)"),
    Mistake("pooled_classifier/bmm", "attn = F.softmax(logits, dim=1)", "attn = F.softmax(logits, dim=0)"),
    Mistake("latent_unpack/mlx_rows", "transpose(0, 1, 4, 2, 5, 3)", "transpose(0, 1, 5, 2, 4, 3)"),
    Mistake("frequency_mixer/cos_sin", "torch.stack([-odd, even], dim=-1)", "torch.stack([odd, -even], dim=-1)"),
    Mistake("sliding_average/shifts", "out = out + shifted * self.filter[3 - back]", "out = out + shifted * self.filter[back]"),
    Mistake("pooled_classifier/mlx_pool", "y = self.norm(x)", "y = x", missing="h = self.norm(x)"),
    Mistake("sliding_average/mlx_conv", "[(0, 0), (3, 0), (0, 0)]", "[(0, 0), (2, 1), (0, 0)]"),
    Mistake("frequency_mixer/mlx_pairs", "mx.arange(0, self.dims, 2) / self.dims", "mx.arange(0, self.dims, 2) / (self.dims // 2)"),
    Mistake("latent_unpack/einsum_patches", "y.mul(self.sigma[:, None, None]).add(self.mu[:, None, None])",
            "y.add(self.mu[:, None, None]).mul(self.sigma[:, None, None])"),
)  # fmt: skip
