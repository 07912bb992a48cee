"""Faults of other kinds and in other places, written while the rules were made general: each family in forms it had not met. For
tuning, no measure."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from suite_01_every_stage import CALL, D, E, OUT0, OUT1, T, at, block, layer, processor, rope, scheduler, static, up
from places import faults_of
from planting import attribute, code, forward, weights

FAULTS: list = []
fault = faults_of(FAULTS)


# text encoder
fault("text.mish", "text encoder", f"output:{E}.0.mlp.act_fn", ("activation.kind",), lambda p: forward(layer(p, 0).mlp.act_fn, lambda self, old, x: F.mish(x)))
fault("text.silu_beta", "text encoder", f"output:{E}.1.mlp.act_fn", ("activation.kind",), lambda p: forward(layer(p, 1).mlp.act_fn, lambda self, old, x: x * torch.sigmoid(1.3 * x)))
fault("text.norm_tokens", "text encoder", f"output:{E}.0.input_layernorm", ("norm.axis",),
      lambda p: code(layer(p, 0).input_layernorm, "forward", ("mean(-1, keepdim=True)", "mean(-2, keepdim=True)")))
fault("text.norm_no_root", "text encoder", f"output:{E}.1.input_layernorm", ("norm.kind",),
      lambda p: code(layer(p, 1).input_layernorm, "forward", ("torch.rsqrt(variance + self.variance_epsilon)", "1 / (hidden_states.abs().mean(-1, keepdim=True))")))
fault("text.norm_weight_reversed", "text encoder", f"output:{E}.0.post_attention_layernorm", ("norm.different_weight", "norm.other_weight"),
      lambda p: weights(layer(p, 0).post_attention_layernorm, lambda w: w.update(weight=w["weight"].flip(0))))
fault("text.scale_half", "text encoder", f"input:{E}.0.self_attn.o_proj", ("attention.scale",), lambda p: attribute(layer(p, 0).self_attn, "scaling", 0.173))
fault("text.up_twice", "text encoder", f"input:{E}.0.mlp.down_proj", ("activation.product_missing", "elementwise.added", "activation.kind", "elementwise.missing", "activation.other_input"),
      lambda p: code(layer(p, 0).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.gate_proj(x)) + self.up_proj(x)")))
fault("text.ids_plus_one", "text encoder", "output:text_encoder.model.embed_tokens", ("embedding.offset",),
      lambda p: forward(p.text_encoder.model.language_model.embed_tokens, lambda self, old, x: old((x + 1).clamp(max=self.weight.shape[0] - 1))))
fault("text.hidden_layer", "text encoder", ("checkpoint:prompt_embeds", "checkpoint:*"), ("stage.replaced", "capture.other_stage", "norm.missing", "layout.shifted"),
      lambda p: code(p, "_get_qwen_prompt_embeds", ("hidden_states[-1]", "hidden_states[-2]")))
fault("text.q_rows_interleaved", "text encoder", f"output:{E}.0.self_attn.q_proj", ("layout.interleaved", "layout.heads", "layout.permuted", "linear.different_weight"),
      lambda p: weights(layer(p, 0).self_attn.q_proj, lambda w: w.update(weight=w["weight"].reshape(4, 16, -1).transpose(0, 1).reshape(w["weight"].shape))))
# diffusion transformer
fault("dit.scale_missing", "dit", f"input:{T}.1.attn.hidden_states", ("modulate.scale_missing", "modulate.missing"),
      lambda p: code(block(p, 1), "_modulate", ("x * (1 + scale_result) + shift_result", "x + shift_result")))
fault("dit.shift_first", "dit", f"input:{T}.0.attn.hidden_states", ("modulate.form", "modulate.shift"),
      lambda p: code(block(p, 0), "_modulate", ("x * (1 + scale_result) + shift_result", "(x + shift_result) * (1 + scale_result)")))
fault("dit.scale_minus", "dit", f"input:{T}.2.attn.hidden_states", ("modulate.form",),
      lambda p: code(block(p, 2), "_modulate", ("x * (1 + scale_result) + shift_result", "x * (1 - scale_result) + shift_result")))
fault("dit.scale_exp", "dit", f"input:{T}.1.attn.hidden_states", ("modulate.form",),
      lambda p: code(block(p, 1), "_modulate", ("x * (1 + scale_result) + shift_result", "x * scale_result.exp() + shift_result")))
fault("dit.gate_one_plus", "dit", f"input:{T}.1.img_norm2", ("gate.form", "modulate.form"),
      lambda p: code(block(p, 1), "forward", ("hidden_states + img_gate1 * img_attn", "hidden_states + (1 + img_gate1) * img_attn")))
fault("dit.gate_sigmoid", "dit", f"output:{T}.0.*", ("gate.form", "modulate.form"),
      lambda p: code(block(p, 0), "forward", ("img_gate2 * img_mlp_output", "img_gate2.sigmoid() * img_mlp_output")))
fault("dit.gate_all", "dit", f"input:{T}.2.img_norm2", ("gate.added", "residual.factor", "gate.form"),
      lambda p: code(block(p, 2), "forward", ("hidden_states + img_gate1 * img_attn_output", "img_gate1 * (hidden_states + img_attn_output)")))
fault("dit.norm_skipped", "dit", f"input:{T}.1.attn.hidden_states", ("norm.missing", "residual.other_input"),
      lambda p: code(block(p, 1), "forward", ("self._modulate(img_normed, img_mod1, modulate_index)", "self._modulate(hidden_states, img_mod1, modulate_index)")))
fault("dit.attn_out_tokens_shifted", "dit", f"input:{T}.1.img_norm2", ("layout.rolled", "layout.shifted"),
      lambda p: code(block(p, 1), "forward", ("hidden_states + img_gate1 * img_attn_output", "hidden_states + img_gate1 * img_attn_output.roll(1, 1)")))
fault("dit.attn_out_clamped", "dit", f"input:{T}.0.img_norm2", ("precision.saturated",),
      lambda p: code(block(p, 0), "forward", ("hidden_states + img_gate1 * img_attn_output", "hidden_states + img_gate1 * img_attn_output.clamp(-0.1, 0.1)")))
fault("dit.text_mlp_bf16", "dit", f"output:{T}.1.*", ("precision.bf16",),
      lambda p: code(block(p, 1), "forward", ("txt_gate2 * txt_mlp_output", "txt_gate2 * txt_mlp_output.bfloat16().float()")))
fault("dit.window", "dit", OUT0, ("attention.mask_added",),
      lambda p: processor(p, 0, ("attn_mask=attention_mask", "attn_mask=(torch.arange(joint_query.shape[1])[:, None] - torch.arange(joint_query.shape[1])[None]).abs() < 8")))
fault("dit.text_masked", "dit", OUT1, ("attention.mask_added", "attention.streams"),
      lambda p: processor(p, 1, ("attn_mask=attention_mask", "attn_mask=(torch.arange(joint_query.shape[1]) >= seq_txt)[None, None, None]")))
fault("dit.no_softmax", "dit", OUT1, ("attention.softmax",),
      lambda p: processor(p, 1, ("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = torch.einsum('bqhd,bkhd,bkhe->bqhe', joint_query, joint_key, joint_value).mul(32 ** -0.5).flatten(2, 3)")))
fault("dit.rope_text_missing", "dit", OUT0, ("rotary.one_side", "rotary.missing"),
      lambda p: processor(p, 0, ("txt_query = apply_rotary_emb_qwen(txt_query, txt_freqs, use_real=False)", "pass"), ("txt_key = apply_rotary_emb_qwen(txt_key, txt_freqs, use_real=False)", "pass")))
fault("dit.rope_twice", "dit", OUT1, ("rotary.factor", "rotary.offset"),
      lambda p: processor(p, 1, ("joint_query = torch.cat([txt_query, img_query], dim=1)", "img_query = apply_rotary_emb_qwen(img_query, img_freqs, use_real=False); txt_query = apply_rotary_emb_qwen(txt_query, txt_freqs, use_real=False); img_key = apply_rotary_emb_qwen(img_key, img_freqs, use_real=False); txt_key = apply_rotary_emb_qwen(txt_key, txt_freqs, use_real=False)\n    joint_query = torch.cat([txt_query, img_query], dim=1)")))
fault("dit.text_key_norm", "dit", OUT0, ("attention.norm_missing",),
      lambda p: processor(p, 0, ("txt_key = attn.norm_added_k(txt_key)", "attn.norm_added_k(txt_key)")))
fault("dit.heads_v_rolled", "dit", OUT1, ("attention.heads", "layout.heads", "layout.rolled", "layout.parts_exchanged", "layout.reversed"),
      lambda p: processor(p, 1, ("joint_value = torch.cat([txt_value, img_value], dim=1)", "joint_value = torch.cat([txt_value, img_value], dim=1).flip(2)")))
fault("dit.rope_positions_half", "dit", "output:transformer.pos_embed.*", ("rotary.factor",),
      lambda p: forward(p.transformer.pos_embed, lambda self, old, *a, **k: tuple(torch.polar(torch.ones_like(f.real), f.angle() * 0.5) for f in old(*a, **k))))
fault("dit.rope_rows_columns", "dit", "output:transformer.pos_embed.0", ("layout.heads", "layout.permuted", "layout.packing", "layout.interleaved", "rotary.axes_exchanged"),
      lambda p: forward(p.transformer.pos_embed, lambda self, old, *a, **k: (lambda o: (o[0].reshape(6, 4, -1).transpose(0, 1).reshape(o[0].shape), o[1]))(old(*a, **k))))
fault("dit.time_theta", "dit", "output:transformer.time_text_embed.time_proj", ("timestep.theta",),
      lambda p: forward(p.transformer.time_text_embed.time_proj, lambda self, old, t: __import__("diffusers").models.embeddings.get_timestep_embedding(t, self.num_channels, flip_sin_to_cos=True, downscale_freq_shift=0, scale=1000, max_period=7000)))
fault("dit.time_added_twice", "dit", ("output:transformer.time_text_embed", f"input:{T}.0.temb"), ("affine.scale",),
      lambda p: forward(p.transformer.time_text_embed, lambda self, old, *a, **k: 2 * old(*a, **k)))
fault("dit.img_in_last_channels", "dit", "output:transformer.img_in", ("garbage.zeros",), lambda p: forward(p.transformer.img_in, lambda self, old, x: old(x) * (torch.arange(64) < 48)))
fault("dit.half_channels_negated", "dit", f"output:{T}.1.attn.to_v", ("affine.scale", "affine.channel_scale"), lambda p: forward(block(p, 1).attn.to_v, lambda self, old, x: old(x) * (1 - 2 * (torch.arange(64) >= 32).float())))
fault("dit.proj_activation", "dit", f"output:{T}.0.attn.to_q", ("activation.added",), lambda p: forward(block(p, 0).attn.to_q, lambda self, old, x: F.silu(old(x))))
fault("dit.input_norm_added", "dit", f"output:{T}.2.img_mlp.net.2", ("norm.added",), lambda p: forward(block(p, 2).img_mlp.net[2], lambda self, old, x: old(F.layer_norm(x, x.shape[-1:]))))
fault("dit.input_bf16", "dit", f"output:{T}.2.attn.to_q", ("precision.bf16",), lambda p: forward(block(p, 2).attn.to_q, lambda self, old, x: old(x.bfloat16().float())))
fault("dit.norm_q_bf16", "dit", f"output:{T}.0.attn.norm_q", ("precision.bf16",), lambda p: forward(block(p, 0).attn.norm_q, lambda self, old, x: old(x.bfloat16().float())))
fault("dit.tokens_stale", "dit", f"output:{T}.1.1", ("stage.replaced", "residual.branch_missing"), lambda p: code(block(p, 1), "forward", ("hidden_states = hidden_states + img_gate2 * img_mlp_output", "hidden_states = torch.cat([hidden_states[:, :8], (hidden_states + img_gate2 * img_mlp_output)[:, 8:]], 1)")))
# VAE
fault("vae.norm_groups", "vae", f"output:{D}.mid_block.resnets.0.norm1", ("norm.axis", "norm.kind"), lambda p: forward(p.vae.decoder.mid_block.resnets[0].norm1, lambda self, old, x: F.normalize(x.unflatten(1, (4, -1)), dim=2).flatten(1, 2) * (x.shape[1] // 4) ** 0.5 * self.gamma))
fault("vae.norm_space", "vae", f"output:{D}.up_blocks.0.resnets.0.norm2", ("norm.axis",), lambda p: forward(up(p, 0, 0).norm2, lambda self, old, x: x * torch.rsqrt(x.pow(2).mean((-1, -2), keepdim=True)) * self.gamma))
fault("vae.kernel_channels_last", "vae", f"output:{D}.up_blocks.0.upsamplers.0.resample.1", ("convolution.kernel_axes",), lambda p: weights(p.vae.decoder.up_blocks[0].upsamplers[0].resample[1], lambda w: w.update(weight=w["weight"].permute(0, 2, 3, 1).contiguous().reshape(w["weight"].shape))))
fault("vae.conv_scaled", "vae", f"output:{D}.conv_in", ("convolution.weight_scaled",), lambda p: weights(p.vae.decoder.conv_in, lambda w: w.update(weight=w["weight"] * 0.5)))
fault("vae.conv_rows", "vae", f"output:{D}.up_blocks.1.resnets.1.conv1", ("layout.reversed", "layout.parts_exchanged", "layout.permuted"), lambda p: weights(up(p, 1, 1).conv1, lambda w: w.update(weight=w["weight"].flip(0))))
fault("vae.conv_bias_other", "vae", f"output:{D}.up_blocks.1.resnets.0.conv1", ("convolution.different_bias", "affine.channel_offset"), lambda p: weights(up(p, 1, 0).conv1, lambda w: w.update(bias=w["bias"].flip(0))))
fault("vae.shortcut_missing", "vae", (f"output:{D}.up_blocks.1.resnets.0", f"output:{D}.up_blocks.1.resnets.0.conv_shortcut"), ("stage.replaced", "residual.other_input", "residual.branch_missing", "residual.missing", "residual.branch_missing"), lambda p: code(up(p, 1, 0), "forward", ("return x + h", "return x")))
fault("vae.tile_border", "vae", f"output:{D}.conv_in", ("garbage.zeros",), lambda p: forward(p.vae.decoder.conv_in, lambda self, old, x, *a: F.pad(old(x, *a)[..., 1:-1, 1:-1], (1, 1, 1, 1))))
# scheduler, pipeline
fault("scheduler.heun", "scheduler", "checkpoint:latents", ("scheduler.formula",), lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "self._v = getattr(self, '_v', None) if self.step_index else None\n        prev_sample = sample + dt * (model_output if self._v is None else 1.5 * model_output - 0.5 * self._v)\n        self._v = model_output")))
fault("scheduler.noise", "scheduler", "checkpoint:latents", ("scheduler.noise", "scheduler.formula"), lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "prev_sample = sample + dt * model_output + 0.1 * torch.randn(sample.shape, generator=torch.Generator().manual_seed(3))")))
fault("scheduler.mu", "scheduler", ("checkpoint:latents", "input:transformer.timestep"), ("scheduler.sigmas",), lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = self.time_shift(mu + 1, 1.0, sigmas)")))
fault("scheduler.sigma_start", "scheduler", ("checkpoint:latents", "input:transformer.timestep"), ("scheduler.sigmas", "timestep.scale", "timestep.offset"), lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = self.time_shift(mu, 1.0, sigmas * 0.9 + 0.02)")))
fault("pipeline.cfg_channel_norm", "pipeline", "checkpoint:noise_pred", ("guidance.rescale",), CALL(("cond_norm = torch.norm(noise_pred, dim=-1, keepdim=True)", "cond_norm = torch.norm(noise_pred, dim=1, keepdim=True)"), ("noise_norm = torch.norm(comb_pred, dim=-1, keepdim=True)", "noise_norm = torch.norm(comb_pred, dim=1, keepdim=True)")))
fault("pipeline.cfg_global_norm", "pipeline", "checkpoint:noise_pred", ("guidance.rescale",), CALL(("noise_pred = comb_pred * (cond_norm / noise_norm)", "noise_pred = comb_pred * (noise_pred.norm() / comb_pred.norm())")))
fault("pipeline.cfg_from_cond", "pipeline", "checkpoint:noise_pred", ("guidance.scale",), CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (", "comb_pred = noise_pred + true_cfg_scale * (")))
fault("pipeline.timestep_half", "pipeline", "input:transformer.timestep", ("timestep.scale",), CALL(("timestep=timestep / 1000", "timestep=timestep / 2000")))
fault("pipeline.unpack_both", "pipeline", "checkpoint:latents_denormalized", ("layout.packing",), lambda p: static(p, "_unpack_latents", ("channels // 4, 2, 2)", "2, 2, channels // 4)"), ("permute(0, 3, 1, 4, 2, 5)", "permute(0, 5, 1, 3, 2, 4)")))
fault("pipeline.image_not_shifted", "pipeline", "checkpoint:image", ("affine.scale_offset", "affine.offset", "affine.scale"), lambda p: attribute(type(p.image_processor), "denormalize", staticmethod(lambda x: x.clamp(0, 1))))
fault("pipeline.latents_other_step", "pipeline", "input:transformer.hidden_states", ("capture.other_hit", "stage.replaced"), CALL(("neg_noise_pred = self.transformer(\n                        hidden_states=latents,", "neg_noise_pred = self.transformer(\n                        hidden_states=latents,"), ("self._current_timestep = t", "self._current_timestep = t; older = latents if i == 0 else older"), ("hidden_states=latents,", "hidden_states=older,")))
# weights
fault("weights.half_of_other", "weights", f"output:{T}.1.attn.to_q", ("linear.other_weight",), lambda p: weights(block(p, 1).attn, lambda w: w.update({"to_q.weight": torch.cat([w["to_q.weight"][:32], w["to_k.weight"][32:]]), "to_q.bias": torch.cat([w["to_q.bias"][:32], w["to_k.bias"][32:]])})))
fault("weights.scaled", "weights", f"output:{T}.0.img_mlp.net.0.proj", ("linear.weight_scaled",), lambda p: weights(block(p, 0).img_mlp.net[0].proj, lambda w: w.update(weight=w["weight"] * 0.7)))
fault("weights.row_scales", "weights", f"output:{T}.2.attn.to_k", ("linear.weight_row_scale", "linear.weight_quantised", "linear.different_weight"), lambda p: weights(block(p, 2).attn.to_k, lambda w: w.update(weight=w["weight"] * torch.linspace(0.5, 1.5, 64)[:, None])))
fault("weights.group_scales", "weights", f"output:{T}.1.img_mlp.net.2", ("linear.weight_quantised", "linear.different_weight"), lambda p: weights(block(p, 1).img_mlp.net[2], lambda w: w.update(weight=(w["weight"].reshape(-1, 32) * torch.linspace(0.5, 1.5, w["weight"].numel() // 32).roll(3)[:, None]).reshape(w["weight"].shape))))
fault("weights.lora", "weights", f"output:{T}.0.attn.to_v", ("linear.different_weight",), lambda p: weights(block(p, 0).attn.to_v, lambda w: w.update(weight=w["weight"] + 0.1 * torch.randn(64, 4, generator=torch.Generator().manual_seed(2)) @ torch.randn(4, 64, generator=torch.Generator().manual_seed(4)))))
fault("weights.input_interleaved", "weights", f"output:{T}.1.attn.to_out.0", ("linear.input_parts_exchanged",), lambda p: weights(block(p, 1).attn.to_out[0], lambda w: w.update(weight=w["weight"].reshape(64, 2, 32).transpose(1, 2).reshape(64, 64))))
fault("weights.input_reversed_text", "weights", f"output:{E}.1.mlp.down_proj", ("linear.input_parts_exchanged",), lambda p: weights(layer(p, 1).mlp.down_proj, lambda w: w.update(weight=w["weight"].flip(1))))
fault("weights.rows_rolled_not_bias", "weights", f"output:{T}.0.attn.to_k", ("layout.rolled", "layout.parts_exchanged"), lambda p: weights(block(p, 0).attn.to_k, lambda w: w.update(weight=w["weight"].roll(8, 0))))
# capture
fault("capture.head_zero", "capture", f"output:{T}.1.attn.norm_q", ("garbage.zeros",), change=at(f"{T}.1.attn.norm_q", lambda x: torch.cat([x[:, :, :1], x[:, :, 1:] * 0], 2)))
fault("capture.abs", "capture", f"output:{T}.0.attn.to_k", ("elementwise.added",), change=at(f"{T}.0.attn.to_k", lambda x: x.abs()))
fault("capture.every_other_swapped", "capture", f"output:{T}.2.attn.to_v", ("layout.permuted", "layout.interleaved", "layout.reversed"), change=at(f"{T}.2.attn.to_v", lambda x: x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)))
fault("capture.unknown", "capture", f"output:{T}.0.attn.to_k", (), change=at(f"{T}.0.attn.to_k", lambda x: x + torch.randn(x.shape, generator=torch.Generator().manual_seed(11))))
