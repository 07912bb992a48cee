"""Every kind of mistake in one part alone: one item of two, one axis, one pass, one half of a table. By an author who had not read the
rules; stages and causes were written down before any run."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from blind_11_odd_shapes import own_rotation
from suite_01_every_stage import CALL, D, E, T, at, block, layer, rope, scheduler, static, up
from places import attended, denormal_bits, faults_of, joint_attention, method, result, symmetric
from planting import attribute, code, forward, weights
from recorder import RECORDER
from blind_07_port_reports import rotary, text_attention
from worlds import World

FAULTS: list = []
# 6 by 9 image tokens, 6 heads of 20; in the text encoder 9 heads on 3 key heads of 12.
SIX = World(
    "sixteenth-six",
    {"seed": 161, "layers": 4, "heads": 6, "head_dim": 20, "axes": [4, 6, 10], "text_hidden": 108, "text_heads": 9, "text_kv_heads": 3,
     "text_layers": 3, "text_intermediate": 172, "vae_base": 12, "random_latent_stats": True},
    {"prompt": "a heron on one leg in the reeds, thin mist", "negative": "boats, people", "width": 144, "height": 96, "steps": 3,
     "guidance": 2.75, "seed": 161},
)  # fmt: skip
# Two prompts of different length, 3 by 7 image tokens, 3 heads of 44; in the text encoder 6 heads on 2 key heads.
PAIR = World(
    "sixteenth-pair",
    {"seed": 162, "layers": 3, "heads": 3, "head_dim": 44, "axes": [8, 16, 20], "text_hidden": 72, "text_heads": 6, "text_kv_heads": 2,
     "text_layers": 2, "text_intermediate": 104, "rope_theta": 1e4, "vae_res_blocks": 1, "random_latent_stats": True},
    {"prompt": ["a snail on a wet leaf, seen from very near", "tar"], "negative": ["grain", "blur, border, stamps, hands"], "width": 112,
     "height": 48, "steps": 2, "guidance": 5.25, "seed": 162},
)  # fmt: skip
# 11 by 2 image tokens, five steps of the few-step schedule; prompt and negative prompt have as many tokens as each other.
TALL = World(
    "sixteenth-tall",
    {"seed": 163, "layers": 3, "heads": 2, "head_dim": 36, "axes": [6, 14, 16], "text_hidden": 64, "text_heads": 2, "text_kv_heads": 1,
     "text_layers": 4, "text_intermediate": 80, "text_keys": "new", "shard": 100_000, "scheduler": "lightning"},
    {"prompt": "a red kite", "negative": "grey sky", "width": 32, "height": 176, "steps": 5, "guidance": 3.5, "seed": 163},
)  # fmt: skip
# 5 by 5 image tokens, 8 heads of 12; an autoencoder whose last stage has a shortcut of its own.
SMALL = World(
    "sixteenth-small",
    {"seed": 164, "layers": 2, "heads": 8, "head_dim": 12, "axes": [2, 4, 6], "text_hidden": 48, "text_heads": 3, "text_kv_heads": 3,
     "text_layers": 2, "text_intermediate": 60, "vae_base": 16, "vae_dim_mult": [1, 1, 2, 2], "vae_res_blocks": 1},
    {"prompt": "a thimble and a coin", "negative": " ", "width": 80, "height": 80, "steps": 3, "guidance": 4.25, "seed": 164},
)  # fmt: skip
fault = faults_of(FAULTS, SIX)
IDS = ("input:text_encoder.*", "input:text_encoder.model.embed_tokens", "output:text_encoder.model.embed_tokens")
LATENTS = "checkpoint:latents"
DENORMALISED = "checkpoint:latents_denormalized"
GRID = "output:transformer.pos_embed.0"
TEMPLATE = 34  # tokens in front of the prompt, the same for every prompt


def pairs_by_the_table_of_halves(q, k, cos, sin, **_):
    """Neighbours turn together, but by angles that are laid out for the first half and the second."""
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return tuple(x * c + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * s for x in (q, k))


def to_the_last_frequency(p):
    """As many frequencies, but spread so that the last one is 1 / theta itself."""
    own = rotary(p)
    size = 2 * len(own.inv_freq)
    theta = own.config.rope_parameters["rope_theta"]
    return attribute(own, "inv_freq", theta ** -(torch.arange(0, size, 2, dtype=torch.float) / (size - 2)))


def template_seen_whole(module, q, k, v, mask, scaling, **_):
    """As a model with a prefix: the template's tokens see each other both ways, the prompt's see back."""
    k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scaling
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    seen[:TEMPLATE, :TEMPLATE] = True
    return (scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v).transpose(1, 2).contiguous(), None


def cut_to_bf16(y):
    """The upper two bytes of every number, not rounded."""
    return y.contiguous().view(torch.int32).bitwise_and(-65536).view(torch.float32)


def conditional():
    return RECORDER.tags.get("pass") == "cond"


def shards_one_after_the_other(w):
    """Two ranks' [gate, up] halves in one tensor, [gate 0, up 0, gate 1, up 1], cut in the middle."""
    (g0, g1), (u0, u1) = w["gate_proj.weight"].chunk(2), w["up_proj.weight"].chunk(2)
    w.update({"gate_proj.weight": torch.cat([g0, u0]), "up_proj.weight": torch.cat([g1, u1])})


def text_modulation_of_the_next(p):
    blocks = p.transformer.transformer_blocks
    following = [{n: v.detach().clone() for n, v in b.txt_mod.named_parameters()} for b in (*blocks[1:], blocks[-1])]
    return weights(blocks, lambda w: w.update({f"{i}.txt_mod.{n}": v for i, given in enumerate(following) for n, v in given.items()}))


def last_attention_for_all(p):
    layers = p.text_encoder.model.language_model.layers
    last = {n: v.detach().clone() for n, v in layers[-1].self_attn.named_parameters()}
    return weights(layers, lambda w: w.update({f"{i}.self_attn.{n}": v for i in range(len(layers)) for n, v in last.items()}))


def steps_down_the_columns(w, bits, group):
    """Quantised in groups along the input; the same table of steps is read as if groups ran along the output."""
    integers, step = symmetric(w, bits, group)
    along = step.reshape(w.shape[0], -1).repeat_interleave(group, 1)
    return integers.reshape(w.shape) * along.T


def second_call(module, function):
    """A module that is called twice: the first call is as it should be."""
    calls = []

    def either(self, old, x):
        calls.append(1)
        return function(x) if len(calls) == 2 else old(x)

    return forward(module, either)


def odd_heads_unread(x):
    """[batch, tokens, heads, size]: every other head comes from beyond the buffer."""
    x = x.clone()
    x[:, :, 1::2] = denormal_bits(x[:, :, 1::2].shape, 16)
    return x


# --- tokenizer and text encoder ---------------------------------------------------------------------------------------
fault("tokenizer.ids_in_a_byte", "tokenizer", IDS, ("input.other", "precision.integer"),
      lambda p: code(p, "_get_qwen_prompt_embeds", ("input_ids=txt_tokens.input_ids", "input_ids=txt_tokens.input_ids & 255")))
fault("text.pairs_by_the_table_of_halves", "text encoder", f"input:{E}.2.self_attn.o_proj", "rotary.style",
      lambda p: own_rotation(p, 2, pairs_by_the_table_of_halves))
fault("text.to_the_last_frequency", "text encoder", "output:text_encoder.model.rotary_emb.*", "rotary.theta", to_the_last_frequency, world=PAIR)
fault("text.bias_of_ones", "text encoder", f"output:{E}.3.self_attn.o_proj", ("affine.offset", "linear.different_bias", "affine.channel_offset"),
      lambda p: result(layer(p, 3).self_attn.o_proj, lambda y: y + 1), world=TALL)
fault("text.template_seen_whole", "text encoder", f"input:{E}.1.self_attn.o_proj", ("attention.mask", "attention.mask_missing"),
      lambda p: text_attention(p, 1, template_seen_whole))
fault("text.heads_by_their_place_in_the_group", "text encoder", f"input:{E}.1.self_attn.o_proj", ("layout.heads", "attention.heads", "layout.permuted", "layout.interleaved", "layout.parts_exchanged"),
      lambda p: method(layer(p, 1).self_attn, "forward", ("attn_output.reshape(bsz, q_len, -1)", "attn_output.unflatten(2, (2, 3)).transpose(2, 3).reshape(bsz, q_len, -1)")), world=PAIR)
fault("text.each_prompt_backwards", "text encoder", "checkpoint:prompt_embeds", ("layout.reversed", "layout.permuted"),  # its own tokens, not the padding
      lambda p: code(p, "_get_qwen_prompt_embeds", ("e[drop_idx:] for", "e[drop_idx:].flip(0) for")), world=PAIR)

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.centred_between_tokens", "dit", GRID, ("rotary.offset", "rotary.positions"),  # rows -2.5 to 2.5 for -3 to 2, columns -4 to 4 for -5 to 3
      lambda p: rope(p, "_compute_video_freqs", ("freqs_pos[1][: height // 2]], dim=0)", "freqs_pos[1][: height // 2]], dim=0) * freqs_pos[1][1] ** 0.5"),
                     ("freqs_pos[2][: width // 2]], dim=0)", "freqs_pos[2][: width // 2]], dim=0) * freqs_pos[2][1]")))
fault("dit.rows_turn_back", "dit", GRID, ("rotary.sign", "rotary.positions"),
      lambda p: rope(p, "_compute_video_freqs", ("freqs_height = freqs_height.view(1, height, 1, -1)", "freqs_height = freqs_height.conj().view(1, height, 1, -1)")), world=TALL)
fault("dit.rows_before_frame", "dit", GRID, "rotary.axes_exchanged",
      lambda p: rope(p, "_compute_video_freqs", ("[freqs_frame, freqs_height, freqs_width]", "[freqs_height, freqs_frame, freqs_width]")), world=PAIR)
fault("dit.text_one_plus_missing", "dit", f"input:{T}.1.attn.encoder_hidden_states", "modulate.one_plus_missing",
      lambda p: code(block(p, 1), "forward", ("txt_modulated, txt_gate1 = self._modulate(txt_normed, txt_mod1)", "txt_modulated, txt_gate1 = self._modulate(txt_normed, txt_mod1)\n    txt_modulated = txt_normed * txt_mod1.chunk(3, -1)[1].unsqueeze(1) + txt_mod1.chunk(3, -1)[0].unsqueeze(1)")),
      world=SIX.in_precision("bf16"))
fault("dit.text_keys_for_values", "dit", attended(2), "attention.qkv_exchanged",
      lambda p: joint_attention(p, 2, ("torch.cat([txt_key, img_key], dim=1)", "torch.cat([txt_value, img_key], dim=1)"), ("torch.cat([txt_value, img_value], dim=1)", "torch.cat([txt_key, img_value], dim=1)")), world=PAIR)
fault("dit.no_gate_in_one_block", "dit", f"input:{T}.2.img_norm2", "gate.missing",
      lambda p: code(block(p, 2), "forward", *((f"{stream}_gate{n} * ", "") for stream in ("img", "txt") for n in (1, 2))))
fault("dit.last_text_not_normed", "dit", f"output:{T}.2.txt_norm1", "norm.missing",
      lambda p: forward(block(p, 2).txt_norm1, lambda self, old, x: x), world=TALL)
fault("dit.tail_of_the_image_masked", "dit", attended(1), ("attention.mask_added", "attention.mask"),  # what does not fill sixteen tokens
      lambda p: joint_attention(p, 1, ("attn_mask=attention_mask,", "attn_mask=(torch.arange(joint_key.shape[1]) < joint_key.shape[1] // 16 * 16)[None, None, None],")))
fault("dit.image_one_row_down", "dit", "output:transformer.img_in", ("layout.rolled", "layout.shifted"),
      lambda p: result(p.transformer.img_in, lambda y: y.roll(9, 1)))
fault("dit.text_queries_clamped", "dit", f"output:{T}.1.attn.norm_added_q", "precision.saturated",
      lambda p: result(block(p, 1).attn.norm_added_q, lambda y: y.clamp(-1.25, 1.25)), world=TALL)
fault("dit.text_cut_to_bf16", "dit", "output:transformer.txt_in", "precision.bf16", lambda p: result(p.transformer.txt_in, cut_to_bf16), world=PAIR)
fault("dit.last_norm_rms", "dit", "output:transformer.norm_out.norm", "norm.kind",
      lambda p: forward(p.transformer.norm_out.norm, lambda self, old, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), world=SMALL)
fault("dit.residual_missing_in_one_pass", "dit", f"input:{T}.1.img_norm2", "residual.missing",  # the conditional one
      lambda p: method(block(p, 1), "forward", ("hidden_states = hidden_states + img_gate1 * img_attn_output", "hidden_states = (0 if conditional() else hidden_states) + img_gate1 * img_attn_output"), conditional=conditional),
      world=TALL)
fault("dit.text_norm_eps", "dit", "output:transformer.txt_norm", "norm.eps", lambda p: attribute(p.transformer.txt_norm, "eps", 0.01), world=PAIR)

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.second_activation_gelu", "vae", f"output:{D}.up_blocks.1.resnets.0.nonlinearity", "activation.kind",
      lambda p: second_call(up(p, 1, 0).nonlinearity, F.gelu), world=TALL)
fault("vae.sum_over_root_two", "vae", f"output:{D}.up_blocks.2.resnets.1", ("affine.scale", "residual.factor"),
      lambda p: code(up(p, 2, 1), "forward", ("return x + h", "return (x + h) * 0.5**0.5")))
fault("vae.deviations_once_more", "vae", "output:vae.post_quant_conv", "affine.channel_scale",
      lambda p: result(p.vae.post_quant_conv, lambda y: y * torch.tensor(p.vae.config.latents_std).view(1, -1, 1, 1, 1)), world=PAIR)
fault("vae.shortcut_bias_missing", "vae", f"output:{D}.up_blocks.3.resnets.0.conv_shortcut", ("convolution.bias_missing", "affine.channel_offset"),
      lambda p: weights(up(p, 3, 0).conv_shortcut, lambda w: w.update(bias=w["bias"] * 0)), world=SMALL)
fault("vae.tiled_for_stretched", "vae", f"output:{D}.up_blocks.0.upsamplers.0.resample.0", ("resample.kind", "layout.interleaved", "layout.permuted", "layout.repeated"),
      lambda p: forward(p.vae.decoder.up_blocks[0].upsamplers[0].resample[0], lambda self, old, x: x.repeat(1, 1, 2, 2)), world=PAIR)

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.timestep_for_sigma", "scheduler", LATENTS, ("scheduler.dt", "scheduler.sigmas"),
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = sigma_next - self.timesteps[sigma_idx]")), world=SMALL)
fault("scheduler.shift_of_another_model", "scheduler", (LATENTS, "input:transformer.timestep"), "scheduler.sigmas",
      CALL(('self.scheduler.config.get("max_image_seq_len", 4096)', "4096"), ('self.scheduler.config.get("max_shift", 1.15)', "1.15")))
fault("pipeline.steps_left_for_time", "pipeline", "input:transformer.timestep", "timestep.index_as_value",
      CALL(("timestep=timestep / 1000", "timestep=torch.full_like(timestep, len(timesteps) - i)")), world=TALL)
fault("pipeline.texts_exchanged", "pipeline", "input:transformer.encoder_hidden_states", ("guidance.exchanged", "capture.other_hit", "capture.other_stage", "stage.replaced"),
      CALL(("self.scheduler.set_begin_index(0)", "self.scheduler.set_begin_index(0); prompt_embeds, negative_prompt_embeds = negative_prompt_embeds, prompt_embeds")), world=TALL)
fault("pipeline.second_not_denormalised", "pipeline", DENORMALISED, "latents.not_denormalised",
      CALL(("latents = latents / latents_std + latents_mean", "latents = torch.cat([latents[:1] / latents_std + latents_mean, latents[1:]])")), world=PAIR)
fault("pipeline.patches_by_columns", "pipeline", DENORMALISED, ("layout.packing", "layout.permuted", "layout.axes", "layout.strided", "layout.interleaved"),
      lambda p: static(p, "_unpack_latents", ("batch_size, height // 2, width // 2, channels // 4", "batch_size, width // 2, height // 2, channels // 4"), ("permute(0, 3, 1, 4, 2, 5)", "permute(0, 3, 2, 4, 1, 5)")))

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.shards_one_after_the_other", "weights", f"output:{E}.1.mlp.gate_proj", ("linear.other_weight", "weights.rearranged", "activation.gate_up_exchanged"),
      lambda p: weights(layer(p, 1).mlp, shards_one_after_the_other))
fault("weights.post_quant_transposed", "weights", "output:vae.post_quant_conv", ("convolution.transposed_weight", "weights.transposed"),
      lambda p: weights(p.vae.post_quant_conv, lambda w: w.update(weight=w["weight"].transpose(0, 1))), world=SMALL)
fault("weights.text_modulation_of_the_next", "weights", f"output:{T}.0.txt_mod.1", "linear.other_weight", text_modulation_of_the_next)
fault("weights.last_attention_for_all", "weights", f"output:{E}.0.self_attn.q_proj", "linear.other_weight", last_attention_for_all, world=TALL)
fault("weights.last_projection_not_loaded", "weights", ("output:transformer.proj_out", "checkpoint:noise_pred"), ("linear.random_weight", "linear.different_weight", "weights.random"),
      lambda p: weights(p.transformer.proj_out, lambda w: w.update(weight=torch.randn(w["weight"].shape, generator=torch.Generator().manual_seed(16)) * 0.02, bias=w["bias"] * 0)), world=PAIR)
fault("weights.steps_down_the_columns", "weights", f"output:{T}.3.attn.to_k", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 3).attn.to_k, lambda w: w.update(weight=steps_down_the_columns(w["weight"], 8, 24))))

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.odd_heads_unread", "capture", f"output:{T}.1.attn.norm_k", "garbage.denormal", change=at(f"{T}.1.attn.norm_k", odd_heads_unread))
fault("capture.latents_channels_last", "capture", DENORMALISED, ("layout.strided", "layout.axes"),
      change=at("latents_denormalized", lambda x: x.permute(0, 2, 3, 4, 1).contiguous().view(x.shape), role="checkpoint"), world=TALL)
