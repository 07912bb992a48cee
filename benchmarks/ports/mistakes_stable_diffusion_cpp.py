"""Mistakes in stable-diffusion.cpp as stable-diffusion-cpp-python 0.4.7 carries it, the transformer of Qwen-Image."""

from __future__ import annotations

from mistakes import Mistake, at, change
from mistakes_mflux import B, DIT_OUT, INTO_DIT, TIME

QWEN, ROPE, FLUX, PARTS = "qwen_image.hpp", "rope.hpp", "flux.hpp", "common_block.hpp"

MISTAKES = [
    Mistake("rotary_half_split", "blind_a", change(QWEN, "Rope::attention(ctx, q, k, v, pe, mask, (1.0f / 128.f))", "Rope::attention(ctx, q, k, v, pe, mask, (1.0f / 128.f), false)"),
            DIT_OUT, ("rotary.style",), "first_block"),
    Mistake("one_plus_missing", "blind_a", change(FLUX, "        x = ggml_add(ctx, x, ggml_mul(ctx, x, scale));\n        x = ggml_add(ctx, x, shift);\n        return x;", "        x = ggml_mul(ctx, x, scale);\n        x = ggml_add(ctx, x, shift);\n        return x;"),
            INTO_DIT, ("modulate.one_plus_missing",), "first_block"),
    Mistake("shift_scale", "blind_a", change(QWEN, "Flux::modulate(ctx->ggml_ctx, img_normed, img_mod_param_vec[0], img_mod_param_vec[1], modulate", "Flux::modulate(ctx->ggml_ctx, img_normed, img_mod_param_vec[1], img_mod_param_vec[0], modulate"),
            INTO_DIT, ("modulate.shift_scale_exchanged",), "first_block"),
    Mistake("gate_of_mlp", "blind_a", change(QWEN, "auto img_gate1     = img_mod_param_vec[2];", "auto img_gate1     = img_mod_param_vec[5];"),
            at(f"{B}.img_norm2", f"{B}.img_mlp", f"{B}.img_mlp.net.0", f"{B}.img_mlp.net.0.proj"), ("gate.other_part",), "first_block"),
    Mistake("text_modulation_without_silu", "blind_a", change(QWEN, "auto txt_mod_params    = ggml_silu(ctx->ggml_ctx, t_emb);", "auto txt_mod_params    = t_emb;"),
            at(f"{B}.txt_mod.0", f"{B}.txt_mod.1"), ("activation.missing",), "first_block"),
    Mistake("quick_gelu", "blind_a", change(PARTS, "x = ggml_ext_gelu(ctx->ggml_ctx, x, true);\n        return x;", "x = ggml_gelu_quick(ctx->ggml_ctx, x);\n        return x;"),
            at(f"{B}.img_mlp.net.0", f"{B}.img_mlp.net.2"), ("activation.kind",), "first_block"),
    Mistake("text_norm_eps", "blind_a", change(QWEN, "new RMSNorm(params.joint_attention_dim, 1e-6f)", "new RMSNorm(params.joint_attention_dim, 1e-5f)"),
            at("transformer.txt_norm"), ("norm.eps",), "first_block"),
    Mistake("added_key_norm", "blind_a", change(QWEN, "txt_k = norm_added_k->forward(ctx, txt_k);", "txt_k = norm_k->forward(ctx, txt_k);"),
            at(f"{B}.attn.norm_added_k", f"{B}.attn.norm_k") + DIT_OUT, ("norm.other_weight",), "first_block"),
    Mistake("text_output_layer", "blind_a", change(QWEN, "txt_attn_out = to_add_out->forward(ctx, txt_attn_out);", "txt_attn_out = to_out_0->forward(ctx, txt_attn_out);"),
            at(f"{B}.attn.to_add_out"), ("linear.other_weight",), "last_block"),
    Mistake("image_rows_from_start", "blind_a", change(QWEN, "txt->ne[1] * attn->nb[1]);", "0);"), DIT_OUT, ("attention.streams", "layout.shifted", "layout.rolled"), "first_block"),
    Mistake("time_period", "blind_a", change(QWEN, "timesteps, 256, 10000, 1.f)", "timesteps, 256, 1000, 1.f)"), TIME + at("transformer.time_text_embed.timestep_embedder.linear_1"), ("timestep.theta",), "first_block"),
    Mistake("last_scale_shift", "blind_a", change(QWEN, "            auto scale = mods[0];\n            auto shift = mods[1];", "            auto scale = mods[1];\n            auto shift = mods[0];"),
            at("transformer.norm_out", "transformer.proj_out"), ("modulate.shift_scale_exchanged",), "latents"),
    Mistake("patch_order", "blind_a", change(QWEN, "auto img           = DiT::pad_and_patchify(ctx, x, params.patch_size, params.patch_size);", "auto img           = DiT::pad_and_patchify(ctx, x, params.patch_size, params.patch_size, false);"),
            at("transformer.img_in") + ("input:transformer.hidden_states",), ("layout.packing", "layout.axes"), "first_block"),
]  # fmt: skip
