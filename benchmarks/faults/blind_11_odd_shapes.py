"""Every kind of mistake in odd shapes: other head counts and axes, two prompts at once, odd sizes, one pass or one item alone. By an
author who had not read the rules; causes were written down before any run."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from suite_01_every_stage import CALL, D, E, T, at, block, interleaved, layer, rope, scheduler, up
from places import MIDDLE, attended, denormal_bits, faults_of, joint_attention, method, middle, result, symmetric
from planting import attribute, code, forward, weights
from recorder import RECORDER
from blind_07_port_reports import rotary, text_attention
from worlds import World

FAULTS: list = []
# 5 by 9 image tokens; 7 heads of 24; in the text encoder 10 heads on 2 key heads of 12.
SEVEN = World(
    "eleventh-seven",
    {"seed": 111, "layers": 3, "heads": 7, "head_dim": 24, "axes": [6, 8, 10], "text_hidden": 120, "text_heads": 10, "text_kv_heads": 2,
     "text_layers": 3, "text_intermediate": 152, "vae_base": 10, "random_latent_stats": True},
    {"prompt": "nine kites over a beach, children pointing", "negative": "fog, dull colours", "width": 144, "height": 80, "steps": 3,
     "guidance": 2.25, "seed": 111},
)  # fmt: skip
# 11 by 3 image tokens, five steps, a high guidance scale; in the text encoder every head has its own key head.
TOWER = World(
    "eleventh-tower",
    {"seed": 112, "layers": 2, "heads": 2, "head_dim": 48, "axes": [12, 16, 20], "text_hidden": 120, "text_heads": 3, "text_kv_heads": 3,
     "text_layers": 2, "text_intermediate": 88, "vae_res_blocks": 3},
    {"prompt": "a ladder against a brick wall", "negative": " ", "width": 48, "height": 176, "steps": 5, "guidance": 8.0, "seed": 112},
)  # fmt: skip
# Two prompts of different length, 7 by 5 image tokens, 3 heads of 40; in the text encoder 5 heads on one key head.
BOTH = World(
    "eleventh-both",
    {"seed": 113, "layers": 3, "heads": 3, "head_dim": 40, "axes": [8, 12, 20], "text_hidden": 80, "text_heads": 5, "text_kv_heads": 1,
     "text_layers": 3, "vae_res_blocks": 1, "random_latent_stats": True},
    {"prompt": ["a clock tower above the roofs of an old town", "moss"], "negative": ["noise", "people, cars, signs, wires"],
     "width": 80, "height": 112, "steps": 2, "guidance": 3.25, "seed": 113},
)  # fmt: skip
# 7 by 7 image tokens: rows and columns can be exchanged unseen. One head; the schedule of the few-step model.
EVEN = World(
    "eleventh-even",
    {"seed": 114, "layers": 5, "heads": 1, "head_dim": 56, "axes": [16, 18, 22], "text_layers": 1, "vae_dim_mult": [1, 2, 2, 4],
     "vae_res_blocks": 1, "scheduler": "lightning"},
    {"prompt": "a chessboard, three pieces left", "negative": "hands", "width": 112, "height": 112, "steps": 2, "guidance": 3.0, "seed": 114},
)  # fmt: skip
fault = faults_of(FAULTS, SEVEN)
IDS = ("input:text_encoder.*", "input:text_encoder.model.embed_tokens", "output:text_encoder.model.embed_tokens")
LATENTS = "checkpoint:latents"
DENORMALISED = "checkpoint:latents_denormalized"
UNDONE = "latents = latents / latents_std + latents_mean"


def own_rotation(p, i, rotate):
    """Another rotation in one layer of the text encoder."""
    return method(layer(p, i).self_attn, "forward", ("= apply_rotary_pos_emb(", "= planted_rotation("), planted_rotation=rotate)


def queries_ahead(frequencies):
    """Queries stand one position further than their keys, as when the cache is counted before the token is in it."""

    def rotate(q, k, cos, sin, **_):
        later = torch.atan2(sin, cos) + torch.cat([frequencies, frequencies])
        return qwen.apply_rotary_pos_emb(q, k, later.cos(), later.sin())[0], qwen.apply_rotary_pos_emb(q, k, cos, sin)[1]

    return rotate


def keys_interleaved(q, k, cos, sin, **_):
    return qwen.apply_rotary_pos_emb(q, k, cos, sin)[0], interleaved(q, k, cos, sin)[1]


def causal(q, k, v, scaling, diagonal=1):
    scores = q @ k.transpose(2, 3) * scaling
    scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(diagonal)
    return (scores.softmax(-1) @ v).transpose(1, 2).contiguous(), None


def values_tiled(module, q, k, v, mask, scaling, **_):
    """Query head h meets key head h // 5 but value head h % 2."""
    groups = module.num_key_value_groups
    return causal(q, k.repeat_interleave(groups, 1), v.repeat(1, groups, 1, 1), scaling)


def one_ahead(module, q, k, v, mask, scaling, **_):
    return causal(q, k, v, scaling, diagonal=2)


def unconditional():
    return RECORDER.tags.get("pass") == "uncond"


def over_everything(self, old, x):
    """[batch, channels, frame, rows, columns]: one length for the picture instead of one for each pixel."""
    return x * x.pow(2).mean((1, 2, 3, 4), keepdim=True).rsqrt() * self.gamma


def mlp_of_the_first(p):
    layers = p.text_encoder.model.language_model.layers
    first = {n: v.detach().clone() for n, v in layers[0].mlp.named_parameters()}
    return weights(layers, lambda w: w.update({f"{i}.mlp.{n}": v for i in range(len(layers)) for n, v in first.items()}))


def xavier(w, seed):
    limit = math.sqrt(6 / sum(w.shape))
    return (torch.rand(w.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1) * limit


def halves_to_pairs(bias, heads):
    """Each head's [first half, second half] as [pairs]: done to the bias alone."""
    return bias.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten()


def steps_transposed(w, bits, group):
    """The table of steps was written [groups, rows] and is read [rows, groups]."""
    integers, step = symmetric(w, bits, group)
    step = step.reshape(w.shape[0], -1).T.reshape(-1, 1)
    return (integers * step).reshape(w.shape)


def conditional_kept(name):
    """What the unconditional pass gives is never written: the buffer of the conditional one is."""
    kept = {}

    def change(n, role, step, tags, value):
        if n != name or role != "output":
            return value
        if tags.get("pass") == "cond":
            kept[step] = value.clone()
        return kept.get(step, value)

    return change


def lower_half_unread(x):
    """[batch, channels, frame, rows, columns]: the rows below the middle come from beyond the buffer."""
    x, half = x.clone(), x.shape[3] // 2
    x[:, :, :, half:] = denormal_bits(x[:, :, :, half:].shape, 11).to(x.dtype)
    return x


# --- tokenizer and text encoder ---------------------------------------------------------------------------------------
fault("tokenizer.ends_for_starts", "tokenizer", IDS, "input.other",
      lambda p: code(p, "_get_qwen_prompt_embeds", ("template.format(e) for e in prompt", "template.format(e).replace('im_start', 'im_').replace('im_end', 'im_start').replace('im_|', 'im_end|') for e in prompt")))
fault("text.embedding_bf16", "text encoder", "output:text_encoder.model.embed_tokens", ("precision.bf16", "linear.weight_rounded"),
      lambda p: result(p.text_encoder.model.language_model.embed_tokens, lambda y: y.bfloat16().to(y.dtype)), world=BOTH)
fault("text.queries_one_ahead", "text encoder", f"input:{E}.1.self_attn.o_proj", "rotary.offset",
      lambda p: own_rotation(p, 1, queries_ahead(rotary(p).inv_freq)))
fault("text.keys_alone_interleaved", "text encoder", f"input:{E}.0.self_attn.o_proj", "rotary.style",
      lambda p: own_rotation(p, 0, keys_interleaved), world=TOWER)
fault("text.values_tiled", "text encoder", f"input:{E}.2.self_attn.o_proj", "attention.key_groups",
      lambda p: text_attention(p, 2, values_tiled))
fault("text.keys_are_values", "text encoder", f"input:{E}.1.self_attn.o_proj", "attention.qkv_exchanged",
      lambda p: method(layer(p, 1).self_attn, "forward", ("key_states = self.k_proj(", "key_states = self.v_proj("), ("value_states = self.v_proj(", "value_states = self.k_proj(")), world=BOTH)
fault("text.sees_one_ahead", "text encoder", f"input:{E}.0.self_attn.o_proj", "attention.mask",
      lambda p: text_attention(p, 0, one_ahead), world=TOWER)
fault("text.mean_of_absolutes", "text encoder", f"output:{E}.1.post_attention_layernorm", "norm.kind",
      lambda p: code(layer(p, 1).post_attention_layernorm, "forward", ("hidden_states * torch.rsqrt(variance + self.variance_epsilon)", "hidden_states / (hidden_states.abs().mean(-1, keepdim=True) + self.variance_epsilon)")))
fault("text.norm_eps_two_hundredths", "text encoder", f"output:{E}.1.input_layernorm", "norm.eps",
      lambda p: attribute(layer(p, 1).input_layernorm, "variance_epsilon", 0.02), world=TOWER)
fault("text.last_mlp_residual_missing", "text encoder", (f"output:{E}.2", f"output:{E}.2.*", "input:text_encoder.model.norm"), "residual.missing",
      lambda p: code(layer(p, 2), "forward", ("self.mlp(hidden_states)\n    hidden_states = residual + hidden_states", "self.mlp(hidden_states)")), world=BOTH)

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.gate_shift_scale", "dit", f"input:{T}.0.attn.hidden_states", "modulate.other_part",
      lambda p: code(block(p, 0), "_modulate", ("shift, scale, gate = mod_params", "gate, shift, scale = mod_params")), world=BOTH)
fault("dit.two_plus_scale", "dit", f"input:{T}.1.txt_mlp", "modulate.form",
      lambda p: code(block(p, 1), "forward", ("self._modulate(txt_normed2, txt_mod2)", "self._modulate(txt_normed2, txt_mod2)\n    txt_modulated2 = txt_modulated2 + txt_normed2")))
fault("dit.columns_not_turned", "dit", "output:transformer.pos_embed.0", ("rotary.partial", "rotary.missing", "rotary.positions"),
      lambda p: rope(p, "_compute_video_freqs", ("[freqs_frame, freqs_height, freqs_width]", "[freqs_frame, freqs_height, torch.ones_like(freqs_width)]")))
fault("dit.masks_of_the_other_item", "dit", attended(1), "attention.mask",
      lambda p: joint_attention(p, 1, ("attention_mask = attention_mask[:, None, None, :]", "attention_mask = attention_mask.flip(0)[:, None, None, :]")), world=BOTH)
fault("dit.image_heads_inner", "dit", f"input:{T}.0.attn.norm_q", ("layout.heads", "layout.interleaved", "layout.permuted", "attention.heads"),
      lambda p: joint_attention(p, 0, *((f"img_{n} = img_{n}.unflatten(-1, (-1, head_dim))", f"img_{n} = img_{n}.unflatten(-1, (head_dim, -1)).transpose(-1, -2).contiguous()") for n in ("query", "key"))))
fault("dit.last_silu_gelu_tanh", "dit", "output:transformer.norm_out.silu", "activation.kind",
      lambda p: forward(p.transformer.norm_out.silu, lambda self, old, x: F.gelu(x, approximate="tanh")), world=EVEN)
fault("dit.gate_missing_in_one_pass", "dit", f"output:{T}.0.1", "gate.missing",  # the unconditional one
      lambda p: method(block(p, 0), "forward", ("img_gate2 * img_mlp_output", "(1 if unconditional() else img_gate2) * img_mlp_output"), unconditional=unconditional),
      world=TOWER.in_precision("bf16"))
fault("dit.text_two_tokens_late", "dit", "output:transformer.txt_in", "layout.shifted",
      lambda p: result(p.transformer.txt_in, lambda y: F.pad(y, (0, 0, 2, 0))[:, : y.shape[1]]))
fault("dit.text_values_fp8", "dit", f"output:{T}.1.attn.add_v_proj", "precision.f8_e4m3",
      lambda p: result(block(p, 1).attn.add_v_proj, lambda y: y.to(torch.float8_e4m3fn).to(y.dtype)))
fault("dit.stream_clamped", "dit", f"output:{T}.3.1", "precision.saturated",
      lambda p: code(block(p, 3), "forward", ("return encoder_hidden_states, hidden_states", "return encoder_hidden_states, hidden_states.clamp(-1.75, 1.75)")), world=EVEN)
fault("dit.patch_written_channels_last", "dit", ("output:transformer.proj_out", "checkpoint:noise_pred"), ("layout.packing", "layout.interleaved", "layout.heads", "layout.permuted"),
      lambda p: result(p.transformer.proj_out, lambda y: y.unflatten(-1, (16, 4)).transpose(-1, -2).flatten(-2)), world=BOTH)

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.attention_not_normed", "vae", f"output:{MIDDLE}.norm", "norm.missing", lambda p: forward(middle(p).norm, lambda self, old, x: x))
fault("vae.one_length_for_the_picture", "vae", f"output:{D}.up_blocks.0.resnets.3.norm1", ("norm.axis", "norm.kind"),
      lambda p: forward(up(p, 0, 3).norm1, over_everything), world=TOWER)
fault("vae.scale_of_the_three", "vae", f"input:{MIDDLE}.proj", "attention.scale",
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(q, k, v, scale=(3 * channels) ** -0.5)")))
fault("vae.upsampled_on_its_side", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.0", ("layout.axes", "layout.permuted"),
      lambda p: result(p.vae.decoder.up_blocks[1].upsamplers[0].resample[0], lambda y: y.transpose(-1, -2)), world=EVEN)
fault("vae.upsampler_bias_doubled", "vae", f"output:{D}.up_blocks.2.upsamplers.0.resample.1", ("convolution.bias_doubled", "convolution.different_bias"),
      lambda p: weights(p.vae.decoder.up_blocks[2].upsamplers[0].resample[1], lambda w: w.update(bias=2 * w["bias"])))

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.karras", "scheduler", (LATENTS, "input:transformer.timestep"), "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("if self.config.use_karras_sigmas:", "if True:")), world=TOWER)
fault("scheduler.first_step_for_ever", "scheduler", LATENTS, "scheduler.step_index",
      lambda p: scheduler(p, "step", ("sigma_idx = self.step_index", "sigma_idx = 0")), world=TOWER)
fault("pipeline.one_item_exchanged", "pipeline", "checkpoint:noise_pred", "guidance.exchanged",
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)", "comb_pred = torch.cat([neg_noise_pred[:1] + true_cfg_scale * (noise_pred[:1] - neg_noise_pred[:1]), noise_pred[1:] + true_cfg_scale * (neg_noise_pred[1:] - noise_pred[1:])])")), world=BOTH)
fault("pipeline.timestep_one_less", "pipeline", "input:transformer.timestep", "timestep.offset",
      CALL(("timestep=timestep / 1000", "timestep=(timestep - 1) / 1000")), world=EVEN)
fault("pipeline.normalised_again", "pipeline", DENORMALISED, "latents.direction",
      CALL((UNDONE, "latents = (latents - latents_mean) * latents_std")), world=BOTH)
fault("pipeline.latents_whole_numbers", "pipeline", DENORMALISED, "precision.integer",
      CALL((UNDONE, "latents = (latents / latents_std + latents_mean).to(torch.int32).to(latents.dtype)")), world=TOWER)

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.vae_projection_transposed", "weights", f"output:{MIDDLE}.proj", ("convolution.transposed_weight", "weights.transposed"),
      lambda p: weights(middle(p).proj, lambda w: w.update(weight=w["weight"].transpose(0, 1))), world=EVEN)
fault("weights.first_mlp_for_all", "weights", f"output:{E}.1.mlp.gate_proj", "linear.other_weight", mlp_of_the_first)
fault("weights.text_in_random", "weights", "output:transformer.txt_in", ("linear.random_weight", "linear.different_weight", "weights.random"),
      lambda p: weights(p.transformer.txt_in, lambda w: w.update(weight=xavier(w["weight"], 11))), world=BOTH)
fault("weights.bias_alone_in_pairs", "weights", f"output:{E}.1.self_attn.q_proj", ("linear.different_bias", "affine.channel_offset"),
      lambda p: weights(layer(p, 1).self_attn.q_proj, lambda w: w.update(bias=halves_to_pairs(w["bias"], 10))))
fault("weights.steps_transposed", "weights", f"output:{T}.2.img_mlp.net.0.proj", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 2).img_mlp.net[0].proj, lambda w: w.update(weight=steps_transposed(w["weight"], 4, 24))))

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.conditional_kept", "capture", f"output:{T}.1.img_norm2", ("capture.other_hit", "capture.other_stage"),
      change=conditional_kept(f"{T}.1.img_norm2"))
fault("capture.keys_column_major", "capture", f"output:{E}.1.self_attn.k_proj", "layout.strided",
      change=at(f"{E}.1.self_attn.k_proj", lambda x: x.transpose(1, 2).contiguous().reshape(x.shape)), world=TOWER)
fault("capture.lower_half_unread", "capture", f"output:{D}.up_blocks.0.resnets.0.conv2", "garbage.denormal",
      change=at(f"{D}.up_blocks.0.resnets.0.conv2", lower_half_unread), world=EVEN)
