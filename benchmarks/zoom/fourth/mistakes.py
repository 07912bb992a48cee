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
)  # fmt: skip
