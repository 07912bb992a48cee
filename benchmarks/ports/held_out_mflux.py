"""Mistakes in mflux 0.24, Qwen-Image, against the official pipeline: the half that is scored once, at the end."""

from __future__ import annotations

from mistakes import Mistake, at, change
from mistakes_mflux import TEXT, DIT, VAE, L, B, V, TEXT_OUT, DIT_OUT, INTO_DIT, TIME, GUIDED, DECODED

MISTAKES = [
    Mistake("text.theta", "blind_b",
            change(TEXT + "qwen_rope.py", "1.0 / (base **", "1.0 / (10000.0 **"), at("text_encoder.model.rotary_emb") + TEXT_OUT, ("rotary.theta",), "text"),
    Mistake("text.no_causal_mask", "blind_b",
            change(TEXT + "qwen_encoder.py", "attention_mask_4d = causal_tri_mask + padding_mask", "attention_mask_4d = mx.zeros_like(causal_tri_mask) + padding_mask"),
            TEXT_OUT + (f"input:{L}.attention_mask", f"input:{L}.self_attn.attention_mask"), ("attention.mask_missing", "attention.mask"), "text"),
    Mistake("text.eps", "blind_b",
            change(TEXT + "qwen_encoder_layer.py", "rms_norm_eps: float = 1e-6", "rms_norm_eps: float = 1e-5"), at(f"{L}.input_layernorm"), ("norm.eps",), "text"),
    Mistake("text.no_final_norm", "blind_b",
            change(TEXT + "qwen_encoder.py", "        hidden_states = self.norm(hidden_states)\n        return hidden_states", "        return hidden_states"),
            at("text_encoder.model.norm") + ("checkpoint:prompt_embeds", "input:transformer.encoder_hidden_states") + at("transformer.txt_norm"), ("norm.missing",), "text"),
    Mistake("dit.text_positions_from_zero", "blind_b",
            change(DIT + "qwen_rope.py", "self.pos_freqs[max_vid_index : max_vid_index + max_len, :, 0]", "self.pos_freqs[:max_len, :, 0]")
            + change(DIT + "qwen_rope.py", "self.pos_freqs[max_vid_index : max_vid_index + max_len, :, 1]", "self.pos_freqs[:max_len, :, 1]"),
            at("transformer.pos_embed") + DIT_OUT, ("rotary.positions", "rotary.offset"), "first_block"),
    Mistake("dit.one_plus_missing", "blind_b",
            change(DIT + "qwen_transformer_block.py", "x * (1 + scale) + shift", "x * scale + shift"), INTO_DIT, ("modulate.one_plus_missing",), "first_block"),
    Mistake("dit.modulation_without_silu", "blind_b",
            change(DIT + "qwen_transformer_block.py", "self.img_mod_linear(self.img_mod_silu(text_embeddings))", "self.img_mod_linear(text_embeddings)"),
            at(f"{B}.img_mod.0", f"{B}.img_mod.1"), ("activation.missing",), "first_block"),
    Mistake("dit.added_key_norm", "blind_b",
            change(DIT + "qwen_attention.py", "txt_key = self.norm_added_k(txt_key)", "txt_key = self.norm_k(txt_key)"),
            at(f"{B}.attn.norm_added_k", f"{B}.attn.norm_k") + DIT_OUT, ("norm.other_weight",), "first_block"),
    Mistake("dit.last_scale_shift", "blind_b",
            change("models/flux/model/flux_transformer/ada_layer_norm_continuous.py", "scale = text_embeddings[:, 0 * chunk_size : 1 * chunk_size]", "shift = text_embeddings[:, 0 * chunk_size : 1 * chunk_size]")
            + change("models/flux/model/flux_transformer/ada_layer_norm_continuous.py", "shift = text_embeddings[:, 1 * chunk_size : 2 * chunk_size]", "scale = text_embeddings[:, 1 * chunk_size : 2 * chunk_size]"),
            at("transformer.norm_out", "transformer.proj_out"), ("modulate.shift_scale_exchanged",), "latents"),
    Mistake("pipeline.no_terminal_stretch", "blind_b",
            change("models/common/schedulers/linear_scheduler.py", "if terminal is not None:", "if terminal is None:"),
            TIME + GUIDED, ("scheduler.sigmas", "timestep.function", "timestep.scale"), "first_block"),
    Mistake("pipeline.unpack_order", "blind_b",
            change("models/flux/latent_creator/flux_latent_creator.py", """(1, height // 16, width // 16, 16, 2, 2))
        latents = mx.transpose(latents, (0, 3, 1, 4, 2, 5))""", """(1, height // 16, width // 16, 16, 2, 2))
        latents = mx.transpose(latents, (0, 3, 1, 5, 2, 4))"""),
            DECODED, ("layout.packing", "layout.axes"), "picture"),
    Mistake("vae.symmetric_time_padding", "blind_b",
            change(VAE + "qwen_image_causal_conv_3d.py", "(2 * pad_t, 0),", "(pad_t, pad_t),"),
            at(f"{V}.conv_in"), ("convolution.temporal_tap", "convolution.padding"), "picture"),
]  # fmt: skip
