"""Each kind of mistake once more, elsewhere again. Kept apart until the rules for blind_04 were settled."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import suite_01_every_stage as suite
from suite_01_every_stage import CALL, D, E, T, at, block, interleaved, layer, rope, scheduler, static, theta, up
from places import MIDDLE, attended, denormal_bits, faults_of, joint_attention, method, middle, result, symmetric
from planting import attribute, code, forward, weights
from recorder import RECORDER
from worlds import World

FAULTS: list = []
# 7 by 4 image tokens; 4 heads with three axes of different size; in the text encoder 8 heads on one key head.
FOUR = World(
    "fifth-four",
    {"seed": 41, "layers": 3, "heads": 4, "head_dim": 32, "axes": [4, 12, 16], "text_hidden": 128, "text_heads": 8, "text_kv_heads": 1,
     "text_layers": 4, "text_intermediate": 96, "vae_res_blocks": 1, "random_latent_stats": True},
    {"prompt": "three pears and a knife", "negative": "a photograph of nothing in particular", "width": 64, "height": 112,
     "steps": 3, "guidance": 5.5, "seed": 77},
)  # fmt: skip
# More than ten layers: their numbers sort otherwise as words than as numbers.
DEEP = World(
    "fifth-deep",
    {"seed": 42, "layers": 12, "heads": 1, "head_dim": 64, "text_layers": 1, "vae_res_blocks": 1},
    {"prompt": "a well", "width": 48, "height": 32, "steps": 2, "guidance": 3.0, "seed": 78},
)
SQUARE = World(
    "fifth-square",
    {"seed": 43, "layers": 2, "heads": 3, "head_dim": 64, "text_layers": 2, "vae_base": 16},
    {"prompt": "two dogs, one asleep", "width": 64, "height": 64, "steps": 2, "guidance": 7.0, "seed": 79},
)
PAIR = World(
    "fifth-pair",
    {"seed": 44, "layers": 3, "heads": 5, "head_dim": 32, "text_layers": 2},
    {"prompt": ["ice", "a market street seen from above, noon"], "negative": ["ugly, out of focus, crowded", "x"], "width": 80,
     "height": 32, "steps": 2, "guidance": 3.5, "seed": 80},
)  # fmt: skip
fault = faults_of(FAULTS, FOUR)


def own_rotation(p, i, rotate):
    """Another rotation in one layer of the text encoder."""
    return method(layer(p, i).self_attn, "forward", ("= apply_rotary_pos_emb(", "= planted_rotation("), planted_rotation=rotate)


def backwards(q, k, cos, sin, **_):
    import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl as qwen

    return qwen.apply_rotary_pos_emb(q, k, cos, -sin)


def sorted_as_words(p):
    """Blocks filled from a list of names sorted as words: 0, 1, 10, 11, 2, ..."""
    blocks = p.transformer.transformer_blocks
    order = sorted(range(len(blocks)), key=str)
    tensors = [{n: v.detach().clone() for n, v in blocks[i].named_parameters()} for i in order]
    return weights(blocks, lambda w: w.update({f"{i}.{n}": v for i, given in enumerate(tensors) for n, v in given.items()}))


def steps_of_next_group(w, bits, group):
    integers, step = symmetric(w, bits, group)
    step = step.reshape(w.shape[0], -1).roll(-1, 1).reshape(-1, 1)
    return (integers * step).reshape(w.shape)


# --- text encoder ---------------------------------------------------------------------------------------------------
fault("text.last_rope_interleaved", "text encoder", f"input:{E}.3.self_attn.o_proj", "rotary.style",
      lambda p: own_rotation(p, 3, interleaved))
fault("text.one_layer_turns_back", "text encoder", f"input:{E}.1.self_attn.o_proj", "rotary.sign",
      lambda p: own_rotation(p, 1, backwards))
fault("text.up_gated", "text encoder", f"input:{E}.2.mlp.act_fn", ("activation.gate_up_exchanged", "stage.replaced"),
      lambda p: code(layer(p, 2).mlp, "forward",
                     ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "(lambda gate, up: gate * self.act_fn(up))(self.gate_proj(x), self.up_proj(x))")))
fault("text.norms_exchanged", "text encoder", f"output:{E}.1.input_layernorm", "norm.other_weight",
      lambda p: weights(layer(p, 1), suite.swap("input_layernorm.weight", "post_attention_layernorm.weight")))
fault("text.output_scaled_by_depth", "text encoder", f"output:{E}.2.self_attn.o_proj", "affine.scale",  # 1/sqrt(2 layers), as GPT-2
      lambda p: result(layer(p, 2).self_attn.o_proj, lambda y: y * 8**-0.5))

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.gate_used_as_scale", "dit", f"input:{T}.1.img_mlp", "modulate.other_part",
      lambda p: code(block(p, 1), "forward",
                     ("self._modulate(img_normed2, img_mod2, modulate_index)", "self._modulate(img_normed2, torch.cat([img_mod2.chunk(3, -1)[k] for k in (0, 2, 1)], -1), modulate_index)")))
fault("dit.odd_rows_centred_low", "dit", "output:transformer.pos_embed.0", "rotary.offset",  # 7 rows: -3..3 for -4..2
      lambda p: rope(p, "_compute_video_freqs", ("freqs_neg[1][-(height - height // 2) :], freqs_pos[1][: height // 2]", "freqs_neg[1][-(height // 2) :], freqs_pos[1][: height - height // 2]")))
fault("dit.rope_theta_256", "dit", "output:transformer.pos_embed.*", "rotary.theta", lambda p: theta(p, 256))
fault("dit.rope_width_height", "dit", "output:transformer.pos_embed.0", "rotary.axes_exchanged",
      CALL(("[[(1, height // self.vae_scale_factor // 2, width // self.vae_scale_factor // 2)]]", "[[(1, width // self.vae_scale_factor // 2, height // self.vae_scale_factor // 2)]]")))
fault("dit.text_queries_scaled_twice", "dit", f"input:{T}.1.attn.to_add_out", "attention.scale",
      lambda p: joint_attention(p, 1, ("joint_query = torch.cat([txt_query,", "joint_query = torch.cat([txt_query * head_dim**-0.5,")))
fault("dit.last_mlp_one_plus", "dit", f"input:{T}.2.img_mlp", "modulate.one_plus_missing",
      lambda p: code(block(p, 2), "forward",
                     ("self._modulate(img_normed2, img_mod2, modulate_index)", "self._modulate(img_normed2, img_mod2, modulate_index)\n    img_modulated2 = img_modulated2 - img_normed2")))
fault("dit.time_bias_missing", "dit", "output:transformer.time_text_embed.timestep_embedder.linear_1", "linear.bias_missing",
      lambda p: forward(p.transformer.time_text_embed.timestep_embedder.linear_1, lambda self, old, x: F.linear(x, self.weight)))
fault("dit.heads_innermost", "dit", attended(2), ("layout.heads", "layout.interleaved", "layout.strided"),
      lambda p: joint_attention(p, 2, ("joint_hidden_states.flatten(2, 3)", "joint_hidden_states.transpose(2, 3).flatten(2, 3)")))
fault("dit.key_norm_eps", "dit", f"output:{T}.2.attn.norm_k", "norm.eps", lambda p: attribute(block(p, 2).attn.norm_k, "eps", 0.02))
fault("dit.text_mlp_silu", "dit", f"output:{T}.0.txt_mlp.net.0", "activation.kind",
      lambda p: method(block(p, 0).txt_mlp.net[0], "gelu", ("return F.gelu(gate, approximate=self.approximate)", "return F.silu(gate)")))
fault("dit.text_mlp_residual_missing", "dit", f"output:{T}.0.0", "residual.missing",
      lambda p: code(block(p, 0), "forward", ("encoder_hidden_states = encoder_hidden_states + txt_gate2 * txt_mlp_output", "encoder_hidden_states = txt_gate2 * txt_mlp_output")),
      world=FOUR.in_precision("f16"))
fault("dit.gate_missing_once", "dit", f"output:{T}.1.1", "gate.missing",  # only in the last step
      lambda p: method(block(p, 1), "forward", ("hidden_states + img_gate2 * img_mlp_output", "hidden_states + (1 if RECORDER.step == 2 else img_gate2) * img_mlp_output"),
                       RECORDER=RECORDER))
fault("dit.text_key_norm_not_called", "dit", (*attended(1), f"output:{T}.1.attn.norm_added_k"), "attention.norm_missing",
      lambda p: joint_attention(p, 1, ("txt_key = attn.norm_added_k(txt_key)", "pass")))
fault("dit.uncond_mask_dropped", "dit", (*attended(0), "input:transformer.encoder_hidden_states_mask"), "attention.mask_missing",
      CALL(("encoder_hidden_states_mask=negative_prompt_embeds_mask", "encoder_hidden_states_mask=None")), world=PAIR)

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.k_before_q", "vae", f"input:{MIDDLE}.proj", "attention.qkv_exchanged",
      lambda p: code(middle(p), "forward", ("q, k, v = qkv.chunk", "k, q, v = qkv.chunk")))
fault("vae.attention_causal", "vae", f"input:{MIDDLE}.proj", "attention.mask_added",
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(q, k, v, is_causal=True)")))
fault("vae.upsampled_one_to_the_right", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.0", "layout.shifted",
      lambda p: result(p.vae.decoder.up_blocks[1].upsamplers[0].resample[0], lambda y: F.pad(y, (1, 0))[..., :-1]))
fault("vae.layernorm_at_the_end", "vae", f"output:{D}.norm_out", "norm.kind",
      lambda p: forward(p.vae.decoder.norm_out, lambda self, old, x: old(x - x.mean(1, keepdim=True))))
fault("vae.conv_saturated", "vae", f"output:{D}.up_blocks.1.resnets.1.conv2", "precision.saturated",
      lambda p: result(up(p, 1, 1).conv2, lambda y: y.clamp(-0.75, 0.75)))
fault("vae.channels_last_memory", "vae", f"output:{D}.up_blocks.2.resnets.0.conv1", ("layout.strided", "layout.axes"),
      lambda p: result(up(p, 2, 0).conv1, lambda y: y.permute(0, 2, 3, 4, 1).contiguous().view(y.shape)))

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.timesteps_are_sigmas", "scheduler", "input:transformer.timestep", "timestep.scale",
      lambda p: scheduler(p, "set_timesteps", ("timesteps = sigmas * self.config.num_train_timesteps", "timesteps = sigmas.clone()")))
fault("scheduler.latents_in_bf16", "scheduler", "checkpoint:latents", "precision.bf16",
      lambda p: scheduler(p, "step", ("prev_sample = prev_sample.to(model_output.dtype)", "prev_sample = prev_sample.bfloat16().float()")))
fault("pipeline.text_backwards", "pipeline", "input:transformer.encoder_hidden_states", "layout.reversed",  # the conditional pass alone
      CALL(("encoder_hidden_states=prompt_embeds,", "encoder_hidden_states=prompt_embeds.flip(1),")))
fault("pipeline.halves_of_the_batch", "pipeline", "checkpoint:noise_pred", "guidance.exchanged",
      CALL(("comb_pred = neg_noise_pred", "noise_pred, neg_noise_pred = neg_noise_pred, noise_pred; comb_pred = neg_noise_pred")))
fault("pipeline.unpacked_channels_last", "pipeline", "checkpoint:latents_denormalized", ("layout.packing", "layout.permuted", "layout.interleaved"),
      lambda p: static(p, "_unpack_latents", ("width // 2, channels // 4, 2, 2)", "width // 2, 2, 2, channels // 4)"), ("permute(0, 3, 1, 4, 2, 5)", "permute(0, 5, 1, 3, 2, 4)")))
fault("pipeline.timestep_truncated", "pipeline", "input:transformer.timestep", "precision.integer",
      CALL(("timestep=timestep / 1000", "timestep=timestep.long() / 1000")))
fault("pipeline.timestep_index_scaled", "pipeline", "input:transformer.timestep", "timestep.index_as_value",
      CALL(("timestep=timestep / 1000", "timestep=torch.full_like(timestep, i) / 1000")))
fault("pipeline.latents_undone_in_f16", "pipeline", "checkpoint:latents_denormalized", "latents.not_denormalised",
      CALL(("latents = latents / latents_std + latents_mean", "pass")), world=FOUR.in_precision("f16"))

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.query_transposed", "weights", f"output:{E}.2.self_attn.q_proj", "linear.transposed_weight",
      lambda p: weights(layer(p, 2).self_attn.q_proj, lambda w: w.update(weight=w["weight"].T)))
fault("weights.blocks_sorted_as_words", "weights", f"output:{T}.2.img_mod.1", "linear.other_weight", sorted_as_words, world=DEEP)
fault("weights.text_mlp_of_image", "weights", f"output:{T}.0.txt_mlp.net.0.proj", "linear.other_weight",
      lambda p: weights(block(p, 0).txt_mlp, lambda w: w.update({n: v.detach().clone() for n, v in block(p, 0).img_mlp.named_parameters()})))
fault("weights.image_in_not_loaded", "weights", "output:transformer.img_in", ("linear.random_weight", "linear.different_weight"),
      lambda p: weights(p.transformer.img_in, lambda w: w.update(weight=torch.randn(w["weight"].shape, generator=torch.Generator().manual_seed(2)) * 0.02)))
fault("weights.steps_of_next_group", "weights", f"output:{T}.1.attn.to_q", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 1).attn.to_q, lambda w: w.update(weight=steps_of_next_group(w["weight"], 8, 32))))

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.picture_on_its_side", "capture", "checkpoint:image", ("layout.axes", "layout.permuted", "layout.strided"),
      change=lambda name, role, step, tags, value: value.swapaxes(0, 1).copy() if name == "image" else value, world=SQUARE)
fault("capture.half_the_channels_unread", "capture", f"output:{E}.1.mlp.act_fn", "garbage.denormal",
      change=at(f"{E}.1.mlp.act_fn", lambda x: torch.cat([x[..., : x.shape[-1] // 2], denormal_bits((*x.shape[:-1], x.shape[-1] - x.shape[-1] // 2), 6)], -1)))
