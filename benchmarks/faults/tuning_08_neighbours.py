"""Neighbours of faults that were once missed: the same kind of mistake on the other stream, operand, axis, rounding or power, planted
to see whether a rule speaks of the kind or only of the case. For tuning, no measure."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from suite_01_every_stage import CALL, D, E, T, at, block, eager, interleaved, layer, rope, scheduler, static, theta, up
from places import MIDDLE, attended, class_method, faults_of, joint_attention, method, middle, result, rotated
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 6 by 5 image tokens and a prompt as long as no side: no two counts are equal.
FIVE = World(
    "neighbour-five",
    {"seed": 61, "layers": 3, "heads": 3, "head_dim": 32, "axes": [8, 12, 12], "text_hidden": 96, "text_heads": 6,
     "text_kv_heads": 3, "text_layers": 3, "text_intermediate": 112, "random_latent_stats": True},
    {"prompt": "a green door in a white wall, late in the day", "negative": "no text", "width": 80, "height": 96,
     "steps": 4, "guidance": 3.75, "seed": 12},
)  # fmt: skip
PAIR = World(
    "neighbour-pair",
    {"seed": 62, "layers": 2, "heads": 4, "head_dim": 32, "text_layers": 2},
    {"prompt": ["salt", "a long table set for nine people"], "negative": ["low quality, noise", "y"], "width": 64, "height": 48,
     "steps": 2, "guidance": 3.0, "seed": 13},
)  # fmt: skip
fault = faults_of(FAULTS, FIVE)
TEXT, IMAGE = f"input:{T}.1.attn.to_add_out", f"input:{T}.1.attn.to_out.0"


def joint(*changes, **names):
    return lambda p: joint_attention(p, 1, *changes, **names)


# --- one stream's operand of the attention carries a factor ----------------------------------------------------------------
fault("dit.text_keys_scaled", "dit", attended(1), "attention.scale",
      joint(("joint_key = torch.cat([txt_key,", "joint_key = torch.cat([txt_key * head_dim**-0.5,")))
fault("dit.image_keys_rooted", "dit", attended(1), "attention.scale",
      joint(("torch.cat([txt_key, img_key], dim=1)", "torch.cat([txt_key, img_key * head_dim**0.25], dim=1)")))
fault("dit.image_queries_scaled", "dit", IMAGE, "attention.scale",
      joint(("torch.cat([txt_query, img_query], dim=1)", "torch.cat([txt_query, img_query * 0.37], dim=1)")))
fault("dit.text_values_doubled", "dit", attended(1), "attention.scale",
      joint(("torch.cat([txt_value, img_value], dim=1)", "torch.cat([2 * txt_value, img_value], dim=1)")))
fault("dit.text_values_zero", "dit", attended(1), ("attention.scale", "attention.streams"),
      joint(("torch.cat([txt_value, img_value], dim=1)", "torch.cat([0 * txt_value, img_value], dim=1)")))
fault("dit.image_keys_negated", "dit", attended(1), "attention.scale",
      joint(("torch.cat([txt_key, img_key], dim=1)", "torch.cat([txt_key, -img_key], dim=1)")))
fault("dit.scale_twice", "dit", attended(1), "attention.scale", joint(("dropout_p=0.0,", "dropout_p=0.0,\n        scale=1 / head_dim,")))
fault("dit.scale_fourth_root", "dit", attended(1), "attention.scale", joint(("dropout_p=0.0,", "dropout_p=0.0,\n        scale=head_dim**-0.25,")))
fault("dit.softmax_over_queries", "dit", attended(1), "attention.softmax",
      joint(("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = (((joint_query.transpose(1, 2) @ joint_key.permute(0, 2, 3, 1)) / head_dim**0.5).softmax(-2) @ joint_value.transpose(1, 2)).transpose(1, 2).flatten(2, 3)")))
fault("dit.values_heads_inner", "dit", attended(1), ("layout.heads", "attention.heads"),
      joint(("img_value = img_value.unflatten(-1, (-1, head_dim))", "img_value = img_value.unflatten(-1, (head_dim, -1)).transpose(-1, -2)")))

# --- a norm is not called, or once too often -----------------------------------------------------------------------------------
NORMS = {"img_query": "norm_q", "img_key": "norm_k", "txt_query": "norm_added_q", "txt_key": "norm_added_k"}
for value, norm in NORMS.items():
    fault(f"dit.{norm}_not_called", "dit", (*attended(1), f"output:{T}.1.attn.{norm}"), "attention.norm_missing",
          joint((f"{value} = attn.{norm}({value})", "pass")))
fault("dit.text_norms_not_called", "dit", (*attended(1), f"output:{T}.1.attn.norm_added_*"), "attention.norm_missing",
      joint(("txt_key = attn.norm_added_k(txt_key)", "pass"), ("txt_query = attn.norm_added_q(txt_query)", "pass")))
fault("dit.no_norm_called", "dit", (*attended(1), f"output:{T}.1.attn.norm*"), "attention.norm_missing",
      joint(*((f"{value} = attn.{norm}({value})", "pass") for value, norm in NORMS.items())))
fault("dit.image_norm_for_text_key", "dit", (f"output:{T}.1.attn.norm_k", *attended(1), f"output:{T}.1.attn.norm_added_k", f"input:{T}.1.attn.norm_k"), ("norm.other_weight", "attention.norm_missing"),
      joint(("txt_key = attn.norm_added_k(txt_key)", "txt_key = txt_key * torch.rsqrt(txt_key.pow(2).mean(-1, keepdim=True) + 1e-6) * attn.norm_k.weight")))
fault("dit.query_normed_after_rope", "dit", attended(1), ("attention.norm_added", "attention.norm_missing"),
      joint(("joint_query = torch.cat([txt_query, img_query], dim=1)", "joint_query = torch.cat([txt_query, img_query], dim=1)\n    joint_query = joint_query * torch.rsqrt(joint_query.pow(2).mean(-1, keepdim=True))")))
fault("dit.key_rotated_before_norm", "dit", f"input:{T}.1.attn.norm_k", "rotary.added",
      joint(("if attn.norm_k is not None:", "if attn.norm_k is not None:\n        img_key = apply_rotary_emb_qwen(img_key, image_rotary_emb[0], use_real=False)"),
            ("img_key = apply_rotary_emb_qwen(img_key, img_freqs, use_real=False)", "pass")))

# --- rotation -------------------------------------------------------------------------------------------------------------------
fault("dit.rope_text_key_missing", "dit", attended(1), ("rotary.one_side", "rotary.missing"), joint((rotated("txt_key")[0][1], "pass")))
fault("dit.rope_image_query_missing", "dit", IMAGE, ("rotary.one_side", "rotary.missing"), joint((rotated("img_query")[0][1], "pass")))
fault("dit.rope_image_missing", "dit", attended(1), "rotary.missing", joint(*((line, "pass") for _, line in rotated("img_query", "img_key"))))
fault("dit.rope_text_key_twice", "dit", attended(1), "rotary.factor", joint((rotated("txt_key")[0][1], rotated("txt_key")[0][1] + "\n        " + rotated("txt_key")[0][1])))
fault("dit.rope_image_key_sign", "dit", attended(1), "rotary.sign", joint((rotated("img_key")[0][1], rotated("img_key")[0][1].replace("img_freqs", "img_freqs.conj()"))))
fault("dit.rope_image_query_rolled", "dit", attended(1), "rotary.offset", joint((rotated("img_query")[0][1], rotated("img_query")[0][1].replace("img_freqs", "img_freqs.roll(1, 0)"))))
fault("dit.rope_text_text_positions_from_image", "dit", attended(1), ("rotary.streams_exchanged", "rotary.offset"),
      joint(*((line, line.replace("txt_freqs", "img_freqs[: txt_query.shape[1]]")) for _, line in rotated("txt_query", "txt_key"))))
fault("dit.grid_height_width", "dit", "output:transformer.pos_embed.0", "rotary.axes_exchanged",
      lambda p: rope(p, "forward", ("frame, height, width = fhw", "frame, width, height = fhw")))
fault("dit.columns_first", "dit", "output:transformer.pos_embed.0", ("rotary.axes_exchanged", "layout.permuted", "layout.packing", "layout.heads", "layout.strided", "layout.interleaved"),
      lambda p: rope(p, "_compute_video_freqs", (".reshape(seq_lens, -1)", ".transpose(1, 2).reshape(seq_lens, -1)")))
fault("dit.width_first", "dit", "output:transformer.pos_embed.0", "rotary.axes_exchanged",
      lambda p: rope(p, "_compute_video_freqs", ("[freqs_frame, freqs_height, freqs_width]", "[freqs_width, freqs_height, freqs_frame]")))
fault("dit.height_not_centred", "dit", "output:transformer.pos_embed.0", "rotary.offset",
      lambda p: rope(p, "_compute_video_freqs", ("freqs_height = torch.cat([freqs_neg[1][-(height - height // 2) :], freqs_pos[1][: height // 2]], dim=0)", "freqs_height = freqs_pos[1][:height]")))
fault("dit.width_backwards", "dit", "output:transformer.pos_embed.0", ("rotary.sign", "layout.reversed"),
      lambda p: rope(p, "_compute_video_freqs", ("freqs_width = freqs_width.view(1, 1, width, -1)", "freqs_width = freqs_width.flip(0).view(1, 1, width, -1)")))
fault("dit.frame_one", "dit", "output:transformer.pos_embed.0", "rotary.offset",
      lambda p: rope(p, "_compute_video_freqs", ("freqs_pos[0][idx : idx + frame]", "freqs_pos[0][idx + 1 : idx + 1 + frame]")))
fault("dit.height_doubled", "dit", "output:transformer.pos_embed.0", "rotary.factor",
      lambda p: rope(p, "_compute_video_freqs", ("freqs_pos[1][: height // 2]], dim=0)", "freqs_pos[1][: height // 2]], dim=0) ** 2")))
fault("dit.width_by_rows", "dit", "output:transformer.pos_embed.0", ("rotary.axes_exchanged", "rotary.positions"),  # both axes counted by the row
      lambda p: rope(p, "_compute_video_freqs", ("freqs_width = freqs_width.view(1, 1, width, -1).expand(frame, height, width, -1)", "freqs_width = torch.cat([freqs_neg[2][-(height - height // 2) :], freqs_pos[2][: height // 2]], dim=0).view(1, height, 1, -1).expand(frame, height, width, -1)")))
fault("dit.theta_per_axis_size", "dit", "output:transformer.pos_embed.*", "rotary.theta", lambda p: theta(p, 5e3))
fault("dit.text_from_one_more", "dit", "output:transformer.pos_embed.1", ("rotary.offset", "layout.shifted"),
      lambda p: rope(p, "forward", ("max_txt_seq_len_int = int(max_txt_seq_len)", "max_txt_seq_len_int = int(max_txt_seq_len); max_vid_index += 1")))
fault("dit.text_backwards_positions", "dit", "output:transformer.pos_embed.1", ("rotary.sign", "layout.reversed", "rotary.offset"),
      lambda p: result(p.transformer.pos_embed, lambda y: (y[0], y[1].flip(0))))
fault("text.positions_halved", "text encoder", "output:text_encoder.model.rotary_emb.*", "rotary.factor",
      lambda p: forward(p.text_encoder.model.language_model.rotary_emb, lambda self, old, x, position_ids: old(x, position_ids / 2)))
fault("text.positions_from_seven", "text encoder", "output:text_encoder.model.rotary_emb.*", ("rotary.offset", "layout.shifted"),
      lambda p: forward(p.text_encoder.model.language_model.rotary_emb, lambda self, old, x, position_ids: old(x, position_ids + 7)))
fault("text.cos_sin_exchanged", "text encoder", "output:text_encoder.model.rotary_emb.*", "rotary.cos_sin_exchanged",
      lambda p: result(p.text_encoder.model.language_model.rotary_emb, lambda y: y[::-1]))
fault("text.rope_layer_missing", "text encoder", f"input:{E}.1.self_attn.o_proj", "rotary.missing",
      lambda p: method(layer(p, 1).self_attn, "forward", ("= apply_rotary_pos_emb(", "= planted("), planted=lambda q, k, *a, **b: (q, k)))
fault("text.rope_only_keys", "text encoder", f"input:{E}.2.self_attn.o_proj", "rotary.one_side",
      lambda p: method(layer(p, 2).self_attn, "forward", ("= apply_rotary_pos_emb(", "= planted("), planted=lambda q, k, cos, sin, **b: (q, interleave_free(q, k, cos, sin))))


def interleave_free(q, k, cos, sin):
    import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl as qwen

    return qwen.apply_rotary_pos_emb(q, k, cos, sin)[1]


# --- numbers made poorer ----------------------------------------------------------------------------------------------------------
TIME = "input:transformer.timestep"
for name, text, cause in (
    ("rounded", "timestep.round() / 1000", "precision.integer"),
    ("raised", "timestep.ceil() / 1000", "precision.integer"),
    ("cut_after_division", "(timestep / 1000).long()", ("precision.integer", "timestep.index_as_value")),
    ("bf16_before", "timestep.bfloat16().float() / 1000", "precision.bf16"),
    ("bf16_after", "(timestep / 1000).bfloat16().float()", "precision.bf16"),
    ("f16_after", "(timestep / 1000).half().float()", "precision.f16"),
    ("f16_before", "timestep.half().float() / 1000", ("precision.f16", "precision.integer")),
    ("by_999", "timestep / 999", "timestep.scale"),
    ("plus_one", "(timestep + 1) / 1000", "timestep.offset"),
    ("twice_divided", "timestep / 1000 / 1000", "timestep.scale"),
    ("squared", "(timestep / 1000) ** 2", "timestep.function"),
    ("of_next", "timesteps[min(i + 1, len(timesteps) - 1)].expand(latents.shape[0]) / 1000", "timestep.step_index"),
):
    fault(f"pipeline.timestep_{name}", "pipeline", TIME, cause, CALL(("timestep=timestep / 1000", f"timestep={text}")))
PICTURE = lambda change: (lambda p: attribute(type(p.image_processor), "denormalize", staticmethod(change)))  # noqa: E731
fault("pipeline.image_darker", "pipeline", "checkpoint:image", ("affine.scale", "affine.scale_offset"), PICTURE(lambda x: (x * 0.25 + 0.25).clamp(0, 1)))
fault("pipeline.image_not_halved", "pipeline", "checkpoint:image", ("affine.scale_offset", "affine.scale"), PICTURE(lambda x: (x + 0.5).clamp(0, 1)))
fault("pipeline.image_not_moved", "pipeline", "checkpoint:image", ("affine.offset", "affine.scale_offset"), PICTURE(lambda x: (x / 2).clamp(0, 1)))
fault("pipeline.image_as_it_is", "pipeline", "checkpoint:image", ("affine.scale_offset",), PICTURE(lambda x: x.clamp(0, 1)))
fault("pipeline.image_negative", "pipeline", "checkpoint:image", ("affine.scale_offset", "affine.scale"), PICTURE(lambda x: (0.5 - x / 2).clamp(0, 1)))
fault("pipeline.image_gamma", "pipeline", "checkpoint:image", ("elementwise.function", "elementwise.added"), PICTURE(lambda x: (x / 2 + 0.5).clamp(0, 1) ** 2.2))
fault("dit.temb_bf16", "dit", ("output:transformer.time_text_embed.timestep_embedder.linear_2", "output:transformer.time_text_embed.timestep_embedder", "output:transformer.time_text_embed"), "precision.bf16",
      lambda p: result(p.transformer.time_text_embed, lambda y: y.bfloat16().float()))
fault("dit.time_proj_f16", "dit", "output:transformer.time_text_embed.time_proj", "precision.f16",
      lambda p: result(p.transformer.time_text_embed.time_proj, lambda y: y.half().float()))

# --- modulation, gates, residuals, norms, activations -------------------------------------------------------------------------------
fault("dit.text_gate_missing", "dit", f"input:{T}.0.txt_norm2", "gate.missing",
      lambda p: code(block(p, 0), "forward", ("txt_gate1 * txt_attn_output", "txt_attn_output")))
fault("dit.gate_one_plus", "dit", f"input:{T}.2.img_norm2", ("gate.form", "modulate.form"),
      lambda p: code(block(p, 2), "forward", ("img_gate1 * img_attn_output", "(1 + img_gate1) * img_attn_output")))
fault("dit.text_shift_missing_once", "dit", f"input:{T}.2.txt_mlp", "modulate.shift_missing",
      lambda p: code(block(p, 2), "forward", ("txt_mlp_output = self.txt_mlp(txt_modulated2)", "txt_modulated2 = txt_modulated2 - txt_mod2.chunk(3, -1)[0].unsqueeze(1)\n    txt_mlp_output = self.txt_mlp(txt_modulated2)")))
fault("dit.scale_missing", "dit", f"input:{T}.1.img_mlp", "modulate.scale_missing",
      lambda p: code(block(p, 1), "forward", ("img_mlp_output = self.img_mlp(img_modulated2)", "img_modulated2 = img_normed2 + img_mod2.chunk(3, -1)[0].unsqueeze(1)\n    img_mlp_output = self.img_mlp(img_modulated2)")))
fault("dit.scale_gate_exchanged", "dit", f"input:{T}.0.attn.encoder_hidden_states", ("modulate.other_part",),
      lambda p: code(block(p, 0), "forward", ("self._modulate(txt_normed, txt_mod1)", "self._modulate(txt_normed, torch.cat([txt_mod1.chunk(3, -1)[k] for k in (0, 2, 1)], -1))")))
fault("dit.modulated_before_norm", "dit", (f"input:{T}.1.img_norm2", f"input:{T}.1.img_mlp"), ("modulate.form", "modulate.missing", "norm.missing", "stage.replaced"),
      lambda p: code(block(p, 1), "forward", ("img_normed2 = self.img_norm2(hidden_states)", "img_normed2 = hidden_states; self.img_norm2(hidden_states)")))
fault("dit.residual_after_norm", "dit", f"output:{T}.0.1", "residual.other_input",
      lambda p: code(block(p, 0), "forward", ("hidden_states = hidden_states + img_gate2 * img_mlp_output", "hidden_states = img_normed2 + img_gate2 * img_mlp_output")))
fault("dit.residual_scaled", "dit", f"output:{T}.1.0", ("residual.factor", "gate.form"),
      lambda p: code(block(p, 1), "forward", ("encoder_hidden_states = encoder_hidden_states + txt_gate2 * txt_mlp_output", "encoder_hidden_states = 0.5 * (encoder_hidden_states + txt_gate2 * txt_mlp_output) + 0.5 * encoder_hidden_states")))
fault("dit.norm_mean_kept", "dit", f"output:{T}.0.txt_norm1", "norm.kind",
      lambda p: forward(block(p, 0).txt_norm1, lambda self, old, x: x * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + self.eps)))
fault("dit.norm_unbiased", "dit", f"output:{T}.2.img_norm1", ("norm.factor", "norm.kind", "affine.scale"),
      lambda p: forward(block(p, 2).img_norm1, lambda self, old, x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)))
fault("dit.eps_outside_root", "dit", f"output:{T}.1.attn.norm_q", "norm.eps",
      lambda p: forward(block(p, 1).attn.norm_q, lambda self, old, x: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-2) * self.weight))
fault("dit.txt_norm_layer", "dit", "output:transformer.txt_norm", "norm.kind",
      lambda p: forward(p.transformer.txt_norm, lambda self, old, x: F.layer_norm(x, x.shape[-1:], self.weight, None, self.eps)))
fault("dit.image_mlp_relu", "dit", f"output:{T}.1.img_mlp.net.0", ("activation.kind", "precision.saturated"),
      lambda p: method(block(p, 1).img_mlp.net[0], "gelu", ("return F.gelu(gate, approximate=self.approximate)", "return F.relu(gate)")))
fault("dit.image_mlp_linear", "dit", f"output:{T}.1.img_mlp.net.0", "activation.missing",
      lambda p: method(block(p, 1).img_mlp.net[0], "gelu", ("return F.gelu(gate, approximate=self.approximate)", "return gate")))
fault("dit.silu_twice", "dit", f"output:{T}.0.txt_mod.0", ("activation.kind", "activation.added", "elementwise.added"),
      lambda p: forward(block(p, 0).txt_mod[0], lambda self, old, x: old(old(x))))
fault("dit.norm_out_scale_missing", "dit", "output:transformer.norm_out", ("modulate.scale_missing", "modulate.missing"),
      lambda p: code(p.transformer.norm_out, "forward", ("self.norm(x) * (1 + scale)[:, None, :]", "self.norm(x)")))
fault("dit.norm_out_silu_missing", "dit", ("output:transformer.norm_out.linear", "input:transformer.norm_out.linear"), ("activation.missing", "stage.replaced"),
      lambda p: code(p.transformer.norm_out, "forward", ("self.linear(self.silu(conditioning_embedding)", "self.linear((conditioning_embedding)")))

# --- masks, tokens, heads ------------------------------------------------------------------------------------------------------------
fault("dit.mask_one_short", "dit", attended(1), ("attention.mask", "attention.mask_missing", "attention.mask_added"),
      lambda p: joint_attention(p, 1, ("seq_txt = encoder_hidden_states.shape[1]", "seq_txt = encoder_hidden_states.shape[1]\n    attention_mask = None if attention_mask is None else attention_mask.roll(1, -1)")), world=PAIR)
fault("dit.mask_inverted", "dit", attended(1), ("attention.mask", "attention.mask_missing", "attention.mask_added"),
      lambda p: joint_attention(p, 1, ("attn_mask=attention_mask,", "attn_mask=~attention_mask,")), world=PAIR)
fault("text.mask_strict", "text encoder", f"input:{E}.1.self_attn.o_proj", ("attention.mask",),
      lambda p: method(layer(p, 1).self_attn, "forward",
                       ("attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )", "attention_interface = planted"), planted=strict))
fault("text.key_heads_shifted", "text encoder", f"input:{E}.1.self_attn.o_proj", "attention.key_groups",
      lambda p: method(layer(p, 1).self_attn, "forward",
                       ("attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )", "attention_interface = planted"),
                       planted=lambda module, q, k, v, mask, scaling, **more: eager(module, q, k.roll(1, 1), v.roll(1, 1), mask, scaling)))
fault("text.first_group_for_all", "text encoder", f"input:{E}.1.self_attn.o_proj", "attention.key_groups",
      lambda p: method(layer(p, 1).self_attn, "forward",
                       ("attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )", "attention_interface = planted"),
                       planted=lambda module, q, k, v, mask, scaling, **more: eager(module, q, k[:, :1].expand_as(k), v[:, :1].expand_as(v), mask, scaling)))


def strict(module, q, k, v, mask, scaling, **_):
    groups = module.num_key_value_groups
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(2, 3) * scaling
    hidden = torch.full(scores.shape[-2:], -torch.inf).triu(0)
    hidden[0, 0] = 0
    return ((scores + hidden).softmax(-1) @ v).transpose(1, 2).contiguous(), None


# --- schedule, guidance, latents, picture ---------------------------------------------------------------------------------------------
fault("scheduler.sigma_next_twice", "scheduler", "checkpoint:latents", ("scheduler.step_index", "scheduler.dt", "scheduler.sigmas"),
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = sigma_next - self.sigmas[max(sigma_idx - 1, 0)]")))
fault("scheduler.shift_linear", "scheduler", ("checkpoint:latents", TIME), "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = mu * sigmas / (1 + (mu - 1) * sigmas)")))
fault("scheduler.shift_inverted", "scheduler", ("checkpoint:latents", TIME), "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = self.time_shift(-mu, 1.0, sigmas)")))
fault("pipeline.cfg_added", "pipeline", "checkpoint:noise_pred", ("guidance.scale", "guidance.formula"),
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)", "comb_pred = noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)")))
fault("pipeline.cfg_not_subtracted", "pipeline", "checkpoint:noise_pred", ("guidance.formula", "guidance.scale"),
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)", "comb_pred = neg_noise_pred + true_cfg_scale * noise_pred")))
fault("pipeline.cfg_minus_one", "pipeline", "checkpoint:noise_pred", "guidance.scale",
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (", "comb_pred = neg_noise_pred + (true_cfg_scale - 1) * (")))
fault("pipeline.cfg_negated", "pipeline", "checkpoint:noise_pred", ("guidance.scale", "guidance.exchanged"),
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (", "comb_pred = neg_noise_pred - true_cfg_scale * (")))
fault("pipeline.cfg_rescaled_by_uncond", "pipeline", "checkpoint:noise_pred", "guidance.rescale",
      CALL(("cond_norm = torch.norm(noise_pred, dim=-1, keepdim=True)", "cond_norm = torch.norm(neg_noise_pred, dim=-1, keepdim=True)")))
fault("pipeline.mean_std_swapped", "pipeline", "checkpoint:latents_denormalized", "latents.mean_std_exchanged",
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents / latents_mean + latents_std")))
fault("pipeline.mean_missing", "pipeline", "checkpoint:latents_denormalized", ("latents.mean_missing", "affine.channel_offset"),
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents / latents_std")))
fault("pipeline.std_missing", "pipeline", "checkpoint:latents_denormalized", ("latents.std_missing", "affine.channel_scale"),
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents + latents_mean")))
fault("pipeline.scaling_factor", "pipeline", "checkpoint:latents_denormalized", ("latents.statistics", "latents.not_denormalised"),
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents / 0.18215")))
fault("vae.bicubic", "vae", f"output:{D}.up_blocks.0.upsamplers.0.resample.0", "resample.kind",
      lambda p: attribute(p.vae.decoder.up_blocks[0].upsamplers[0].resample[0], "mode", "bicubic"))
fault("vae.values_scaled", "vae", f"input:{MIDDLE}.proj", ("attention.scale", "affine.scale"),
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(q * q.shape[-1] ** -0.5, k, v)")))
fault("vae.padding_reflect", "vae", f"output:{D}.up_blocks.0.resnets.0.conv1", "convolution.padding",
      lambda p: code(up(p, 0, 0).conv1, "forward", ("x = F.pad(x, padding)", "x = F.pad(F.pad(x, padding[:4] + [0, 0], mode='reflect'), [0, 0, 0, 0] + padding[4:])")))

# --- weights ----------------------------------------------------------------------------------------------------------------------------
fault("weights.text_value_transposed", "weights", f"output:{T}.2.attn.add_v_proj", "linear.transposed_weight",
      lambda p: weights(block(p, 2).attn.add_v_proj, lambda w: w.update(weight=w["weight"].T)))
fault("weights.query_heads_interleaved", "weights", f"output:{T}.0.attn.to_q", ("layout.heads", "layout.interleaved", "layout.permuted", "layout.parts_exchanged"),
      lambda p: weights(block(p, 0).attn.to_q, lambda w: w.update({n: v.unflatten(0, (3, 32)).transpose(0, 1).flatten(0, 1) for n, v in w.items()})))
fault("weights.rope_halves_to_pairs", "weights", f"output:{E}.1.self_attn.q_proj", ("layout.heads", "layout.interleaved", "layout.permuted", "layout.parts_exchanged"),
      lambda p: weights(layer(p, 1).self_attn.q_proj, lambda w: w.update({n: v.unflatten(0, (-1, 2, 8)).transpose(1, 2).flatten(0, 2) for n, v in w.items()})))
