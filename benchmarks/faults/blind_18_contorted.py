"""Every hypothesis at another place and contorted: in one layer, one stream, one pass or one item alone, often with both runs in bf16,
and three times with a second fault behind the first. By an author who knew the list of hypotheses and not the rules; stages and causes
were written down before any run, and where two faults are planted they are those of the first."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from blind_11_odd_shapes import own_rotation
from suite_01_every_stage import CALL, D, E, T, at, block, interleaved, layer, rope, scheduler, static, swap, up
from places import MIDDLE, attended, denormal_bits, faults_of, joint_attention, method, middle, result, rotated, symmetric
from planting import attribute, code, forward, weights
from recorder import RECORDER
from blind_07_port_reports import all_of
from worlds import World

FAULTS: list = []
# 8 by 11 image tokens, 5 heads of 28; in the text encoder 8 heads on 2 key heads of 20.
NINE = World(
    "eighteenth-nine",
    {"seed": 181, "layers": 5, "heads": 5, "head_dim": 28, "axes": [4, 10, 14], "text_hidden": 160, "text_heads": 8, "text_kv_heads": 2,
     "text_layers": 5, "text_intermediate": 212, "vae_base": 14, "random_latent_stats": True},
    {"prompt": "nine lemons on a blue cloth, hard light from the left", "negative": "plates, people", "width": 176, "height": 128,
     "steps": 4, "guidance": 3.2, "seed": 181},
)  # fmt: skip
# Two prompts of different length, 9 by 6 image tokens, 4 heads of 52; in the text encoder 10 heads on 5 key heads of 14.
PAIR = World(
    "eighteenth-pair",
    {"seed": 182, "layers": 3, "heads": 4, "head_dim": 52, "axes": [8, 20, 24], "text_hidden": 140, "text_heads": 10, "text_kv_heads": 5,
     "text_layers": 3, "text_intermediate": 180, "vae_base": 12, "vae_dim_mult": [1, 2, 3, 3], "vae_res_blocks": 1,
     "random_latent_stats": True},
    {"prompt": ["rope", "an engine shed at dusk, steam, two men with lanterns"], "negative": ["glare, captions, hands", "mud"],
     "width": 96, "height": 144, "steps": 3, "guidance": 6.5, "seed": 182},
)  # fmt: skip
# Seven layers, seven steps of the few-step schedule, 13 by 7 image tokens, 2 heads of 68; in the text encoder 4 heads of 22 on one.
LONG = World(
    "eighteenth-long",
    {"seed": 183, "layers": 7, "heads": 2, "head_dim": 68, "axes": [12, 24, 32], "text_hidden": 88, "text_heads": 4, "text_kv_heads": 1,
     "text_layers": 6, "text_intermediate": 116, "vae_base": 10, "vae_res_blocks": 1, "text_keys": "new", "vision": False,
     "scheduler": "lightning"},
    {"prompt": "a lift shaft, seen upwards", "negative": "daylight and grass", "width": 112, "height": 208, "steps": 7, "guidance": 1.75,
     "seed": 183},
)  # fmt: skip
COARSE, COARSE_PAIR, COARSE_LONG = (world.in_precision("bf16") for world in (NINE, PAIR, LONG))
STRONG = replace(COARSE, name="eighteenth-strong", settings=NINE.settings | {"guidance": 11.0})
UNGUIDED = replace(LONG, name="eighteenth-unguided", settings=LONG.settings | {"guidance": 1.0})
fault = faults_of(FAULTS, NINE)
LATENTS, TIME, NOISE = "checkpoint:latents", "input:transformer.timestep", "checkpoint:noise_pred"
TEXT_TABLE = "output:transformer.pos_embed.1"
FARTHER = "max(height // 2, width // 2, max_vid_index)"
NEGATIVE_TIME = "timestep=timestep / 1000,\n                        guidance=guidance,\n                        encoder_hidden_states_mask=negative"


def unconditional():
    return RECORDER.tags.get("pass") == "uncond"


def keys_turn_back(q, k, cos, sin, **_):
    """Queries as they should be, keys against them."""
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return tuple(x * c + torch.cat((-b, a), -1) * t for x, t in ((q, s), (k, -s)) for a, b in (x.chunk(2, -1),))


def halves_of_axes(sizes):
    """In the part of every axis its first half turns with its second."""

    def turn(x, freqs):
        parts = zip(x.float().split(sizes, -1), freqs.split([size // 2 for size in sizes], -1))
        turned = [torch.complex(*part.chunk(2, -1)) * angles.unsqueeze(1) for part, angles in parts]
        return torch.cat([half for t in turned for half in (t.real, t.imag)], -1).type_as(x)

    return turn


def text_of_another_theta(p, theta):
    other = type(p.transformer.pos_embed)(theta=theta, axes_dim=p.transformer.pos_embed.axes_dim, scale_rope=True)
    return method(p.transformer.pos_embed, "forward", ("pos_freqs_device, _ = self._get_device_freqs(device)", "pos_freqs_device = other.pos_freqs"), other=other)


def width_before_height(p):
    frame, height, width = (size // 2 for size in p.transformer.pos_embed.axes_dim)
    columns = torch.arange(frame + height + width).split([frame, height, width])
    return torch.cat([columns[0], columns[2], columns[1]])


def text_sees_back(text, image):
    """Every text token sees the text before it and the whole image; the image sees all."""
    seen = torch.ones(text + image, text + image, dtype=torch.bool)
    seen[:text, :text] = seen[:text, :text].tril()
    return seen[None, None]


def one_token_late(y):
    return torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], 1)


def unread_from(y, token):
    y = y.clone()
    y[:, token:] = denormal_bits(y[:, token:].shape, 18).to(y.dtype)
    return y


def of_another(module, other):
    """All the weights of another module of the same kind."""
    return weights(module, lambda w: w.update({n: v.detach().clone() for n, v in other.named_parameters()}))


def as_made(module, seed):
    """The weights that a layer of this kind has before a checkpoint is read."""

    def change(w):
        bound, generator = w["weight"][0].numel() ** -0.5, torch.Generator().manual_seed(seed)
        w.update({n: (torch.rand(v.shape, generator=generator) * 2 - 1) * bound for n, v in w.items()})

    return weights(module, change)


def read_in_groups(w, bits, group, read):
    """Quantised in groups of one size; the row's steps are handed out as if the groups had another."""
    integers, step = symmetric(w, bits, group)
    steps = step.reshape(w.shape[0], -1).repeat_interleave(read, 1)[:, : w.shape[1]]
    return integers.reshape(w.shape) * steps


def view_of_the_three(i):
    """to_v is a view into [query | key | value] of every token, and the bytes after its start are taken for it."""
    seen = {}

    def change(name, role, step, tags, x):
        if role == "output" and name in (f"{T}.{i}.attn.to_{which}" for which in "qkv"):
            seen[name[-1]] = x.clone()
            if name[-1] == "v":
                return torch.cat([seen["q"], seen["k"], x], -1).flatten()[2 * x.shape[-1] :][: x.numel()].view(x.shape)
        return x

    return change


def block_before(i, name):
    """The tensor of this name is kept from block i - 1."""
    seen = {}

    def change(n, role, step, tags, x):
        if role == "output" and n == f"{T}.{i - 1}.{name}":
            seen["x"] = x.clone()
        return seen["x"] if role == "output" and n == f"{T}.{i}.{name}" else x

    return change


def keys_after_rotation(i):
    """norm_k is written down one line too late: when RoPE has turned it."""
    seen = {}

    def change(n, role, step, tags, x):
        if role == "output" and n == "transformer.pos_embed.0":
            seen["freqs"] = torch.view_as_complex(x.clone()) if not x.is_complex() else x.clone()
        if role == "output" and n == f"{T}.{i}.attn.norm_k":
            turned = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous()) * seen["freqs"].unsqueeze(1)
            return torch.view_as_real(turned).flatten(3).type_as(x)
        return x

    return change


def counting_stopped(p, last):
    """Every block after `last` has its weights."""
    blocks = p.transformer.transformer_blocks
    own = {n: v.detach().clone() for n, v in blocks[last].named_parameters()}
    return weights(blocks, lambda w: w.update({f"{i}.{n}": v for i in range(last + 1, len(blocks)) for n, v in own.items()}))


def gates_for_ups(p):
    layers = p.text_encoder.model.language_model.layers
    return weights(layers, lambda w: [swap(f"{i}.mlp.gate_proj.weight", f"{i}.mlp.up_proj.weight")(w) for i in range(len(layers))])


# --- text encoder ------------------------------------------------------------------------------------------------------
fault("text.third_layer_in_pairs", "text encoder", f"input:{E}.2.self_attn.o_proj", "rotary.style",
      lambda p: own_rotation(p, 2, interleaved), world=COARSE)
fault("text.keys_turn_back", "text encoder", f"input:{E}.4.self_attn.o_proj", "rotary.sign",
      lambda p: own_rotation(p, 4, keys_turn_back), world=LONG)
fault("text.last_scale_one_over_d", "text encoder", f"input:{E}.5.self_attn.o_proj", "attention.scale",
      lambda p: attribute(layer(p, 5).self_attn, "scaling", 1 / layer(p, 5).self_attn.head_dim), world=LONG)
fault("text.last_norm_in_whole_numbers", "text encoder", "output:text_encoder.model.norm", "precision.integer",
      lambda p: result(p.text_encoder.model.language_model.norm, lambda y: y.int().to(y.dtype)))
fault("text.last_query_bias_missing", "text encoder", f"output:{E}.2.self_attn.q_proj", ("linear.bias_missing", "affine.channel_offset"),
      lambda p: forward(layer(p, 2).self_attn.q_proj, lambda self, old, x: F.linear(x, self.weight)), world=COARSE_PAIR)
fault("text.layer_norm_before_the_mlp", "text encoder", f"output:{E}.1.post_attention_layernorm", "norm.kind",
      lambda p: forward(layer(p, 1).post_attention_layernorm, lambda self, old, x: F.layer_norm(x, x.shape[-1:], self.weight, None, self.variance_epsilon)),
      world=COARSE_PAIR)
fault("text.hard_swish", "text encoder", f"output:{E}.3.mlp.act_fn", "activation.kind",
      lambda p: forward(layer(p, 3).mlp.act_fn, lambda self, old, x: F.hardswish(x)), world=LONG)

# --- diffusion transformer: rotation and attention -----------------------------------------------------------------------
fault("dit.halves_of_every_axis", "dit", attended(3), "rotary.style",
      lambda p: joint_attention(p, 3, *((line, f"{name} = turn({name}, {name[:3]}_freqs)") for name, line in rotated("img_query", "img_key", "txt_query", "txt_key")),
                                turn=halves_of_axes([4, 10, 14])))
fault("dit.text_of_another_theta", "dit", TEXT_TABLE, "rotary.theta", lambda p: text_of_another_theta(p, 2000), world=LONG)
fault("dit.text_after_the_rows", "dit", TEXT_TABLE, ("rotary.offset", "rotary.positions"),  # from 4 on instead of 5
      lambda p: rope(p, "forward", (FARTHER, "max(height // 2, max_vid_index)")))
fault("dit.last_block_width_before_height", "dit", attended(2), "rotary.axes_exchanged",
      lambda p: joint_attention(p, 2, ("img_freqs, txt_freqs = image_rotary_emb", "img_freqs, txt_freqs = image_rotary_emb; img_freqs = img_freqs[:, order]"),
                                order=width_before_height(p)), world=COARSE_PAIR)
fault("dit.text_query_heads_backwards", "dit", f"input:{T}.1.attn.to_add_out", ("attention.heads", "layout.heads"),
      lambda p: joint_attention(p, 1, ("torch.cat([txt_query, img_query], dim=1)", "torch.cat([txt_query.flip(2), img_query], dim=1)")))
fault("dit.image_keys_for_values", "dit", attended(6), "attention.qkv_exchanged",
      lambda p: joint_attention(p, 6, ("torch.cat([txt_key, img_key], dim=1)", "torch.cat([txt_key, img_value], dim=1)"),
                                ("torch.cat([txt_value, img_value], dim=1)", "torch.cat([txt_value, img_key], dim=1)")), world=LONG)
fault("dit.text_sees_back", "dit", f"input:{T}.2.attn.to_add_out", ("attention.mask_added", "attention.mask"),
      lambda p: joint_attention(p, 2, ("attn_mask=attention_mask,", "attn_mask=text_sees_back(seq_txt, img_key.shape[1]),"), text_sees_back=text_sees_back))
fault("dit.padding_seen_in_the_last_block", "dit", attended(2), ("attention.mask_missing", "attention.mask"),
      lambda p: joint_attention(p, 2, ("attn_mask=attention_mask,", "attn_mask=None,")), world=COARSE_PAIR)

# --- diffusion transformer: the rest -------------------------------------------------------------------------------------
fault("dit.text_in_over_root_width", "dit", "output:transformer.txt_in", ("affine.scale", "linear.weight_scaled"),
      lambda p: result(p.transformer.txt_in, lambda y: y * 140**-0.5), world=PAIR)
fault("dit.text_norm_rms", "dit", f"output:{T}.3.txt_norm2", "norm.kind",
      lambda p: forward(block(p, 3).txt_norm2, lambda self, old, x: F.rms_norm(x, x.shape[-1:], eps=1e-6)), world=COARSE)
fault("dit.last_norm_missing", "dit", "output:transformer.norm_out.norm", "norm.missing",
      lambda p: forward(p.transformer.norm_out.norm, lambda self, old, x: x), world=COARSE_PAIR)
fault("dit.text_query_eps", "dit", f"output:{T}.2.attn.norm_added_q", "norm.eps",
      lambda p: attribute(block(p, 2).attn.norm_added_q, "eps", 0.05), world=LONG)
fault("dit.text_gelu_erf", "dit", f"output:{T}.0.txt_mlp.net.0", "activation.kind",  # a few parts in ten thousand, in every block
      lambda p: all_of(*(attribute(b.txt_mlp.net[0], "approximate", "none") for b in p.transformer.transformer_blocks)), world=PAIR)
fault("dit.last_gate_missing", "dit", (f"output:{T}.6.*", "input:transformer.norm_out*"), "gate.missing",
      lambda p: code(block(p, 6), "forward", ("img_gate2 * img_mlp_output", "img_mlp_output")), world=LONG)
fault("dit.residual_of_one_item", "dit", f"input:{T}.2.img_norm2", "residual.missing",
      lambda p: code(block(p, 2), "forward", ("hidden_states = hidden_states + img_gate1", "hidden_states = hidden_states * torch.tensor([1.0, 0.0]).view(2, 1, 1) + img_gate1")), world=PAIR)
fault("dit.text_mlp_one_plus_missing", "dit", f"input:{T}.2.txt_mlp*", "modulate.one_plus_missing",
      lambda p: code(block(p, 2), "forward", ("txt_mlp_output = self.txt_mlp(", "shift, scale, _ = txt_mod2.unsqueeze(1).chunk(3, -1)\n    txt_modulated2 = txt_normed2 * scale + shift\n    txt_mlp_output = self.txt_mlp(")),
      world=STRONG)
fault("dit.last_thirds_turned", "dit", f"input:{T}.4.img_mlp*", ("modulate.other_part", "layout.parts_exchanged"),
      lambda p: code(block(p, 4), "forward", ("self._modulate(img_normed2, img_mod2, modulate_index)", "self._modulate(img_normed2, torch.cat([img_mod2.chunk(3, -1)[k] for k in (1, 2, 0)], -1), modulate_index)")))
fault("dit.image_one_token_late", "dit", f"output:{T}.2.img_mlp.net.2", ("layout.shifted", "layout.rolled"),
      lambda p: result(block(p, 2).img_mlp.net[2], one_token_late))
fault("dit.negative_text_backwards", "dit", "output:transformer.txt_in", ("layout.reversed", "layout.permuted"),
      lambda p: result(p.transformer.txt_in, lambda y: y.flip(1) if unconditional() else y), world=LONG)
fault("dit.scaled_to_the_end_of_f16", "dit", f"output:{T}.1.txt_mlp.net.2", "precision.saturated",
      lambda p: result(block(p, 1).txt_mlp.net[2], lambda y: (y * 6e4).clamp(-65504, 65504) / 6e4))
fault("dit.last_modulation_bf16", "dit", "output:transformer.norm_out.linear", "precision.bf16",
      lambda p: result(p.transformer.norm_out.linear, lambda y: y.bfloat16().float()), world=UNGUIDED)
fault("dit.last_tokens_unread", "dit", f"output:{T}.3.img_mlp.net.2", "garbage.denormal",
      lambda p: result(block(p, 3).img_mlp.net[2], lambda y: unread_from(y, 64)), world=LONG)
fault("dit.time_by_1024", "dit", "output:transformer.time_text_embed.time_proj", ("timestep.scale", "timestep.factor"),
      lambda p: attribute(p.transformer.time_text_embed.time_proj, "scale", 1024))

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.last_activation_gelu", "vae", f"output:{D}.up_blocks.3.resnets.1.nonlinearity", "activation.kind",
      lambda p: forward(up(p, 3, 1).nonlinearity, lambda self, old, x: F.gelu(x)), world=COARSE_PAIR)
fault("vae.middle_residual_missing", "vae", f"output:{D}.mid_block.resnets.1", "residual.missing",
      lambda p: code(p.vae.decoder.mid_block.resnets[1], "forward", ("return x + h", "return x")), world=LONG)
fault("vae.three_in_bf16", "vae", f"output:{MIDDLE}.to_qkv", "precision.bf16", lambda p: result(middle(p).to_qkv, lambda y: y.bfloat16().float()))
fault("vae.values_first", "vae", f"input:{MIDDLE}.proj", "attention.qkv_exchanged",
      lambda p: code(middle(p), "forward", ("q, k, v = qkv.chunk", "v, k, q = qkv.chunk")), world=LONG)
fault("vae.second_norm_missing", "vae", f"output:{D}.up_blocks.0.resnets.2.norm2", "norm.missing",
      lambda p: forward(up(p, 0, 2).norm2, lambda self, old, x: x))
fault("vae.scales_of_channels_left", "vae", f"output:{D}.conv_in", "affine.channel_scale",
      lambda p: result(p.vae.decoder.conv_in, lambda y: y * torch.linspace(0.6, 1.7, y.shape[1]).view(1, -1, 1, 1, 1)), world=PAIR)
fault("vae.column_by_column", "vae", f"output:{D}.mid_block.resnets.1.conv1", ("layout.axes", "layout.strided"),
      lambda p: result(p.vae.decoder.mid_block.resnets[1].conv1, lambda y: y.transpose(-1, -2).reshape(y.shape)))
fault("vae.a_quarter_added", "vae", f"output:{D}.up_blocks.2.resnets.0.conv2", ("affine.offset", "affine.channel_offset", "convolution.different_bias"),
      lambda p: result(up(p, 2, 0).conv2, lambda y: y + 0.25), world=LONG)
fault("vae.upsampler_bias_missing", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.1", ("convolution.bias_missing", "affine.channel_offset"),
      lambda p: weights(p.vae.decoder.up_blocks[1].upsamplers[0].resample[1], lambda w: w.update(bias=w["bias"] * 0)), world=COARSE)

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.whole_timesteps", "scheduler", LATENTS, ("scheduler.dt", "scheduler.sigmas"),
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = ((1000 * sigma_next).round() - (1000 * sigma).round()) / 1000")), world=LONG)
fault("scheduler.middles_of_the_steps", "scheduler", (TIME, LATENTS), "scheduler.sigmas",
      CALL(("np.linspace(1.0, 1 / num_inference_steps, num_inference_steps)", "(num_inference_steps - np.arange(num_inference_steps) - 0.5) / num_inference_steps")))
fault("scheduler.shift_of_a_square", "scheduler", (TIME, LATENTS), "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("self.time_shift(mu, 1.0, sigmas)", "self.time_shift(mu, 2.0, sigmas)")), world=COARSE_PAIR)
fault("pipeline.negative_pass_in_thousands", "pipeline", TIME, ("timestep.scale", "timestep.factor"),
      CALL((NEGATIVE_TIME, NEGATIVE_TIME.replace(" / 1000", ""))), world=LONG)
fault("pipeline.index_in_the_negative_pass", "pipeline", TIME, "timestep.index_as_value",
      CALL((NEGATIVE_TIME, NEGATIVE_TIME.replace("timestep / 1000", "torch.full_like(timestep, i)"))), world=COARSE_PAIR)
fault("pipeline.every_other_step_exchanged", "pipeline", NOISE, "guidance.exchanged",
      CALL(("comb_pred = neg_noise_pred", "noise_pred, neg_noise_pred = (neg_noise_pred, noise_pred) if i % 2 else (noise_pred, neg_noise_pred); comb_pred = neg_noise_pred")), world=LONG)
fault("pipeline.guidance_of_the_example", "pipeline", NOISE, "guidance.scale",
      CALL(("true_cfg_scale * (noise_pred - neg_noise_pred)", "4.0 * (noise_pred - neg_noise_pred)")), world=COARSE_LONG)
fault("pipeline.half_the_channels_denormalised", "pipeline", "checkpoint:latents_denormalized", ("latents.not_denormalised", "latents.statistics"),
      CALL(("latents = latents / latents_std + latents_mean", "latents = torch.cat([latents[:, :8], (latents / latents_std + latents_mean)[:, 8:]], 1)")))
fault("pipeline.channel_inside_the_patch", "pipeline", "checkpoint:initial_latents_packed", ("layout.packing", "layout.permuted", "layout.interleaved"),
      lambda p: static(p, "_pack_latents", ("permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 3, 1, 5)")), world=PAIR)
fault("pipeline.embeddings_column_major", "pipeline", "checkpoint:prompt_embeds", ("layout.strided", "layout.axes"),
      lambda p: code(p, "_get_qwen_prompt_embeds", ("prompt_embeds = prompt_embeds.to(dtype=dtype, device=device)", "prompt_embeds = prompt_embeds.transpose(1, 2).reshape(prompt_embeds.shape)")), world=COARSE)

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.last_text_key_transposed", "weights", f"output:{T}.6.attn.add_k_proj", ("linear.transposed_weight", "weights.transposed"),
      lambda p: weights(block(p, 6).attn.add_k_proj, lambda w: w.update(weight=w["weight"].T)), world=LONG)
fault("weights.convolution_inputs_for_outputs", "weights", f"output:{D}.up_blocks.2.resnets.1.conv2", ("convolution.transposed_weight", "weights.transposed"),
      lambda p: weights(up(p, 2, 1).conv2, lambda w: w.update(weight=w["weight"].transpose(0, 1))), world=COARSE_PAIR)
fault("weights.text_keys_and_values", "weights", f"output:{T}.3.attn.add_k_proj", ("linear.other_weight", "attention.qkv_exchanged"),
      lambda p: weights(block(p, 3).attn, lambda w: [swap(f"add_k_proj.{n}", f"add_v_proj.{n}")(w) for n in ("weight", "bias")]))
fault("weights.gates_for_ups", "weights", f"output:{E}.0.mlp.gate_proj", ("linear.other_weight", "activation.gate_up_exchanged", "weights.parts_exchanged"),
      gates_for_ups, world=COARSE)
fault("weights.norm_of_the_next_layer", "weights", f"output:{E}.2.input_layernorm", ("norm.other_weight", "norm.different_weight"),
      lambda p: of_another(layer(p, 2).input_layernorm, layer(p, 3).input_layernorm))
fault("weights.text_mlp_of_the_block_before", "weights", f"output:{T}.4.txt_mlp.net.0.proj", "linear.other_weight",
      lambda p: of_another(block(p, 4).txt_mlp, block(p, 3).txt_mlp), world=COARSE_LONG)
fault("weights.counting_stopped", "weights", f"output:{T}.4.img_mod.1", "linear.other_weight", lambda p: counting_stopped(p, 3), world=LONG)
fault("weights.shortcut_not_loaded", "weights", f"output:{D}.up_blocks.1.resnets.0.conv_shortcut", ("convolution.different_weight", "weights.random"),
      lambda p: as_made(up(p, 1, 0).conv_shortcut, 18), world=PAIR)
fault("weights.text_key_not_loaded", "weights", f"output:{T}.1.attn.add_k_proj", ("linear.random_weight", "weights.random"),
      lambda p: as_made(block(p, 1).attn.add_k_proj, 19), world=LONG)
fault("weights.groups_of_20_for_16", "weights", f"output:{E}.3.mlp.up_proj", ("linear.weight_quantised", "weights.quantised"),
      lambda p: weights(layer(p, 3).mlp.up_proj, lambda w: w.update(weight=read_in_groups(w["weight"], 8, 16, 20))))
fault("weights.four_bits_in_bf16", "weights", f"output:{T}.1.attn.to_out.0", ("linear.weight_quantised", "weights.quantised"),
      lambda p: weights(block(p, 1).attn.to_out[0], lambda w: w.update(weight=read_in_groups(w["weight"], 4, 26, 26))), world=COARSE_PAIR)

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.view_of_the_three", "capture", f"output:{T}.2.attn.to_v", "layout.strided", change=view_of_the_three(2))
fault("capture.block_before", "capture", f"output:{T}.3.img_norm2", "capture.other_stage", change=block_before(3, "img_norm2"))
fault("capture.keys_after_rotation", "capture", f"output:{T}.1.attn.norm_k", ("capture.other_stage", "rotary.added"), change=keys_after_rotation(1), world=PAIR)
fault("capture.second_item_in_whole_numbers", "capture", f"output:{D}.up_blocks.0.resnets.1.conv1", "precision.integer",
      change=at(f"{D}.up_blocks.0.resnets.1.conv1", lambda x: torch.cat([x[:1], x[1:].trunc()])), world=PAIR)

# --- two faults in one run: the first is named -----------------------------------------------------------------------------
fault("both.text_gate_and_picture_bias", "dit", f"input:{T}.1.txt_norm2", "gate.missing",
      lambda p: all_of(code(block(p, 1), "forward", ("txt_gate1 * txt_attn_output", "txt_attn_output")),
                       weights(p.vae.decoder.conv_out, lambda w: w.update(bias=w["bias"] * 0))), world=COARSE)
fault("both.text_after_the_columns_and_neighbour", "dit", TEXT_TABLE, ("rotary.offset", "rotary.positions"),
      lambda p: all_of(rope(p, "forward", (FARTHER, "max(width // 2, max_vid_index)")), of_another(block(p, 5).img_mlp, block(p, 4).img_mlp)), world=LONG)
fault("both.text_scale_and_sign_of_the_step", "text encoder", f"input:{E}.1.self_attn.o_proj", "attention.scale",
      lambda p: all_of(attribute(layer(p, 1).self_attn, "scaling", 1.0), scheduler(p, "step", ("dt = sigma_next - sigma", "dt = sigma - sigma_next"))), world=PAIR)
