"""Mistakes in mlx-lm 0.32, Qwen3, against transformers: the half that is scored once, at the end."""

from __future__ import annotations

from mistakes import Mistake, at, change
from mistakes_mlx_lm import FILE, M, L, ATTENDED

MISTAKES = [
    Mistake("theta", "blind_b", change(FILE, "base=args.rope_theta,", "base=10000.0,"), at(f"{M}.rotary_emb") + ATTENDED, ("rotary.theta",), "layer_first"),
    Mistake("key_norm_of_queries", "blind_b", change(FILE, "keys = self.k_norm(keys", "keys = self.q_norm(keys"),
            at(f"{L}.self_attn.k_norm", f"{L}.self_attn.q_norm") + ATTENDED, ("norm.other_weight",), "layer_first"),
    Mistake("gelu", "blind_b", change(FILE, "swiglu(self.gate_proj(x), self.up_proj(x))", "nn.gelu(self.gate_proj(x)) * self.up_proj(x)"),
            at(f"{L}.mlp.act_fn", f"{L}.mlp.down_proj"), ("activation.kind",), "layer_first"),
    Mistake("second_residual", "blind_b", change(FILE, "        out = h + r\n", "        out = x + r\n"),
            (f"output:{L}", f"output:{L}.0") + at(f"{M}.layers.1.input_layernorm") + (f"input:{M}.layers.1", f"input:{M}.layers.1.hidden_states"), ("residual.other_input",), "layer_first"),
    Mistake("no_final_norm", "blind_b", change(FILE, "        return self.norm(h)\n", "        return h\n"),
            at(f"{M}.norm", "Qwen3ForCausalLM.lm_head") + (f"output:{M}", f"output:{M}.last_hidden_state"), ("norm.missing",), "normed"),
    Mistake("kv_tiled", "blind_b",
            change(FILE, "        output = scaled_dot_product_attention(\n", """        rep = self.n_heads // self.n_kv_heads
        keys, values = mx.tile(keys, (1, rep, 1, 1)), mx.tile(values, (1, rep, 1, 1))
        output = scaled_dot_product_attention(
"""), ATTENDED, ("attention.key_groups",), "layer_first"),
    Mistake("first_norm_twice_used", "blind_b", change(FILE, "self.mlp(self.post_attention_layernorm(h))", "self.mlp(self.input_layernorm(h))"),
            at(f"{L}.post_attention_layernorm", f"{L}.mlp.gate_proj", f"{L}.mlp.up_proj") + (f"input:{L}.mlp",), ("norm.other_weight",), "layer_first"),
    Mistake("one_plus_weight", "blind_b",
            change(FILE, "    def sanitize(self, weights):\n", """    def sanitize(self, weights):
        weights = {k: v + 1 if "layernorm" in k else v for k, v in weights.items()}
"""), at(f"{L}.input_layernorm"), ("norm.one_plus_weight",), "layer_first"),
    Mistake("half_of_head_rotated", "blind_b", change(FILE, "        self.rope = initialize_rope(\n            head_dim,", "        self.rope = initialize_rope(\n            head_dim // 2,"),
            ATTENDED, ("rotary.partial",), "layer_first"),
    Mistake("heads_by_reshape", "blind_b",
            change(FILE, "values = values.reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)", "values = values.reshape(B, self.n_kv_heads, L, -1)"),
            ATTENDED, ("layout.heads", "attention.heads"), "layer_first"),
    Mistake("keys_in_bf16", "blind_b", change(FILE, "            keys = self.rope(keys, offset=cache.offset)\n", "            keys = self.rope(keys, offset=cache.offset).astype(mx.bfloat16).astype(x.dtype)\n"),
            ATTENDED, ("precision.bf16",), "layer_first"),
    Mistake("last_layer_left_out", "blind_b", change(FILE, "for layer, c in zip(self.layers, cache):", "for layer, c in zip(self.layers[:-1], cache):"),
            at(f"{M}.norm") + (f"output:{M}.layers.3", f"input:{M}.layers.3.input_layernorm"), ("capture.other_stage", "stage.replaced", "residual.branch_missing"), "normed"),
]  # fmt: skip
