"""Mistakes in mflux 0.24, Qwen-Image, against the official pipeline."""

from __future__ import annotations

from mistakes import Mistake, at, change

TEXT = "models/qwen/model/qwen_text_encoder/"
DIT = "models/qwen/model/qwen_transformer/"
VAE = "models/qwen/model/qwen_vae/"
L, B, V = "text_encoder.model.layers.0", "transformer.transformer_blocks.0", "vae.decoder"
TEXT_OUT = at(f"{L}.self_attn.o_proj")
DIT_OUT = at(f"{B}.attn.to_out.0", f"{B}.attn.to_add_out")
INTO_DIT = at(f"{B}.attn.to_q", f"{B}.attn.to_k", f"{B}.attn.to_v") + ("input:" + B + ".attn.hidden_states",)
TIME = at("transformer.time_text_embed.time_proj", "transformer.time_text_embed") + ("input:transformer.timestep",)
GUIDED = ("checkpoint:noise_pred", "checkpoint:latents")
DECODED = ("checkpoint:latents_denormalized",) + at("vae.post_quant_conv", "vae.decoder.conv_in")

MISTAKES = [
    Mistake("text.rotation_sign", "blind_a",
            change(TEXT + "qwen_attention.py", "[-x2, x1]", "[x2, -x1]"), TEXT_OUT, ("rotary.sign",), "text"),
    Mistake("text.kv_tiled", "blind_a",
            change(TEXT + "qwen_attention.py", """        hidden_states = mx.expand_dims(hidden_states, axis=2)
        hidden_states = mx.broadcast_to(hidden_states, (batch, num_key_value_heads, n_rep, slen, head_dim))""",
                   """        hidden_states = mx.expand_dims(hidden_states, axis=1)
        hidden_states = mx.broadcast_to(hidden_states, (batch, n_rep, num_key_value_heads, slen, head_dim))"""),
            TEXT_OUT, ("attention.key_groups",), "text"),
    Mistake("text.mlp_gelu", "blind_a",
            change(TEXT + "qwen_mlp.py", "nn.silu(", "nn.gelu_approx("), at(f"{L}.mlp.act_fn", f"{L}.mlp.down_proj"), ("activation.kind",), "text"),
    Mistake("text.residual_after_norm", "blind_a",
            change(TEXT + "qwen_encoder_layer.py", """        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)""", """        hidden_states = self.input_layernorm(hidden_states)
        residual = hidden_states"""),
            at(f"{L}.post_attention_layernorm"), ("residual.other_input",), "text"),
    Mistake("dit.rotary_half_split", "blind_a",
            change(DIT + "qwen_attention.py", "mx.reshape(x_float, (*x.shape[:-1], -1, 2))", "mx.moveaxis(mx.reshape(x_float, (*x.shape[:-1], 2, -1)), -2, -1)")
            + change(DIT + "qwen_attention.py", "mx.stack([out_real, out_imag], axis=-1)", "mx.stack([out_real, out_imag], axis=-2)"),
            DIT_OUT, ("rotary.style",), "first_block"),
    Mistake("dit.shift_scale_exchanged", "blind_a",
            change(DIT + "qwen_transformer_block.py", "shift, scale, gate = (part", "scale, shift, gate = (part"),
            INTO_DIT, ("modulate.shift_scale_exchanged",), "first_block"),
    Mistake("dit.text_gate_missing", "blind_a",
            change(DIT + "qwen_transformer_block.py", "+ txt_gate1 * txt_attn_output", "+ txt_attn_output"),
            at(f"{B}.txt_norm2"), ("gate.missing",), "last_block"),
    Mistake("dit.gelu_erf", "blind_a",
            change(DIT + "qwen_feed_forward.py", "nn.gelu_approx(", "nn.gelu("), at(f"{B}.img_mlp.net.0", f"{B}.img_mlp.net.2"), ("activation.kind",), "first_block"),
    Mistake("dit.attention_scale", "blind_a",
            change(DIT + "qwen_attention.py", "1.0 / (head_dim**0.5)", "1.0 / head_dim"), DIT_OUT, ("attention.scale",), "first_block"),
    Mistake("dit.time_sin_first", "blind_a",
            change(DIT + "qwen_timesteps.py", "self.flip_sin_to_cos = True", "self.flip_sin_to_cos = False"), TIME, ("timestep.cos_sin_order",), "first_block"),
    Mistake("weights.add_out_from_out", "blind_a",
            change("models/qwen/weights/qwen_weight_mapping.py", 'from_pattern=["transformer_blocks.{block}.attn.to_add_out.weight"]', 'from_pattern=["transformer_blocks.{block}.attn.to_out.0.weight"]'),
            at(f"{B}.attn.to_add_out"), ("linear.other_weight",), "last_block"),
    Mistake("pipeline.no_guidance_rescale", "blind_a",
            change("models/qwen/variants/txt2img/qwen_image.py", "noise = combined * (cond_norm / noise_norm)", "noise = combined"), GUIDED, ("guidance.rescale",), "latents"),
    Mistake("vae.not_denormalised", "blind_a",
            change(VAE + "qwen_vae.py", "        latents = latents * latents_std + latents_mean\n        latents = self.post_quant_conv(latents)", "        latents = self.post_quant_conv(latents)"),
            DECODED, ("latents.not_denormalised",), "picture"),
]  # fmt: skip
