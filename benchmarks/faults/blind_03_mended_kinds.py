"""The kinds that blind_02 missed, elsewhere: written after the rules had been mended for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import suite_01_every_stage as suite
from suite_01_every_stage import CALL, D, E, OUT0, T, block, layer, scheduler, up
from places import faults_of
from planting import attribute, code, forward, weights

FAULTS: list = []
fault = faults_of(FAULTS)


# text encoder
fault("text.o_proj_transposed", "text encoder", f"output:{E}.1.self_attn.o_proj", "linear.transposed_weight",
      lambda p: weights(layer(p, 1).self_attn.o_proj, lambda w: w.update(weight=w["weight"].T)))
fault("text.norm_twice", "text encoder", f"output:{E}.0.input_layernorm", "norm.twice",
      lambda p: forward(layer(p, 0).input_layernorm, lambda self, old, x: old(old(x))))
fault("text.k_bias_of_q", "text encoder", f"output:{E}.0.self_attn.k_proj", "linear.different_bias",
      lambda p: weights(layer(p, 0).self_attn.k_proj, lambda w: w.update(bias=w["bias"].flip(0))))
fault("text.up_doubled", "text encoder", f"output:{E}.1.mlp.up_proj", "affine.scale",
      lambda p: forward(layer(p, 1).mlp.up_proj, lambda self, old, x: 2 * old(x)))
fault("text.residual_sign", "text encoder", f"input:{E}.0.post_attention_layernorm", "residual.sign",
      lambda p: code(layer(p, 0), "forward", ("hidden_states = residual + hidden_states\n\n    # Fully", "hidden_states = residual - hidden_states\n\n    # Fully")))
# diffusion transformer
fault("dit.img_in_bias", "dit", "output:transformer.img_in", "linear.bias_missing",
      lambda p: forward(p.transformer.img_in, lambda self, old, x: F.linear(x, self.weight)))
fault("dit.proj_out_reversed", "dit", ("output:transformer.proj_out", "checkpoint:noise_pred"), ("layout.reversed", "layout.parts_exchanged"),
      lambda p: forward(p.transformer.proj_out, lambda self, old, x: old(x).flip(-1)))
fault("dit.gates_exchanged", "dit", f"input:{T}.1.img_norm2", ("gate.other_part", "modulate.other_part"),
      lambda p: code(block(p, 1), "forward", ("hidden_states + img_gate1 * img_attn", "hidden_states + txt_gate1 * img_attn")))
fault("dit.residual_sign", "dit", f"input:{T}.0.txt_norm2", "residual.sign",
      lambda p: code(block(p, 0), "forward", ("encoder_hidden_states + txt_gate1 * txt_attn", "encoder_hidden_states - txt_gate1 * txt_attn")))
fault("dit.mod_gelu", "dit", f"output:{T}.2.txt_mod.0", "activation.kind", lambda p: forward(block(p, 2).txt_mod[0], lambda self, old, x: F.gelu(x)))
fault("dit.k_doubled", "dit", f"output:{T}.1.attn.norm_k", ("affine.scale", "norm.factor"),
      lambda p: forward(block(p, 1).attn.norm_k, lambda self, old, x: 2 * old(x)))
fault("dit.heads_reversed", "dit", OUT0, ("layout.heads", "layout.parts_exchanged", "layout.reversed"),
      lambda p: suite.processor(p, 0, ("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = joint_hidden_states.flip(2).flatten(2, 3)")))
fault("dit.mlp_residual_missing", "dit", (f"output:{T}.1.1", f"input:{T}.2.*"), ("residual.missing",),
      lambda p: code(block(p, 1), "forward", ("hidden_states = hidden_states + img_gate2 * img_mlp_output", "hidden_states = img_gate2 * img_mlp_output")))
fault("dit.text_truncated", "dit", (f"input:{T}.0.encoder_hidden_states", "output:transformer.txt_in", "output:transformer.txt_norm", "input:transformer.txt_norm", "input:transformer.encoder_hidden_states", "input:transformer.*"), (), kind="shape",
      plant=CALL(("encoder_hidden_states=prompt_embeds,", "encoder_hidden_states=prompt_embeds[:, :-2],"), ("encoder_hidden_states_mask=prompt_embeds_mask,", "encoder_hidden_states_mask=None,")))
fault("dit.norm_eps_large", "dit", f"output:{T}.0.txt_norm1", "norm.eps", lambda p: attribute(block(p, 0).txt_norm1, "eps", 0.1))
# VAE
fault("vae.conv_out_bias", "vae", f"output:{D}.conv_out", "convolution.bias_missing",
      lambda p: weights(p.vae.decoder.conv_out, lambda w: w.update(bias=w["bias"] * 0)))
fault("vae.silu_missing", "vae", f"output:{D}.nonlinearity", ("activation.missing", "stage.replaced"), lambda p: forward(p.vae.decoder.nonlinearity, lambda self, old, x: x))
fault("vae.gamma_missing", "vae", f"output:{D}.up_blocks.0.resnets.1.norm2", ("norm.weight_missing",),
      lambda p: weights(up(p, 0, 1).norm2, lambda w: w.update(gamma=torch.ones_like(w["gamma"]))))
fault("vae.channels_reversed", "vae", f"output:{D}.conv_in", ("layout.reversed",), lambda p: forward(p.vae.decoder.conv_in, lambda self, old, x, *a: old(x, *a).flip(1)))
# scheduler, pipeline
fault("scheduler.dt_negative", "scheduler", "checkpoint:latents", ("scheduler.sign", "residual.sign"),
      lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "prev_sample = sample - dt * model_output")))
fault("scheduler.dt_half", "scheduler", "checkpoint:latents", ("scheduler.dt", "scheduler.scale", "scheduler.sigmas", "residual.factor"),
      lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "prev_sample = sample + 0.5 * dt * model_output")))
fault("pipeline.mean_sign", "pipeline", "checkpoint:latents_denormalized", ("latents.mean_sign",),
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents / latents_std - latents_mean")))
fault("pipeline.timestep_next", "pipeline", "input:transformer.timestep", ("timestep.step_index",),
      CALL(("timestep=timestep / 1000", "timestep=timesteps[min(i + 1, len(timesteps) - 1)].expand(latents.shape[0]) / 1000")))
fault("pipeline.latents_scaled", "pipeline", ("input:transformer.hidden_states",), ("affine.scale",),
      CALL(("hidden_states=latents,", "hidden_states=latents * 0.5,")))
# weights
fault("weights.norm_q_ones", "weights", f"output:{T}.2.attn.norm_q", ("norm.weight_missing",),
      lambda p: weights(block(p, 2).attn.norm_q, lambda w: w.update(weight=torch.ones_like(w["weight"]))))
fault("weights.layer0_repeated", "weights", f"output:{T}.1.img_mlp.net.0.proj", ("linear.other_weight",),
      lambda p: weights(block(p, 1).img_mlp.net[0].proj, lambda w: w.update({k: v.detach().clone() for k, v in block(p, 0).img_mlp.net[0].proj.named_parameters()})))
fault("weights.fp8", "weights", f"output:{T}.0.attn.to_k", ("linear.weight_rounded", "linear.weight_quantised"),
      lambda p: weights(block(p, 0).attn.to_k, lambda w: w.update(weight=w["weight"].to(torch.float8_e4m3fn).float())))
fault("weights.reinitialised", "weights", f"output:{T}.2.attn.to_v", ("linear.random_weight", "linear.different_weight"),
      lambda p: weights(block(p, 2).attn.to_v, lambda w: w.update(weight=torch.randn(w["weight"].shape, generator=torch.Generator().manual_seed(1)) * w["weight"].std())))
