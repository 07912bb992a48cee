"""One mistake for each rewrite: a piece of its text and what stands there instead.

A mistake is found when the changed line is among the lines named of the rewrite. Where a step was taken out, the reference's line that has it
(`missing`) among the lines named of the reference will do as well. All were written down before any was tried.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mistake:
    rewrite: str  # family/file
    right: str
    wrong: str
    missing: str = ""  # part of the reference's line with the step that was taken out
    kind: str = ""


MISTAKES = (
    Mistake("self_attention/fused_einsum", "logits * (C // self.n_head) ** -0.5", "logits * C**-0.5"),
    Mistake("self_attention/merged_batch", "F.softmax(scores, dim=-1)", "F.softmax(scores, dim=-2)"),
    Mistake("self_attention/mlx_fast", "keys = self.k_norm(keys)", "keys = self.q_norm(keys)"),
    Mistake("self_attention/mlx_per_head", "v = self.value(x)", "v = self.key(x)"),
    Mistake("rotary_attention/real_pairs", "even * cos - odd * sin", "even * cos + odd * sin"),
    Mistake("rotary_attention/mlx_stacked", "        k = self.rope(k, freqs)\n", "", missing="k = apply_rotary(k, table)"),
    Mistake("rotary_attention/matrices", "[angles.cos(), -angles.sin(), angles.sin(), angles.cos()]",
            "[angles.cos(), angles.sin(), -angles.sin(), angles.cos()]"),
    Mistake("modulated_block/separate_linears", 'residual + y * m["attn_gate"]', 'residual + y * m["mlp_gate"]'),
    Mistake("modulated_block/mlx_written_out", "normed * (1 + emb[:, 4]) + emb[:, 3]", "normed * emb[:, 4] + emb[:, 3]"),
    Mistake("modulated_block/functional", "y = y + y * scale1 + shift1", "y = y + y * shift1 + scale1"),
    Mistake("feed_forward/gelu_written_out", "0.044715 * torch.pow(x, 3.0)", "0.44715 * torch.pow(x, 3.0)"),
    Mistake("feed_forward/mlx_matmul", "nn.gelu_approx(y)", "nn.gelu(y)"),
    Mistake("feed_forward/convolutions", "y = self.reduce(y)", "y = F.conv1d(y, self.reduce.weight)", missing="self.fc_out(hidden)"),
    Mistake("swiglu/fused_projection", "gate, up = joined.chunk(2, dim=-1)", "up, gate = joined.chunk(2, dim=-1)"),
    Mistake("swiglu/mlx_llama", "nn.silu(gate) * up", "gate * nn.silu(up)"),
    Mistake("swiglu/sigmoid_in_place", "        g.mul_(s)\n", "        g = s\n"),
    Mistake("rms_norm_linear/functional", "scale = self.scale", "scale = 1 + self.scale"),
    Mistake("rms_norm_linear/mlx_steps", "mx.square(wide).sum(axis=-1, keepdims=True) / wide.shape[-1]", "mx.var(wide, axis=-1, keepdims=True)"),
    Mistake("rms_norm_linear/vector_norm", "unit * math.sqrt(self.dim)", "unit"),
    Mistake("timestep_embedding/numpy_table", "[np.cos(angles), np.sin(angles)]", "[np.sin(angles), np.cos(angles)]"),
    Mistake("timestep_embedding/mlx_outer", "mx.arange(half) / half)", "mx.arange(half) / (half - 1))"),
    Mistake("timestep_embedding/powers", "        y = F.silu(y)\n", "", missing="F.silu(self.linear_1(projected))"),
    Mistake("patch_embedding/reshape_linear", "x.permute(0, 2, 4, 1, 3, 5)", "x.permute(0, 2, 4, 3, 5, 1)"),
    Mistake("patch_embedding/mlx_channels_last", "y = image.transpose(0, 2, 3, 1)", "y = image.transpose(0, 3, 2, 1)"),
    Mistake("patch_embedding/unfold", "torch.arange(y.shape[1])", "torch.arange(1, y.shape[1] + 1)"),
    Mistake("resnet_block/mlx_nhwc", "        y = y + t\n        y = nn.silu(self.norm_out(y))\n", "        y = nn.silu(self.norm_out(y))\n        y = y + t\n"),
    Mistake("resnet_block/groups_written_out", "y.square().mean(-1, keepdim=True)", "y.var(-1, keepdim=True)"),
    Mistake("resnet_block/unfolded", "self.short(x) + y", "self.short(a) + y"),
    Mistake("cross_attention/masked_fill", "encoder_mask[:, None, None, :] == 0", "encoder_mask[:, None, None, :] == 1"),
    Mistake("cross_attention/mlx_additive", "(1 - text_mask.astype(x.dtype)) * -1e9", "text_mask.astype(x.dtype) * -1e9"),
    Mistake("cross_attention/exp_sums", "shifted.exp() * mask[:, None, None].to(x.dtype)", "shifted.exp()", missing="attn_mask=mask.bool()"),
    Mistake("grouped_attention/repeated_keys", "keys = torch.repeat_interleave(xk, n_rep, dim=2)", "keys = xk.repeat(1, 1, n_rep, 1)"),
    Mistake("grouped_attention/mlx_broadcast", "mx.arange(L)[None] > mx.arange(L)[:, None]", "mx.arange(L)[None] > mx.arange(L)[:, None] + 1"),
    Mistake("grouped_attention/loop_over_groups", "is_causal=True", "is_causal=False"),
    Mistake("experts/dense_weights", "        top = top / top.sum(dim=-1, keepdim=True)\n", "", missing="weights = weights / weights.sum"),
    Mistake("experts/mlx_sorted", "mx.argsort(-logits, axis=-1)", "mx.argsort(logits, axis=-1)"),
    Mistake("recurrence/attention_form", "fed = fresh * self.v(y)", "fed = self.v(y)", missing="(1 - decay[:, step]) * value[:, step]"),
    Mistake("recurrence/mlx_loop", "y = mx.pad(x, [(0, 0), (2, 0), (0, 0)])", "y = mx.pad(x, [(0, 0), (1, 1), (0, 0)])"),
    Mistake("final_layer/einsum_unpatch", "bhwcpq->bchpwq", "bhwcpq->bchqwp"),
    Mistake("final_layer/mlx_rows", "scale, shift = emb[:, None, :half], emb[:, None, half:]", "shift, scale = emb[:, None, :half], emb[:, None, half:]"),
    Mistake("relative_attention/fused_mask", "attn_mask=bias, scale=1.0", "attn_mask=bias"),
    Mistake("relative_attention/mlx_t5", "memory_position - context_position", "context_position - memory_position"),
)  # fmt: skip
