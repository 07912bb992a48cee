"""Mistakes in stable-diffusion.cpp: the half that is scored once, at the end."""

from __future__ import annotations

from mistakes import Mistake, at, change
from mistakes_mflux import B, DIT_OUT
from mistakes_stable_diffusion_cpp import QWEN, ROPE

EMBEDDER = "transformer.time_text_embed.timestep_embedder"

MISTAKES = [
    Mistake("theta", "blind_b", change(QWEN, "int theta                   = 10000;", "int theta                   = 1000000;"), at("transformer.pos_embed") + DIT_OUT, ("rotary.theta",), "first_block"),
    Mistake("positions_not_centred", "blind_b", change(ROPE, "auto img_ids     = gen_flux_img_ids(h, w, patch_size, bs, axes_dim_num, 0, 0, 0, true);\n        auto ids         = concat_ids(txt_ids_repeated, img_ids, bs);\n        if (ref_latents.size() > 0) {\n            auto refs_ids = gen_refs_ids(patch_size, bs, axes_dim_num, ref_latents, increase_ref_index, 1.f, true);", "auto img_ids     = gen_flux_img_ids(h, w, patch_size, bs, axes_dim_num, 0, 0, 0, false);\n        auto ids         = concat_ids(txt_ids_repeated, img_ids, bs);\n        if (ref_latents.size() > 0) {\n            auto refs_ids = gen_refs_ids(patch_size, bs, axes_dim_num, ref_latents, increase_ref_index, 1.f, true);"),
            at("transformer.pos_embed") + DIT_OUT, ("rotary.positions", "rotary.offset"), "first_block"),
    Mistake("text_residual_missing", "blind_b", change(QWEN, "txt = ggml_add(ctx->ggml_ctx, txt, ggml_mul(ctx->ggml_ctx, txt_attn_output, txt_gate1));", "txt = ggml_mul(ctx->ggml_ctx, txt_attn_output, txt_gate1);"),
            at(f"{B}.txt_norm2", f"{B}.txt_mlp", f"{B}.txt_mlp.net.0", f"{B}.txt_mlp.net.0.proj"), ("residual.missing",), "last_block"),
    Mistake("modulation_of_attention", "blind_b", change(QWEN, "img_normed2, img_mod_param_vec[3], img_mod_param_vec[4]", "img_normed2, img_mod_param_vec[0], img_mod_param_vec[1]"),
            at(f"{B}.img_mlp", f"{B}.img_mlp.net.0", f"{B}.img_mlp.net.0.proj"), ("modulate.other_part",), "first_block"),
    Mistake("key_norm_missing", "blind_b", change(QWEN, "            img_k = norm_k->forward(ctx, img_k);\n", ""), at(f"{B}.attn.norm_k") + DIT_OUT, ("attention.norm_missing", "norm.missing"), "first_block"),
    Mistake("query_streams", "blind_b", change(QWEN, "auto q = ggml_concat(ctx->ggml_ctx, txt_q, img_q, 2);", "auto q = ggml_concat(ctx->ggml_ctx, img_q, txt_q, 2);"), DIT_OUT, ("attention.streams",), "first_block"),
    Mistake("text_norm_missing", "blind_b", change(QWEN, "auto txt = txt_norm->forward(ctx, context);", "auto txt = context;"), at("transformer.txt_norm", "transformer.txt_in"), ("norm.missing",), "first_block"),
    Mistake("time_without_silu", "blind_b", change(QWEN, "            sample = ggml_silu_inplace(ctx->ggml_ctx, sample);\n", ""), at(f"{EMBEDDER}.act", f"{EMBEDDER}.linear_2"), ("activation.missing",), "first_block"),
    Mistake("last_norm_left_out", "blind_b", change(QWEN, "            img = norm_out->forward(ctx, img, t_emb);\n", ""), at("transformer.norm_out", "transformer.proj_out"), ("norm.missing", "modulate.missing", "stage.replaced"), "latents"),
    Mistake("keys_for_values", "blind_b", change(QWEN, "Rope::attention(ctx, q, k, v, pe, mask, (1.0f / 128.f))", "Rope::attention(ctx, q, k, k, pe, mask, (1.0f / 128.f))"), DIT_OUT, ("attention.qkv_exchanged",), "first_block"),
    Mistake("query_bias_missing", "blind_b", change(QWEN, 'blocks["to_q"] = std::shared_ptr<GGMLBlock>(new Linear(query_dim, inner_dim, bias));', 'blocks["to_q"] = std::shared_ptr<GGMLBlock>(new Linear(query_dim, inner_dim, false));'),
            at(f"{B}.attn.to_q"), ("linear.bias_missing",), "first_block"),
    Mistake("values_in_f16", "blind_b", change(QWEN, "auto v = ggml_concat(ctx->ggml_ctx, txt_v, img_v, 2);", "auto v = ggml_cast(ctx->ggml_ctx, ggml_cast(ctx->ggml_ctx, ggml_concat(ctx->ggml_ctx, txt_v, img_v, 2), GGML_TYPE_F16), GGML_TYPE_F32);"),
            DIT_OUT, ("precision.f16",), "first_block"),
]  # fmt: skip
