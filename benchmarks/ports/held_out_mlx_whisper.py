"""Mistakes in mlx-whisper 0.4.3 against transformers: written before any comparison of this pair, and scored once."""

from __future__ import annotations

from mistakes import Mistake, at, change

FILE, LOAD = "whisper.py", "load_models.py"
M = "WhisperForConditionalGeneration.model"
E, D = f"{M}.encoder", f"{M}.decoder"
HEARD, READ = f"{E}.layers.0", f"{D}.layers.0"

MISTAKES = [
    Mistake("second_gelu_missing", "blind_b", change(FILE, "x = nn.gelu(self.conv2(x))", "x = self.conv2(x)"),
            at(f"{E}.conv2", HEARD, f"{HEARD}.self_attn_layer_norm"), ("activation.missing",), "heard_first"),
    Mistake("gelu_by_sigmoid", "blind_b", change(FILE, "self.mlp2(nn.gelu(self.mlp1(self.mlp_ln(x))))", "self.mlp2(nn.gelu_fast_approx(self.mlp1(self.mlp_ln(x))))"),
            at(f"{HEARD}.activation_fn", f"{HEARD}.fc2"), ("activation.kind",), "heard_first"),
    Mistake("positions_cos_first", "blind_b", change(FILE, "mx.concatenate([mx.sin(scaled_time), mx.cos(scaled_time)], axis=1)", "mx.concatenate([mx.cos(scaled_time), mx.sin(scaled_time)], axis=1)"),
            at(f"{E}.embed_positions", f"{HEARD}.self_attn_layer_norm") + (f"input:{HEARD}",), ("timestep.cos_sin_order", "layout.parts_exchanged"), "heard_first"),
    Mistake("positions_without_offset", "blind_b", change(FILE, "self.positional_embedding[offset : offset + x.shape[-1]]", "self.positional_embedding[: x.shape[-1]]"),
            at(f"{D}.embed_positions", f"{READ}.self_attn_layer_norm") + (f"input:{READ}", f"input:{READ}.hidden_states"), ("embedding.offset", "residual.other_input"), "read_first"),
    Mistake("scores_in_f16", "blind_b", change(FILE, "w = mx.softmax(qk, axis=-1, precise=True)", "w = mx.softmax(qk.astype(mx.float16), axis=-1).astype(q.dtype)"),
            at(f"{HEARD}.self_attn.out_proj"), ("precision.f16",), "heard_first"),
    Mistake("no_mask", "blind_b", change(FILE, "x, xa, mask=self._mask, kv_cache=kv_cache[e]", "x, xa, kv_cache=kv_cache[e]"),
            at(f"{READ}.self_attn.out_proj"), ("attention.mask_missing",), "read_first"),
    Mistake("padded_at_the_end", "blind_b",
            change(FILE, "self.conv2 = nn.Conv1d(n_state, n_state, kernel_size=3, stride=2, padding=1)", "self.conv2 = nn.Conv1d(n_state, n_state, kernel_size=3, stride=2)")
            + change(FILE, "x = nn.gelu(self.conv2(x))", "x = nn.gelu(self.conv2(mx.pad(x, [(0, 0), (0, 1), (0, 0)])))"),
            at(f"{E}.conv2"), ("convolution.padding",), "heard_first"),
    Mistake("cross_norm_missing", "blind_b", change(FILE, "self.cross_attn_ln(x), xa, kv_cache=cross_kv", "x, xa, kv_cache=cross_kv"),
            at(f"{READ}.encoder_attn_layer_norm", f"{READ}.encoder_attn.q_proj") + (f"input:{READ}.encoder_attn.hidden_states",), ("norm.missing",), "read_first"),
    Mistake("cross_residual_normed", "blind_b",
            change(FILE, "            x += y\n        x = x + self.mlp2", "            x = self.cross_attn_ln(x) + y\n        x = x + self.mlp2"),
            at(f"{READ}.final_layer_norm"), ("residual.other_input",), "read_first"),
    Mistake("eps_of_keras", "blind_b", change(FILE, "self.ln_post = nn.LayerNorm(n_state)", "self.ln_post = nn.LayerNorm(n_state, eps=1e-3)"),
            at(f"{E}.layer_norm") + (f"output:{E}", f"output:{E}.last_hidden_state"), ("norm.eps",), "heard"),
    Mistake("kernels_mirrored", "blind_b",
            change(LOAD, "    weights = tree_unflatten(", "    weights = {k: v[:, ::-1] if v.ndim == 3 else v for k, v in weights.items()}\n    weights = tree_unflatten("),
            at(f"{E}.conv1"), ("convolution.kernel_mirrored",), "heard_first"),
    Mistake("cached_exchanged", "blind_b", change(FILE, "            k, v = kv_cache\n", "            v, k = kv_cache\n"),
            at(f"{READ}.encoder_attn.out_proj"), ("attention.qkv_exchanged",), "read_first"),
]  # fmt: skip
