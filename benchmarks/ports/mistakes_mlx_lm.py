"""Mistakes in mlx-lm 0.32, Qwen3, against transformers."""

from __future__ import annotations

from mistakes import Mistake, at, change

FILE = "models/qwen3.py"
M = "Qwen3ForCausalLM.model"
L = f"{M}.layers.0"
ATTENDED = at(f"{L}.self_attn.o_proj")

MISTAKES = [
    Mistake("rotary_interleaved", "blind_a", change(FILE, "traditional=False", "traditional=True"), ATTENDED, ("rotary.style",), "layer_first"),
    Mistake("query_norm_missing", "blind_a",
            change(FILE, """self.q_norm(queries.reshape(B, L, self.n_heads, -1)).transpose(
            0, 2, 1, 3
        )""", "queries.reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)"),
            at(f"{L}.self_attn.q_norm") + ATTENDED, ("attention.norm_missing", "norm.missing"), "layer_first"),
    Mistake("scale_of_hidden_size", "blind_a", change(FILE, "self.scale = head_dim**-0.5", "self.scale = dim**-0.5"), ATTENDED, ("attention.scale",), "layer_first"),
    Mistake("no_mask", "blind_a", change(FILE, "scale=self.scale, mask=mask", "scale=self.scale, mask=None"), ATTENDED, ("attention.mask_missing",), "layer_first"),
    Mistake("gate_up_exchanged", "blind_a",
            change(FILE, "swiglu(self.gate_proj(x), self.up_proj(x))", "swiglu(self.up_proj(x), self.gate_proj(x))"),
            at(f"{L}.mlp.act_fn", f"{L}.mlp.down_proj"), ("activation.gate_up_exchanged",), "layer_first"),
    Mistake("residual_missing", "blind_a", change(FILE, "        h = x + r\n", "        h = r\n"), at(f"{L}.post_attention_layernorm"), ("residual.missing",), "layer_first"),
    Mistake("eps", "blind_a",
            change(FILE, "self.input_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)", "self.input_layernorm = nn.RMSNorm(args.hidden_size)"),
            at(f"{L}.input_layernorm"), ("norm.eps",), "layer_first"),
    Mistake("embedding_scaled", "blind_a",
            change(FILE, "h = self.embed_tokens(inputs)", "h = self.embed_tokens(inputs) * self.args.hidden_size**0.5"),
            at(f"{M}.embed_tokens", f"{L}.input_layernorm") + (f"input:{L}", f"input:{L}.hidden_states"), ("affine.scale",), "layer_first"),
    Mistake("heads_not_transposed_back", "blind_a",
            change(FILE, "output = output.transpose(0, 2, 1, 3).reshape(B, L, -1)", "output = output.reshape(B, L, -1)"), ATTENDED, ("layout.heads",), "layer_first"),
    Mistake("tied_head", "blind_a", change(FILE, "out = self.lm_head(out)", "out = self.model.embed_tokens.as_linear(out)"),
            at("Qwen3ForCausalLM.lm_head") + ("output:Qwen3ForCausalLM.logits", "output:Qwen3ForCausalLM"), ("linear.other_weight",), "logits"),
    Mistake("values_rotated", "blind_a",
            change(FILE, "            keys, values = cache.update_and_fetch(keys, values)", "            values = self.rope(values, offset=cache.offset)\n            keys, values = cache.update_and_fetch(keys, values)"),
            ATTENDED, ("rotary.on_values",), "layer_first"),
    Mistake("query_without_offset", "blind_a", change(FILE, "queries = self.rope(queries, offset=cache.offset)", "queries = self.rope(queries)"),
            ATTENDED, ("rotary.offset", "rotary.positions", "rotary.missing"), "layer_first"),
    Mistake("gate_up_loaded_exchanged", "blind_a",
            change(FILE, "    def sanitize(self, weights):\n", """    def sanitize(self, weights):
        weights = {k.replace("gate_proj", "\\0").replace("up_proj", "gate_proj").replace("\\0", "up_proj"): v for k, v in weights.items()}
"""),
            at(f"{L}.mlp.gate_proj", f"{L}.mlp.up_proj"), ("linear.other_weight",), "layer_first"),
]  # fmt: skip
