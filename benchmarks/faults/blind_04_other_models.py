"""Each kind of mistake once, in other places, sizes, head counts, image sizes and precisions than in the sets before. By an author who had
not read the rules."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from suite_01_every_stage import CALL, D, E, T, at, attention, block, layer, rope, scheduler, static, swap, up
from places import (
    MIDDLE, attended, class_method, denormal_bits, faults_of, joint_attention, middle, result, rotate_halves, rotated, symmetric,
)  # fmt: skip
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 4 by 5 image tokens; 3 heads of 32; in the text encoder 6 heads on 2 key heads.
THREE = World(
    "fourth-three",
    {"seed": 21, "layers": 4, "heads": 3, "head_dim": 32, "text_hidden": 96, "text_heads": 6, "text_kv_heads": 2,
     "text_layers": 3, "text_intermediate": 160, "vae_base": 12},
    {"prompt": "an old lighthouse above a calm sea, oil on canvas", "negative": "blurry", "width": 80, "height": 64,
     "steps": 4, "guidance": 3.0, "seed": 19},
)  # fmt: skip
# As many rows as columns: an exchange of the two keeps the shape.
SQUARE = World(
    "fourth-square",
    {"seed": 22, "layers": 2, "heads": 4, "head_dim": 32, "text_layers": 2},
    {"prompt": "a tin robot", "width": 80, "height": 80, "steps": 2, "guidance": 2.5, "seed": 3},
)
# Two prompts of different length: the shorter one is padded and masked.
PAIR = World(
    "fourth-pair",
    {"seed": 23, "layers": 3, "heads": 2, "head_dim": 64, "text_layers": 2, "random_latent_stats": True},
    {"prompt": ["a harbour at night, long exposure, many lamps", "fog"], "negative": [" ", "text, watermark, frame"],
     "width": 48, "height": 64, "steps": 2, "guidance": 4.5, "seed": 31},
)  # fmt: skip
fault = faults_of(FAULTS, THREE)


# --- text encoder ---------------------------------------------------------------------------------------------------
fault("text.theta_half_million", "text encoder", "output:text_encoder.model.rotary_emb.*", "rotary.theta",
      lambda p: attribute(p.text_encoder.model.language_model.rotary_emb, "inv_freq",
                          1.0 / (5e5 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16))))
fault("text.heads_not_moved_back", "text encoder", f"input:{E}.1.self_attn.o_proj", ("layout.heads", "layout.strided"),
      lambda p: code(layer(p, 1).self_attn, "forward",
                     ("attn_output.reshape(bsz, q_len, -1)", "attn_output.transpose(1, 2).reshape(bsz, q_len, -1)")))
fault("text.last_layer_sees_ahead", "text encoder", f"input:{E}.2.self_attn.o_proj", "attention.mask_missing",
      attention(causal=False)(2))
fault("text.second_norm_skipped", "text encoder", f"output:{E}.2.post_attention_layernorm", "norm.missing",
      lambda p: forward(layer(p, 2).post_attention_layernorm, lambda self, old, x: x))
fault("text.down_saturated", "text encoder", f"output:{E}.1.mlp.down_proj", "precision.saturated",
      lambda p: result(layer(p, 1).mlp.down_proj, lambda y: y.clamp(-1.25, 1.25)))

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.text_mlp_shift_scale", "dit", f"input:{T}.2.txt_mlp", "modulate.shift_scale_exchanged",
      lambda p: code(block(p, 2), "forward",
                     ("self._modulate(txt_normed2, txt_mod2)", "self._modulate(txt_normed2, torch.cat([txt_mod2.chunk(3, -1)[k] for k in (1, 0, 2)], -1))")))
fault("dit.image_q_k_exchanged", "dit", attended(2), "attention.qkv_exchanged",
      lambda p: joint_attention(p, 2, ("torch.cat([txt_query, img_query], dim=1)", "torch.cat([txt_query, img_key], dim=1)"),
                                ("torch.cat([txt_key, img_key], dim=1)", "torch.cat([txt_key, img_query], dim=1)")))
fault("dit.image_rope_halves", "dit", attended(3), "rotary.style",
      lambda p: joint_attention(p, 3, *((line, f"{name} = rotate_halves({name}, img_freqs)") for name, line in rotated("img_query", "img_key")),
                                rotate_halves=rotate_halves))
fault("dit.text_rope_sign", "dit", attended(1), "rotary.sign",
      lambda p: joint_attention(p, 1, *((line, line.replace("txt_freqs", "txt_freqs.conj()")) for _, line in rotated("txt_query", "txt_key"))))
fault("dit.text_rope_from_zero", "dit", "output:transformer.pos_embed.1", ("rotary.offset", "layout.shifted"),
      lambda p: rope(p, "forward", ("pos_freqs_device[max_vid_index : max_vid_index + max_txt_seq_len_int, ...]", "pos_freqs_device[:max_txt_seq_len_int, ...]")))
fault("dit.rope_frame_last", "dit", "output:transformer.pos_embed.0", "rotary.axes_exchanged",
      lambda p: rope(p, "_compute_video_freqs", ("[freqs_frame, freqs_height, freqs_width]", "[freqs_height, freqs_width, freqs_frame]")))
fault("dit.text_query_norm_one_plus", "dit", f"output:{T}.1.attn.norm_added_q", "norm.one_plus_weight",
      lambda p: forward(block(p, 1).attn.norm_added_q, lambda self, old, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)))
fault("dit.norm_out_one_plus", "dit", "output:transformer.norm_out", "modulate.one_plus_missing",
      lambda p: code(p.transformer.norm_out, "forward", ("(1 + scale)[:, None, :]", "scale[:, None, :]")))
fault("dit.text_rows_off_by_one", "dit", f"input:{T}.0.attn.to_add_out", "layout.shifted",
      lambda p: joint_attention(p, 0, ("joint_hidden_states[:, :seq_txt, :]", "joint_hidden_states[:, 1 : seq_txt + 1, :]")))
fault("dit.text_key_layernorm", "dit", f"output:{T}.2.attn.norm_added_k", "norm.kind",
      lambda p: forward(block(p, 2).attn.norm_added_k, lambda self, old, x: F.layer_norm(x, x.shape[-1:], self.weight, None, self.eps)))
fault("dit.last_norm_eps", "dit", "output:transformer.norm_out.norm", "norm.eps",
      lambda p: attribute(p.transformer.norm_out.norm, "eps", 0.05))
fault("dit.text_mlp_gate_missing", "dit", f"output:{T}.1.0", "gate.missing",
      lambda p: code(block(p, 1), "forward", ("encoder_hidden_states + txt_gate2 * txt_mlp_output", "encoder_hidden_states + txt_mlp_output")),
      world=THREE.in_precision("bf16"))
fault("dit.padding_attended", "dit", attended(1), "attention.mask_missing",
      lambda p: joint_attention(p, 1, ("attn_mask=attention_mask,", "attn_mask=None,")), world=PAIR)
fault("dit.rope_table_bf16", "dit", "output:transformer.pos_embed.*", "precision.bf16",
      lambda p: result(p.transformer.pos_embed, lambda y: tuple(torch.view_as_complex(torch.view_as_real(f).bfloat16().float()) for f in y)))

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.rows_for_columns", "vae", f"input:{MIDDLE}.proj", ("layout.axes", "layout.permuted", "layout.strided"),
      lambda p: code(middle(p), "forward",
                     ("permute(0, 2, 1).reshape(batch_size * time, channels, height, width)", "permute(0, 2, 1).reshape(batch_size * time, channels, height, width).transpose(-1, -2)")),
      world=SQUARE)
fault("vae.attention_unscaled", "vae", f"input:{MIDDLE}.proj", "attention.scale",
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(q, k, v, scale=1.0)")))
fault("vae.qkv_bias_missing", "vae", f"output:{MIDDLE}.to_qkv", ("convolution.bias_missing", "affine.channel_offset"),
      lambda p: weights(middle(p).to_qkv, lambda w: w.update(bias=w["bias"] * 0)))
fault("vae.gelu_for_silu", "vae", f"output:{D}.mid_block.resnets.1.nonlinearity", "activation.kind",
      lambda p: forward(p.vae.decoder.mid_block.resnets[1].nonlinearity, lambda self, old, x: F.gelu(x, approximate="tanh")))
fault("vae.attention_residual_missing", "vae", f"output:{MIDDLE}", "residual.missing",
      lambda p: code(middle(p), "forward", ("return x + identity", "return x")), world=THREE.in_precision("f16"))

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.dt_of_timesteps", "scheduler", "checkpoint:latents", "scheduler.scale",
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = 1000 * (sigma_next - sigma)")))
fault("scheduler.initial_sigma", "scheduler", "checkpoint:initial_latents_packed", "affine.scale",  # SDXL's init_noise_sigma
      lambda p: class_method(p, "prepare_latents", ("height, width)\n\n    return latents", "height, width) * 14.6146\n\n    return latents")))
fault("pipeline.upside_down", "pipeline", "checkpoint:latents_denormalized", "layout.reversed",
      CALL(("latents = latents.to(self.vae.dtype)", "latents = latents.to(self.vae.dtype).flip(-2)")))
fault("pipeline.cfg_exchanged_once", "pipeline", "checkpoint:noise_pred", "guidance.exchanged",  # only in the third step
      CALL(("comb_pred = neg_noise_pred", "noise_pred, neg_noise_pred = (neg_noise_pred, noise_pred) if i == 2 else (noise_pred, neg_noise_pred); comb_pred = neg_noise_pred")))
fault("pipeline.patch_columns_first", "pipeline", "checkpoint:initial_latents_packed", ("layout.packing", "layout.permuted"),
      lambda p: static(p, "_pack_latents", ("permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 1, 5, 3)")))
fault("pipeline.timestep_counts_from_1", "pipeline", "input:transformer.timestep", "timestep.index_as_value",
      CALL(("timestep=timestep / 1000", "timestep=torch.full_like(timestep, i + 1)")))
fault("pipeline.latents_as_they_are", "pipeline", "checkpoint:latents_denormalized", "latents.not_denormalised",
      CALL(("latents = latents / latents_std + latents_mean", "pass")), world=PAIR.in_precision("bf16"))

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.time_transposed", "weights", "output:transformer.time_text_embed.timestep_embedder.linear_2", "linear.transposed_weight",
      lambda p: weights(p.transformer.time_text_embed.timestep_embedder.linear_2, lambda w: w.update(weight=w["weight"].T)))
fault("weights.gate_up_split", "weights", f"output:{E}.0.mlp.gate_proj", ("activation.gate_up_exchanged", "linear.other_weight"),
      lambda p: weights(layer(p, 0).mlp, swap("gate_proj.weight", "up_proj.weight")))
fault("weights.text_layer_repeated", "weights", f"output:{E}.2.input_layernorm", "norm.other_weight",
      lambda p: weights(layer(p, 2), lambda w: w.update({n: v.detach().clone() for n, v in layer(p, 1).named_parameters()})))
fault("weights.conv_repeated", "weights", f"output:{D}.up_blocks.0.resnets.2.conv2", "convolution.other_weight",
      lambda p: weights(up(p, 0, 2).conv2, lambda w: w.update({n: v.detach().clone() for n, v in up(p, 0, 1).conv2.named_parameters()})))
fault("weights.gate_not_loaded", "weights", f"output:{E}.1.mlp.gate_proj", ("linear.random_weight", "linear.different_weight"),
      lambda p: weights(layer(p, 1).mlp.gate_proj, lambda w: w.update(weight=torch.randn(w["weight"].shape, generator=torch.Generator().manual_seed(9)) * 0.02)))
fault("weights.q4_whole_rows", "weights", f"output:{E}.0.mlp.up_proj", "linear.weight_quantised",
      lambda p: weights(layer(p, 0).mlp.up_proj, lambda w: w.update(weight=torch.mul(*symmetric(w["weight"], 4, w["weight"].shape[1])).reshape(w["weight"].shape))))

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.query_as_int32", "capture", f"output:{T}.3.attn.to_q", "precision.integer",
      change=at(f"{T}.3.attn.to_q", lambda x: x.to(torch.int32)))
fault("capture.heads_first_in_memory", "capture", f"output:{T}.2.attn.norm_q", ("layout.strided", "layout.heads"),
      change=at(f"{T}.2.attn.norm_q", lambda x: x.transpose(1, 2).contiguous().view(x.shape)))
fault("capture.read_past_the_end", "capture", f"output:{T}.0.attn.add_v_proj", "garbage.denormal",
      change=at(f"{T}.0.attn.add_v_proj", lambda x: torch.cat([x[:, :-3], denormal_bits(x[:, -3:].shape, 4)], 1)))
