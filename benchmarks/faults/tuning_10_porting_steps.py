"""Steps in another order, low precision inside a stage, shortcuts from elsewhere, noise drawn otherwise, quantised weights read
otherwise: written down before it was tried whether they are found. For tuning, no measure."""

from __future__ import annotations

import inspect
import types

import torch
import torch.nn.functional as F

from suite_01_every_stage import CALL, D, E, T, block, layer, scheduler, up
from places import attended, class_method, faults_of, joint_attention, result
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 5 heads of 24; 3 by 4 image tokens; in the text encoder 6 heads on 3 key heads.
ONE = World(
    "porting-one",
    {"seed": 71, "layers": 3, "heads": 4, "head_dim": 32, "text_hidden": 96, "text_heads": 6, "text_kv_heads": 3, "text_layers": 3,
     "text_intermediate": 160, "random_latent_stats": True},
    {"prompt": "A Lighthouse on the Cliffs of Moher, oil on canvas", "negative": "blurred, text", "width": 64, "height": 96, "steps": 3,
     "guidance": 3.5, "seed": 11},
)  # fmt: skip
TWO = World(
    "porting-two",
    {"seed": 72, "layers": 2, "heads": 2, "head_dim": 32, "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["a harbour at night with two boats", "fog"], "negative": ["bad", "grain, frame, stamp"], "width": 96, "height": 64,
     "steps": 2, "guidance": 5.0, "seed": 12},
)  # fmt: skip
fault = faults_of(FAULTS, ONE)
TEXT_ROPE = "output:text_encoder.model.rotary_emb.*"
IDS = ("input:text_encoder.*", "input:text_encoder.model.embed_tokens", "output:text_encoder.model.embed_tokens")
NOISE = "checkpoint:initial_latents_packed"
DRAW = "latents = randn_tensor(shape, generator=generator, device=device, dtype=dtype)"
PROMPT = "template.format(e) for e in prompt"
GATED = "self.act_fn(self.gate_proj(x)) * self.up_proj(x)"


def drawn(source):
    return lambda p: class_method(p, "prepare_latents", (DRAW, source))


CACHED = ("_get_device_freqs", "_compute_video_freqs")  # a table that was changed must not be kept, nor an old one used


def rotary(p):
    return p.text_encoder.model.language_model.rotary_emb


def table(p, change):
    """Every table of angles of the image transformer made by a changed rope_params."""
    pos = p.transformer.pos_embed

    def rebuilt(index):
        return torch.cat([change(index, d) for d in pos.axes_dim], 1)

    class Both:
        def __enter__(self):
            self.parts = [attribute(pos, "pos_freqs", rebuilt(torch.arange(4096))), attribute(pos, "neg_freqs", rebuilt(-torch.arange(4096).flip(0) - 1))]
            self.parts += [attribute(pos, name, types.MethodType(inspect.unwrap(getattr(type(pos), name)), pos)) for name in CACHED]
            for part in self.parts:
                part.__enter__()

        def __exit__(self, *error):
            for part in self.parts:
                part.__exit__(*error)

    return Both()


def frequencies(d):
    return 1 / torch.pow(10000, torch.arange(0, d, 2).float() / d)


def polar(angles):
    return torch.polar(torch.ones_like(angles), angles)


def affine(w, bits, group):
    """(whole numbers from 0 up, steps, lowest values), [rows * groups, group or 1]."""
    x = w.reshape(-1, group)
    low, high = x.min(1, keepdim=True).values, x.max(1, keepdim=True).values
    step = (high - low) / (2**bits - 1)
    return ((x - low) / step).round(), step, low


def quantised(change, bits=4, group=32):
    """change(whole numbers, steps, lowest) → weight."""
    return lambda w: w.update(weight=change(*affine(w["weight"], bits, group)).reshape(w["weight"].shape))


def attend(q, k, v, mask, scaling, weigh):
    repeat = lambda x: x.repeat_interleave(q.shape[1] // x.shape[1], 1)  # noqa: E731
    scores = q @ repeat(k).transpose(2, 3)
    hidden = torch.full(scores.shape[-2:], -torch.inf).triu(1)
    return (weigh(scores, hidden, scaling) @ repeat(v)).transpose(1, 2).contiguous(), None


def attention(i, weigh):
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

    line = "attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )"

    def plant(p):
        qwen.planted_attention = lambda module, q, k, v, mask, scaling, **_: attend(q, k, v, mask, scaling, weigh)
        return code(layer(p, i).self_attn, "forward", (line, "attention_interface = planted_attention"))

    return plant


# --- tokens -----------------------------------------------------------------------------------------------------------
fault("tokens.template_newline", "tokenizer", IDS, (), lambda p: code(p, "_get_qwen_prompt_embeds", (PROMPT, "template.format(e) + chr(10) for e in prompt")), kind="shape")
fault("tokens.upper_case", "tokenizer", IDS, "input.other", lambda p: code(p, "_get_qwen_prompt_embeds", (PROMPT, "template.format(e.swapcase()) for e in prompt")))
fault("tokens.padded_left", "tokenizer", IDS, ("input.other", "layout.rolled", "layout.shifted"), lambda p: attribute(p.tokenizer, "padding_side", "left"), world=TWO)
fault("tokens.one_letter_missing", "tokenizer", IDS, "input.other", lambda p: code(p, "_get_qwen_prompt_embeds", (PROMPT, "template.format(e[:-1]) for e in prompt")))
fault("tokens.mask_of_ones", "tokenizer", IDS, ("input.other", "garbage.constant", "attention.mask_missing"), world=TWO,
      plant=lambda p: code(p, "_get_qwen_prompt_embeds", ("attention_mask=txt_tokens.attention_mask,", "attention_mask=torch.ones_like(txt_tokens.attention_mask),")))
# --- low precision inside ---------------------------------------------------------------------------------------------
fault("precision.text_frequencies_bf16", "text encoder", TEXT_ROPE, "precision.bf16", lambda p: attribute(rotary(p), "inv_freq", rotary(p).inv_freq.bfloat16().float()))
fault("precision.text_angles_f16", "text encoder", TEXT_ROPE, "precision.f16",
      lambda p: code(rotary(p), "forward", ("cos = freqs.cos()", "freqs = freqs.half().float()\n    cos = freqs.cos()")))
fault("precision.image_angles_bf16", "dit", "output:transformer.pos_embed.*", "precision.bf16",
      lambda p: table(p, lambda index, d: polar(torch.outer(index.float(), frequencies(d)).bfloat16().float())))
fault("precision.image_frequencies_f16", "dit", "output:transformer.pos_embed.*", "precision.f16",
      lambda p: table(p, lambda index, d: polar(torch.outer(index.float(), frequencies(d).half().float()))))
fault("precision.norm_squares_bf16", "text encoder", f"output:{E}.1.input_layernorm", "precision.bf16",
      lambda p: code(layer(p, 1).input_layernorm, "forward", ("hidden_states.pow(2).mean(-1, keepdim=True)", "hidden_states.pow(2).mean(-1, keepdim=True).bfloat16().float()")))
fault("precision.norm_factor_f16", "text encoder", f"output:{E}.0.post_attention_layernorm", "precision.f16",
      lambda p: code(layer(p, 0).post_attention_layernorm, "forward", ("torch.rsqrt(variance + self.variance_epsilon)", "torch.rsqrt(variance + self.variance_epsilon).half().float()")))
fault("precision.scores_bf16", "text encoder", f"input:{E}.1.self_attn.o_proj", "precision.bf16",
      attention(1, lambda s, hidden, scale: ((s * scale).bfloat16().float() + hidden).softmax(-1)))
fault("precision.softmax_f16", "text encoder", f"input:{E}.2.self_attn.o_proj", "precision.f16",
      attention(2, lambda s, hidden, scale: (s * scale + hidden).softmax(-1).half().float()))
fault("precision.time_features_bf16", "dit", "output:transformer.time_text_embed.time_proj", "precision.bf16",
      lambda p: forward(p.transformer.time_text_embed.time_proj, lambda self, old, t: (lambda a: torch.cat([a.cos(), a.sin()], -1))(
          (1000 * t[:, None].bfloat16() * torch.exp(-9.210340371976184 * torch.arange(128) / 128).bfloat16()).float())))
fault("precision.scale_bf16", "dit", f"input:{T}.1.attn.hidden_states", ("precision.bf16", "modulate.form"),
      lambda p: code(block(p, 1), "_modulate", ("x * (1 + scale_result)", "x * (1 + scale_result).bfloat16().float()")))
fault("precision.guidance_bf16", "pipeline", "checkpoint:noise_pred", "precision.bf16",
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)", "comb_pred = (neg_noise_pred.bfloat16() + true_cfg_scale * (noise_pred.bfloat16() - neg_noise_pred.bfloat16())).float()")))
fault("precision.sigmas_bf16", "scheduler", ("checkpoint:latents", "input:transformer.timestep"), ("precision.bf16", "scheduler.sigmas"),
      lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = torch.from_numpy(self.time_shift(mu, 1.0, sigmas)).bfloat16().double().numpy()")))
fault("precision.step_f16", "scheduler", "checkpoint:latents", ("precision.f16", "scheduler.dt"),
      lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "prev_sample = sample + dt.half().float() * model_output")))
fault("precision.convolution_bf16", "vae", f"output:{D}.up_blocks.1.resnets.0.conv2", ("precision.bf16", "convolution.weight_rounded"),
      lambda p: weights(up(p, 1, 0).conv2, lambda w: w.update({n: v.bfloat16().float() for n, v in w.items()})))
fault("precision.convolution_input_f16", "vae", f"output:{D}.up_blocks.0.resnets.1.conv1", "precision.f16",
      lambda p: forward(up(p, 0, 1).conv1, lambda self, old, x, *a: old(x.half().float(), *a)))
# --- two steps in another order ------------------------------------------------------------------------------------------
fault("order.both_gated", "text encoder", f"input:{E}.1.mlp.down_proj", ("activation.added", "activation.kind", "elementwise.added"),
      lambda p: code(layer(p, 1).mlp, "forward", (GATED, "self.act_fn(self.gate_proj(x)) * torch.nn.functional.silu(self.up_proj(x))")))
fault("order.product_then_activation_dit", "text encoder", f"input:{E}.0.mlp.down_proj", ("activation.other_input", "elementwise.added"),
      lambda p: code(layer(p, 0).mlp, "forward", (GATED, "torch.nn.functional.silu(self.gate_proj(x) * self.up_proj(x))")))
fault("order.bias_after_activation", "dit", (f"output:{T}.1.img_mlp.net.0", f"output:{T}.1.img_mlp.net.0.*"), ("linear.bias_missing", "activation.other_input"),
      lambda p: forward(block(p, 1).img_mlp.net[0], lambda self, old, x: F.gelu(self.proj(x) - self.proj.bias, approximate="tanh") + self.proj.bias))
fault("order.activation_before_linear", "dit", (f"output:{T}.0.img_mod.1", f"input:{T}.0.img_mod.1"), ("activation.missing", "stage.replaced"),
      lambda p: forward(block(p, 0).img_mod, lambda self, old, x: F.silu(self[1](x))))
fault("order.norm_after_gate", "dit", f"input:{T}.1.img_norm2", ("gate.added", "residual.factor", "norm.added", "residual.other_input"),
      lambda p: code(block(p, 1), "forward", ("hidden_states = hidden_states + img_gate1 * img_attn_output", "hidden_states = hidden_states + img_gate1 * torch.nn.functional.layer_norm(img_attn_output, img_attn_output.shape[-1:], eps=1e-6)")))
fault("order.scale_after_softmax", "text encoder", f"input:{E}.0.self_attn.o_proj", ("attention.scale", "attention.softmax"),
      attention(0, lambda s, hidden, scale: (s + hidden).softmax(-1) * scale))
fault("order.mask_after_softmax", "text encoder", f"input:{E}.1.self_attn.o_proj", ("attention.mask", "attention.softmax", "attention.mask_missing"),
      attention(1, lambda s, hidden, scale: (s * scale).softmax(-1) * (hidden == 0)))
fault("order.residual_after_second_norm", "text encoder", (f"output:{E}.1", f"output:{E}.1.*"), ("residual.other_input",),
      lambda p: code(layer(p, 1), "forward", ("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states", "hidden_states = self.mlp(hidden_states)\n    hidden_states = self.post_attention_layernorm(residual) + hidden_states")))
fault("order.norm_then_add", "text encoder", (f"input:{E}.2.post_attention_layernorm", f"output:{E}.2.post_attention_layernorm"), ("residual.other_input", "norm.added", "residual.missing", "stage.replaced"),
      lambda p: code(layer(p, 2), "forward", ("hidden_states = residual + hidden_states\n\n", "hidden_states = residual + torch.nn.functional.rms_norm(hidden_states, hidden_states.shape[-1:], eps=1e-6)\n\n")))
fault("order.guidance_after_rescale", "pipeline", "checkpoint:noise_pred", "guidance.rescale",
      CALL(("noise_norm = torch.norm(comb_pred, dim=-1, keepdim=True)", "noise_norm = torch.norm(neg_noise_pred, dim=-1, keepdim=True)")))
fault("order.upsampled_after_convolution", "vae", (f"input:{D}.up_blocks.0.upsamplers.0.resample.*", f"output:{D}.up_blocks.0.upsamplers.0.resample.*"), ("stage.replaced", "resample.kind", "layout.repeated"), kind="shape",
      plant=lambda p: forward(p.vae.decoder.up_blocks[0].upsamplers[0].resample, lambda self, old, x: self[0](self[1](x))))
fault("order.activation_before_norm", "vae", f"input:{D}.up_blocks.1.resnets.0.norm2", ("activation.added",),
      lambda p: code(up(p, 1, 0), "forward", ("x = self.norm2(x)\n    x = self.nonlinearity(x)", "x = self.norm2(self.nonlinearity(x))")))
fault("order.weight_before_norm", "dit", f"output:{T}.1.attn.norm_k", "norm.weight_use",
      lambda p: forward(block(p, 1).attn.norm_k, lambda self, old, x: F.rms_norm(x * self.weight, x.shape[-1:], eps=self.eps)))
# --- shortcuts from elsewhere -----------------------------------------------------------------------------------------------
fault("shortcut.convolution_of_the_norm", "vae", (f"input:{D}.up_blocks.1.resnets.0.conv_shortcut", f"output:{D}.up_blocks.1.resnets.0.conv_shortcut", f"output:{D}.up_blocks.1.resnets.0"), ("stage.replaced", "norm.added", "residual.other_input"),
      lambda p: code(up(p, 1, 0), "forward", ("h = self.conv_shortcut(x)", "h = self.conv_shortcut(self.norm1(x))")))
fault("shortcut.from_the_activation", "vae", f"output:{D}.up_blocks.0.resnets.1", "residual.other_input",
      lambda p: code(up(p, 0, 1), "forward", ("x = self.nonlinearity(x)\n\n    if", "x = self.nonlinearity(x)\n    h = x if x.shape == h.shape and h is not None and not hasattr(self, '_done') else h\n\n    if")))
fault("shortcut.of_the_attention", "vae", f"output:{D}.mid_block.attentions.0", "residual.other_input",
      lambda p: code(p.vae.decoder.mid_block.attentions[0], "forward", ("x = self.norm(x)", "x = self.norm(x)\n    identity = x.unsqueeze(2)")))
fault("shortcut.text_from_modulated", "dit", (f"input:{T}.1.txt_norm2", f"output:{T}.1.txt_norm2"), "residual.other_input",
      lambda p: code(block(p, 1), "forward", ("encoder_hidden_states = encoder_hidden_states + txt_gate1", "encoder_hidden_states = txt_modulated + txt_gate1")))
fault("shortcut.block_input_for_mlp", "dit", f"output:{T}.2.*", "residual.other_input",
      lambda p: code(block(p, 2), "forward", ("img_modulated, img_gate1", "first = hidden_states\n    img_modulated, img_gate1"), ("hidden_states = hidden_states + img_gate2", "hidden_states = first + img_gate2")))
fault("shortcut.normed_for_mlp", "dit", f"output:{T}.0.*", "residual.other_input",
      lambda p: code(block(p, 0), "forward", ("hidden_states = hidden_states + img_gate2", "hidden_states = img_normed2 + img_gate2")))
# --- noise ------------------------------------------------------------------------------------------------------------------
fault("noise.width_before_height", "pipeline", NOISE, ("layout.packing", "layout.axes", "layout.permuted", "latents.other_noise"),
      drawn("latents = randn_tensor((batch_size, 1, num_channels_latents, width, height), generator=generator, device=device, dtype=dtype).transpose(3, 4).contiguous()"))
fault("noise.drawn_packed", "pipeline", NOISE, ("layout.packing", "layout.axes", "layout.permuted", "latents.other_noise"),
      lambda p: class_method(p, "prepare_latents", ("latents = self._pack_latents(latents, batch_size, num_channels_latents, height, width)", "latents = latents.reshape(batch_size, (height // 2) * (width // 2), num_channels_latents * 4)")))
fault("noise.bf16", "pipeline", NOISE, "precision.bf16", drawn(DRAW + ".bfloat16().float()"))
fault("noise.numpy", "pipeline", NOISE, "latents.other_noise", drawn("import numpy; latents = torch.from_numpy(numpy.random.RandomState(11).standard_normal(shape)).to(dtype)"))
fault("noise.uniform", "pipeline", NOISE, "latents.other_noise", drawn("latents = torch.rand(shape, generator=generator, dtype=dtype)"))
fault("noise.one_number_later", "pipeline", NOISE, ("latents.other_noise", "layout.shifted", "layout.rolled"),
      drawn("torch.rand(1, generator=generator); " + DRAW))
fault("noise.items_exchanged", "pipeline", NOISE, ("layout.reversed", "layout.parts_exchanged", "layout.rolled"), drawn(DRAW + ".flip(0)"), world=TWO)
fault("noise.one_for_all", "pipeline", NOISE, ("layout.repeated",), drawn(DRAW + "[:1].repeat(batch_size, 1, 1, 1, 1)"), world=TWO)
fault("noise.times_first_sigma", "pipeline", (NOISE, "checkpoint:*"), "affine.scale", drawn(DRAW + " * 0.8768"))
# --- quantised weights ---------------------------------------------------------------------------------------------------------
fault("quantised.nibbles_exchanged", "weights", f"output:{T}.1.attn.to_k", ("linear.weight_quantised", "linear.input_parts_exchanged", "linear.different_weight"),
      lambda p: weights(block(p, 1).attn.to_k, quantised(lambda q, s, low: q.unflatten(1, (-1, 2)).flip(-1).flatten(1) * s + low)))
fault("quantised.zero_points_of_neighbour", "weights", f"output:{T}.0.attn.to_v", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 0).attn.to_v, quantised(lambda q, s, low: q * s + low.roll(1, 0))))
fault("quantised.offset_of_8_missing", "weights", f"output:{T}.2.txt_mlp.net.0.proj", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 2).txt_mlp.net[0].proj, quantised(lambda q, s, low: (q - 8) * s)))
fault("quantised.lowest_taken_twice", "weights", f"output:{E}.1.mlp.up_proj", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(layer(p, 1).mlp.up_proj, quantised(lambda q, s, low: q * s + 2 * low)))
fault("quantised.group_of_64_for_32", "weights", f"output:{T}.0.img_mlp.net.2", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 0).img_mlp.net[2], quantised(lambda q, s, low: q * s.repeat_interleave(2, 0)[: s.shape[0]] + low.repeat_interleave(2, 0)[: s.shape[0]])))
fault("quantised.scales_only", "weights", f"output:{T}.1.attn.add_q_proj", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 1).attn.add_q_proj, quantised(lambda q, s, low: q, 8)))
fault("quantised.gate_up_interleaved", "weights", f"output:{E}.0.mlp.gate_proj", ("linear.other_weight", "linear.different_weight"),
      lambda p: weights(layer(p, 0).mlp, lambda w: (lambda both: w.update({"gate_proj.weight": both[: len(both) // 2], "up_proj.weight": both[len(both) // 2 :]}))(
          torch.stack([w["gate_proj.weight"], w["up_proj.weight"]], 1).flatten(0, 1))))
fault("weights.bias_bf16", "weights", f"output:{T}.1.img_mod.1", ("linear.different_bias", "precision.bf16"),
      lambda p: weights(block(p, 1).img_mod[1], lambda w: w.update(bias=w["bias"].bfloat16().float())))
fault("weights.layers_exchanged", "weights", f"output:{E}.1.input_layernorm", ("norm.other_weight",),
      lambda p: weights(p.text_encoder.model.language_model.layers, lambda w: w.update({n.translate({49: 50, 50: 49}) if n[0] in "12" else n: v for n, v in list(w.items())})))
# --- others ----------------------------------------------------------------------------------------------------------------------
fault("dit.block_not_run", "dit", f"output:{T}.1.*", ("stage.replaced", "residual.branch_missing", "capture.other_stage"),
      lambda p: forward(block(p, 1), lambda self, old, hidden_states, encoder_hidden_states, **_: (encoder_hidden_states, hidden_states)))
fault("dit.text_gate_of_the_image", "dit", (f"input:{T}.0.txt_norm2", f"output:{T}.0.txt_norm2"), "gate.other_part",
      lambda p: code(block(p, 0), "forward", ("encoder_hidden_states + txt_gate1", "encoder_hidden_states + img_gate1")))
fault("dit.modulation_of_the_image", "dit", f"input:{T}.2.attn.encoder_hidden_states", "modulate.other_part",
      lambda p: code(block(p, 2), "forward", ("self._modulate(txt_normed, txt_mod1)", "self._modulate(txt_normed, img_mod1)")))
fault("dit.keys_heads_innermost", "dit", attended(1), ("layout.heads", "layout.interleaved", "attention.heads"),
      lambda p: joint_attention(p, 1, *((f"{s}_key = {s}_key.unflatten(-1, (-1, head_dim))", f"{s}_key = {s}_key.unflatten(-1, (head_dim, -1)).transpose(-1, -2).contiguous()") for s in ("img", "txt"))))
fault("dit.text_mask_backwards", "dit", "input:transformer.encoder_hidden_states_mask", ("input.other", "attention.mask"), world=TWO,
      plant=CALL(("encoder_hidden_states_mask=prompt_embeds_mask,", "encoder_hidden_states_mask=prompt_embeds_mask.flip(1),")))
fault("scheduler.shift_twice", "scheduler", ("checkpoint:latents", "input:transformer.timestep"), ("scheduler.sigmas",),
      lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = self.time_shift(mu, 1.0, self.time_shift(mu, 1.0, sigmas))")))
fault("vae.latents_last_channel_first", "vae", ("input:vae.decoder.conv_in", "checkpoint:latents_denormalized", "input:vae.post_quant_conv", "output:vae.post_quant_conv"), ("convolution.input_order", "layout.rolled", "layout.permuted"),
      lambda p: forward(p.vae.post_quant_conv, lambda self, old, x: old(x.roll(1, 1))))
fault("vae.output_clamped", "vae", ("output:vae.decoder.conv_out", "output:vae.decoder"), "precision.saturated",
      lambda p: result(p.vae.decoder.conv_out, lambda y: y.clamp(-0.5, 0.5)))
