"""A second blind set: the author of these ports and mistakes had seen neither the matcher, nor its tests, nor a score of it.

All were written down before the matcher was run on any of them."""

from __future__ import annotations

from mistakes import Mistake

MISTAKES = (
    Mistake("joint_attention/fused_qkv", "power = qk.pow(2).mean(dim=-1, keepdim=True)", "power = qk.pow(2).mean(dim=-2, keepdim=True)", kind="axis"),
    Mistake("joint_attention/block_scores", "kc = rms(self.heads(self.c_k(c)), self.c_k_gain)", "kc = rms(self.heads(self.c_k(c)), self.x_k_gain)", kind="operand"),
    Mistake("joint_attention/mlx_two_streams", "v = mx.concatenate([vt, vi], axis=2)", "v = mx.concatenate([vi, vt], axis=2)", kind="order"),
    Mistake("adaln_zero_block/separate_heads", "return standardise(x) * (gain + 1) + bias", "return standardise(x) * gain + bias", kind="scale"),
    Mistake("adaln_zero_block/mlx_dit", "shift, scale, gate = mx.split(mlp_params, 3, axis=-1)", "scale, shift, gate = mx.split(mlp_params, 3, axis=-1)", kind="order"),
    Mistake("adaln_zero_block/mlx_table", "        signal = cond * mx.sigmoid(cond)\n        table = affine(signal,", "        table = affine(cond,", missing="c = F.silu(c)", kind="removed"),
    Mistake("resnet_time/unfolded", "rows = rows - rows.mean(dim=(2, 3), keepdim=True)", "rows = rows - rows.mean(dim=3, keepdim=True)", kind="axis"),
    Mistake("resnet_time/taps_nhwc", "total = total + part @ self.kernel[dy, dx]", "total = total + part @ self.kernel[dx, dy]", kind="transpose"),
    Mistake("resnet_time/mlx_resnet", "residual = self.shortcut(x)", "residual = self.shortcut(nn.silu(self.norm1(x)))", kind="residual"),
    Mistake("asymmetric_samplers/matmul_patches", "framed = self.bordered(x, 0, 1, 0, 1)", "framed = self.bordered(x, 1, 0, 1, 0)", kind="padding"),
    Mistake("asymmetric_samplers/mlx_samplers", "mx.broadcast_to(x[:, :, None, :, None, :], (B, H, scale, W, scale, C))",
            "mx.broadcast_to(x[:, None, :, None, :, :], (B, scale, H, scale, W, C))", kind="repeat"),
    Mistake("window_attention/window_loop", "y = y.roll((self.s, self.s), (1, 2))", "y = y.roll((-self.s, -self.s), (1, 2))", kind="sign"),
    Mistake("window_attention/einsum_windows", "flat = dy * (2 * size - 1) + dx", "flat = dx * (2 * size - 1) + dy", kind="transpose"),
    Mistake("window_attention/mlx_swin", "        scores = scores + mx.tile(self.region_mask(H, W), (B, 1, 1, 1))\n", "", missing="scores = scores + self.mask[None, :, None]", kind="removed"),
    Mistake("alibi_multi_query/heads_as_rows", "ratio ** (number + 1)", "ratio**number", kind="position"),
    Mistake("alibi_multi_query/mlx_mpt", "future = mx.triu(mx.ones((L, L)), k=1)", "future = mx.triu(mx.ones((L, L)), k=2)", kind="mask"),
    Mistake("axial_rope/real_pairs", "angles = angles.repeat_interleave(2, dim=1)", "angles = angles.repeat(1, 2)", kind="repeat"),
    Mistake("axial_rope/half_split", "        k = self.rotate(k, angles)\n", "", missing="key = apply_rotary(key, frequencies)", kind="removed"),
    Mistake("axial_rope/mlx_axes", "parts.append(ids[:, axis, None].astype(mx.float32) * omega)", "parts.append(ids[:, 2 - axis, None].astype(mx.float32) * omega)", kind="axis"),
    Mistake("causal_video_conv/frame_sums", "kernel = self.slices[depth - 1 - back]", "kernel = self.slices[back]", kind="order"),
    Mistake("causal_video_conv/mlx_conv3d", "        y = x + y\n", "        y = x + nn.silu(y)\n", kind="added"),
    Mistake("causal_video_conv/mlx_cached_frames", "cache = [mx.zeros_like(frames[0])] * 2", "cache = [self.activated(frames[0])] * 2", kind="padding"),
    Mistake("gated_delta_rule/step_function", 'torch.einsum("bhvk,bhk->bhv", faded, k)', 'torch.einsum("bhvk,bhk->bhv", state, k)', kind="operand"),
    Mistake("gated_delta_rule/one_chunk", "seen = seen.tril(0)", "seen = seen.tril(-1)", kind="mask"),
    Mistake("gated_delta_rule/mlx_delta", "gate = nn.silu(self.z(x))", "gate = mx.sigmoid(self.z(x))", kind="activation"),
    Mistake("shared_expert_moe/dense_dispatch", "        kept = kept / kept.sum(-1, keepdim=True)\n", "", missing="weights = weights / weights.sum(dim=-1, keepdim=True)", kind="removed"),
    Mistake("shared_expert_moe/sorted_tokens", "gate, up = F.linear(x, fused).chunk(2, dim=-1)", "up, gate = F.linear(x, fused).chunk(2, dim=-1)", kind="order"),
    Mistake("shared_expert_moe/mlx_switch", "gates = mx.softmax(logits, axis=-1)", "gates = mx.softmax(logits, axis=0)", kind="axis"),
    Mistake("patch_final_layer/folded", "        tokens = self.embed(tokens)\n", "        tokens = self.embed(tokens) * self.embed.out_features**0.5\n", kind="added"),
    Mistake("patch_final_layer/mlx_grid", "[sincos_1d(size // 2, rows), sincos_1d(size // 2, columns)]", "[sincos_1d(size // 2, columns), sincos_1d(size // 2, rows)]", kind="order"),
    Mistake("patch_final_layer/mlx_rows", "image = cells.transpose(0, 5, 1, 3, 2, 4)", "image = cells.transpose(0, 5, 1, 4, 2, 3)", kind="transpose"),
    Mistake("guided_flow_sampler/paired_batch", "mixed = without + self.cfg * (given - without)", "mixed = given + self.cfg * (given - without)", kind="operand"),
    Mistake("guided_flow_sampler/plain_functions", "actual = guided.square().sum(dim=2, keepdim=True).sqrt()", "actual = guided.square().sum(dim=1, keepdim=True).sqrt()", kind="axis"),
    Mistake("guided_flow_sampler/mlx_euler", "return 1000.0 * self._scheduler.sigmas[i]", "return 1000.0 * self._scheduler.sigmas[i + 1]", kind="position"),
)  # fmt: skip
