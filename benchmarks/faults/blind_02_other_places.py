"""Faults of the suite's kinds in other places. Written after the suite's rules and run once before anything was changed for it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

import suite_01_every_stage as suite
from suite_01_every_stage import CALL, D, E, OUT0, OUT1, T, at, block, layer, processor, scheduler, up
from places import faults_of
from planting import attribute, code, forward, weights

FAULTS: list = []
fault = faults_of(FAULTS)


# text encoder
fault("text.v_bias_missing", "text encoder", f"output:{E}.0.self_attn.v_proj", "linear.bias_missing",
      lambda p: forward(layer(p, 0).self_attn.v_proj, lambda self, old, x: F.linear(x, self.weight)))
fault("text.embedding_scaled", "text encoder", ("output:text_encoder.model.embed_tokens",), "affine.scale",
      lambda p: forward(p.text_encoder.model.language_model.embed_tokens, lambda self, old, x: old(x) * 8.0))
fault("text.positions_from_1", "text encoder", "output:text_encoder.model.rotary_emb.*", ("rotary.offset", "layout.shifted"),
      lambda p: forward(p.text_encoder.model.language_model.rotary_emb, lambda self, old, x, position_ids: old(x, position_ids + 1)))
fault("text.scale_of_width", "text encoder", f"input:{E}.1.self_attn.o_proj", "attention.scale",
      lambda p: attribute(layer(p, 1).self_attn, "scaling", 64**-0.5))
fault("text.mlp_residual_early", "text encoder", (f"output:{E}.0", f"input:{E}.1.input_layernorm", f"input:{E}.1.hidden_states", f"input:{E}.1*"), ("residual.other_input",),
      lambda p: code(layer(p, 0), "forward", ("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states", "residual = hidden_states\n    hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states")))
fault("text.relu", "text encoder", f"output:{E}.1.mlp.act_fn", ("activation.kind", "precision.saturated"),
      lambda p: forward(layer(p, 1).mlp.act_fn, lambda self, old, x: F.relu(x)))
# diffusion transformer
fault("dit.text_shift_missing", "dit", f"input:{T}.1.attn.encoder_hidden_states", "modulate.shift_missing",
      lambda p: code(block(p, 1), "forward", ("txt_modulated, txt_gate1 = self._modulate(txt_normed, txt_mod1)", "txt_modulated, txt_gate1 = self._modulate(txt_normed, txt_mod1)\n    txt_modulated = txt_normed * (1 + txt_mod1.chunk(3, -1)[1].unsqueeze(1))")))
fault("dit.gate_tanh", "dit", f"input:{T}.2.img_norm2", ("gate.form", "modulate.form"),
      lambda p: code(block(p, 2), "forward", ("hidden_states + img_gate1 * img_attn", "hidden_states + img_gate1.tanh() * img_attn")))
fault("dit.norm2_eps", "dit", f"output:{T}.2.img_norm2", "norm.eps", lambda p: attribute(block(p, 2).img_norm2, "eps", 1e-2))
fault("dit.bias_doubled", "dit", f"output:{T}.0.attn.to_out.0", "linear.bias_doubled",
      lambda p: forward(block(p, 0).attn.to_out[0], lambda self, old, x: old(x) + self.bias))
fault("dit.scale_1_over_d", "dit", OUT0, "attention.scale", lambda p: processor(p, 0, ("dropout_p=0.0,", "dropout_p=0.0,\n        scale=1 / 32,")))
fault("dit.rope_on_v", "dit", OUT1, "rotary.on_values",
      lambda p: processor(p, 1, ("txt_key = apply_rotary_emb_qwen(txt_key, txt_freqs, use_real=False)", "txt_key = apply_rotary_emb_qwen(txt_key, txt_freqs, use_real=False)\n        img_value = apply_rotary_emb_qwen(img_value, img_freqs, use_real=False)\n        txt_value = apply_rotary_emb_qwen(txt_value, txt_freqs, use_real=False)")))
fault("dit.image_alone", "dit", OUT1, ("attention.streams",),
      lambda p: processor(p, 1, ("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "img_only = dispatch_attention_fn(img_query, img_key, img_value)\n    txt_only = dispatch_attention_fn(txt_query, txt_key, txt_value)\n    joint_hidden_states = torch.cat([txt_only, img_only], 1).flatten(2, 3)")))
fault("dit.time_gelu", "dit", "output:transformer.time_text_embed.timestep_embedder.act", "activation.kind",
      lambda p: forward(p.transformer.time_text_embed.timestep_embedder.act, lambda self, old, x: F.gelu(x, approximate="tanh")))
fault("dit.mod_wrong_stream", "dit", f"input:{T}.0.attn.hidden_states", ("modulate.other_part",),
      lambda p: code(block(p, 0), "forward", ("self._modulate(img_normed, img_mod1, modulate_index)", "self._modulate(img_normed, txt_mod1, modulate_index)")))
fault("dit.f16_output", "dit", f"output:{T}.0.img_mlp.net.2", ("precision.f16",),
      lambda p: forward(block(p, 0).img_mlp.net[2], lambda self, old, x: old(x).half().float()))
fault("dit.one_token_zero", "dit", f"output:{T}.1.attn.to_q", ("garbage.zeros",), lambda p: forward(block(p, 1).attn.to_q, lambda self, old, x: old(x) * (torch.arange(x.shape[1]) != 3)[None, :, None]))
# VAE
fault("vae.pad_left", "vae", f"output:{D}.up_blocks.2.resnets.0.conv1", "convolution.padding",
      lambda p: code(up(p, 2, 0).conv1, "forward", ("x = F.pad(x, padding)", "x = F.pad(x, [2, 0, 2, 0] + padding[4:])")))
fault("vae.conv_transposed", "vae", f"output:{D}.mid_block.resnets.0.conv1", "convolution.transposed_weight",
      lambda p: weights(p.vae.decoder.mid_block.resnets[0].conv1, lambda w: w.update(weight=w["weight"].transpose(0, 1))))
fault("vae.residual_doubled", "vae", f"output:{D}.up_blocks.3.resnets.0", ("residual.factor",),
      lambda p: code(up(p, 3, 0), "forward", ("return x + h", "return x + 2 * h")))
fault("vae.norm_eps", "vae", f"output:{D}.norm_out", ("norm.eps",),
      lambda p: forward(p.vae.decoder.norm_out, lambda self, old, x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-2) * self.gamma))
fault("vae.kernel_rotated", "vae", f"output:{D}.up_blocks.1.resnets.2.conv2", "convolution.kernel_axes",
      lambda p: weights(up(p, 1, 2).conv2, lambda w: w.update(weight=w["weight"].transpose(-1, -2))))
fault("vae.post_quant_skipped", "vae", "output:vae.post_quant_conv", ("stage.replaced",),
      lambda p: forward(p.vae.post_quant_conv, lambda self, old, x: x))
# scheduler and pipeline
fault("scheduler.x0_formula", "scheduler", "checkpoint:latents", ("scheduler.sigmas", "scheduler.dt", "scheduler.formula"),
      lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "prev_sample = sample - sigma * model_output")))
fault("pipeline.no_guidance", "pipeline", "checkpoint:noise_pred", ("guidance.scale", "stage.replaced", "guidance.rescale"),
      CALL(("noise_pred = comb_pred * (cond_norm / noise_norm)", "pass")))
fault("pipeline.uncond_is_cond", "pipeline", "input:transformer.encoder_hidden_states", ("stage.replaced", "capture.other_stage", "capture.other_hit", "input.other"),
      CALL(("encoder_hidden_states=negative_prompt_embeds", "encoder_hidden_states=prompt_embeds[:, :negative_prompt_embeds.shape[1]]")))
fault("pipeline.mean_std_exchanged", "pipeline", "checkpoint:latents_denormalized", "latents.mean_std_exchanged",
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents * latents_mean + 1 / latents_std")))
fault("pipeline.timestep_inverted", "pipeline", "input:transformer.timestep", "timestep.inverted", CALL(("timestep=timestep / 1000", "timestep=1 - timestep / 1000")))
fault("pipeline.latents_f16", "pipeline", ("checkpoint:latents",), "precision.f16",
      lambda p: scheduler(p, "step", ("prev_sample = prev_sample.to(model_output.dtype)", "prev_sample = prev_sample.half().float()")))
fault("pipeline.latents_transposed", "pipeline", "checkpoint:latents_denormalized", ("layout.packing", "layout.strided", "layout.axes"),
      CALL(("latents = latents.to(self.vae.dtype)", "latents = latents.transpose(-1, -2).reshape(latents.shape)")))
# weights
fault("weights.heads_reversed", "weights", f"output:{T}.1.attn.to_q", ("layout.parts_exchanged", "layout.reversed"),
      lambda p: weights(block(p, 1).attn.to_q, lambda w: w.update({n: torch.cat(v.chunk(2)[::-1]) for n, v in w.items()})))
fault("weights.bias_of_other", "weights", f"output:{T}.2.attn.to_k", ("linear.other_bias",),
      lambda p: weights(block(p, 2).attn, lambda w: w.update({"to_k.bias": w["to_v.bias"].clone()})))
fault("weights.q8", "weights", f"output:{T}.0.txt_mlp.net.0.proj", ("linear.weight_quantised",),
      lambda p: weights(block(p, 0).txt_mlp.net[0].proj, lambda w: w.update(weight=suite.quantise(w["weight"], 8, 64))))
fault("weights.text_other_layer", "weights", f"output:{E}.0.mlp.up_proj", ("linear.other_weight",),
      lambda p: weights(layer(p, 0).mlp.up_proj, lambda w: w.update(weight=layer(p, 1).mlp.up_proj.weight.detach().clone())))
fault("weights.zero", "weights", f"output:{T}.2.img_mlp.net.2", ("garbage.constant", "garbage.zeros", "linear.zero_weight", "layout.repeated"),
      lambda p: weights(block(p, 2).img_mlp.net[2], lambda w: w.update(weight=w["weight"] * 0)))
# capture
fault("capture.tokens_reversed", "capture", f"output:{T}.0.attn.to_v", ("layout.reversed",), change=at(f"{T}.0.attn.to_v", lambda x: x.flip(1)))
fault("capture.bf16", "capture", f"output:{T}.2.img_norm2", ("precision.bf16",), change=at(f"{T}.2.img_norm2", lambda x: x.bfloat16().float()))
fault("capture.last_tokens", "capture", f"output:{T}.1.img_norm1", (), kind="shape", change=at(f"{T}.1.img_norm1", lambda x: x[:, -5:]))
fault("capture.rolled", "capture", f"output:{T}.2.attn.to_k", ("layout.rolled",), change=at(f"{T}.2.attn.to_k", lambda x: x.roll(1, 1)))
