"""Every hypothesis in its plain form, as somebody who ports the model gets it wrong, in a late block or at a stage where no other set
has it. By an author who knew the list of hypotheses and not the rules; stages and causes were written down before any run."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from blind_11_odd_shapes import own_rotation
from suite_01_every_stage import CALL, D, E, T, at, block, interleaved, layer, rope, scheduler, swap, up
from places import attended, denormal_bits, faults_of, joint_attention, result, rotated, symmetric
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 10 by 9 image tokens, 3 heads of 60; in the text encoder 6 heads on 3 key heads of 28.
QUAY = World(
    "nineteenth-quay",
    {"seed": 191, "layers": 6, "heads": 3, "head_dim": 60, "axes": [12, 20, 28], "text_hidden": 168, "text_heads": 6, "text_kv_heads": 3,
     "text_layers": 4, "text_intermediate": 232, "vae_base": 13, "random_latent_stats": True},
    {"prompt": "a fishing boat tied up at a stone quay, early light", "negative": "people, crowds", "width": 144, "height": 160,
     "steps": 4, "guidance": 4.0, "seed": 191},
)  # fmt: skip
# Two prompts of different length, 5 by 8 image tokens, 4 heads of 80; in the text encoder 6 heads on 2 key heads of 22.
TWO = World(
    "nineteenth-two",
    {"seed": 192, "layers": 4, "heads": 4, "head_dim": 80, "axes": [16, 28, 36], "text_hidden": 132, "text_heads": 6, "text_kv_heads": 2,
     "text_layers": 3, "text_intermediate": 196, "vae_base": 15, "random_latent_stats": True},
    {"prompt": ["a cat", "an old man mending a net beside a green door"], "negative": ["blurry, low quality", "dark"], "width": 128,
     "height": 80, "steps": 3, "guidance": 5.0, "seed": 192},
)  # fmt: skip
# A square picture of 6 by 6 tokens, six steps of the few-step schedule, 6 heads of 26; in the text encoder 4 heads of 26, each with its own keys.
SQUARE = World(
    "nineteenth-square",
    {"seed": 193, "layers": 5, "heads": 6, "head_dim": 26, "axes": [6, 8, 12], "text_hidden": 104, "text_heads": 4, "text_kv_heads": 4,
     "text_layers": 5, "text_intermediate": 140, "vae_base": 11, "vae_res_blocks": 1, "text_keys": "new", "vision": False,
     "scheduler": "lightning"},
    {"prompt": "three plums in a white bowl", "negative": "text", "width": 96, "height": 96, "steps": 6, "guidance": 2.5, "seed": 193},
)  # fmt: skip
COARSE_QUAY, COARSE_TWO, COARSE_SQUARE = (world.in_precision("bf16") for world in (QUAY, TWO, SQUARE))
fault = faults_of(FAULTS, QUAY)
LATENTS, TIME, NOISE = "checkpoint:latents", "input:transformer.timestep", "checkpoint:noise_pred"
POSITIVE_TIME = "timestep=timestep / 1000,\n                    guidance=guidance,\n                    encoder_hidden_states_mask=prompt"
DENORMALISED = "latents = latents / latents_std + latents_mean"


def of_theta(theta):
    """The rotation of the text encoder, with frequencies of its own."""

    def rotate(q, k, cos, sin, **_):
        size = q.shape[-1]
        angles = torch.outer(torch.arange(q.shape[-2]).float(), theta ** (-torch.arange(0, size, 2).float() / size))
        c, s = (torch.cat([t, t], -1).to(q.dtype) for t in (angles.cos(), angles.sin()))
        return tuple(x * c + torch.cat((-b, a), -1) * s for x in (q, k) for a, b in (x.chunk(2, -1),))

    return rotate


def layer_norm(module):
    """A LayerNorm with the weight and the eps of an RMSNorm of the text encoder."""
    return forward(module, lambda self, old, x: (F.layer_norm(x.float(), x.shape[-1:], None, None, self.variance_epsilon) * self.weight).to(x.dtype))


def turned_back(*streams):
    """The lines that rotate these streams, against the sense of the angles."""
    return ((line, line.replace("_freqs,", "_freqs.conj(),")) for _, line in rotated(*streams))


def channel_scales(size):
    return 0.5 + torch.rand(size, generator=torch.Generator().manual_seed(19))


def of_another(module, other):
    """All the weights of another module of the same kind."""
    return weights(module, lambda w: w.update({n: v.detach().clone() for n, v in other.named_parameters()}))


def never_loaded(module, seed):
    """What torch.nn.Linear has before a checkpoint is read."""

    def change(w):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            fresh = torch.nn.Linear(module.in_features, module.out_features)
        w.update(weight=fresh.weight.detach().clone(), bias=fresh.bias.detach().clone())

    return weights(module, change)


def one_mlp_repeated(p, first):
    """Every layer of the text encoder after `first` has its MLP."""
    layers = p.text_encoder.model.language_model.layers
    own = {n: v.detach().clone() for n, v in layers[first].mlp.named_parameters()}
    return weights(layers, lambda w: w.update({f"{i}.mlp.{n}": v for i in range(first + 1, len(layers)) for n, v in own.items()}))


def read_in_groups(w, bits, group, read):
    """Quantised in groups of one size, read with the steps of another: group k of `read` takes the k-th step of its row."""
    integers, step = symmetric(w, bits, group)
    steps = step.reshape(w.shape[0], -1).repeat_interleave(read, 1)[:, : w.shape[1]]
    return integers.reshape(w.shape) * steps


# --- text encoder ------------------------------------------------------------------------------------------------------
fault("text.second_layer_in_pairs", "text encoder", f"input:{E}.1.self_attn.o_proj", "rotary.style",
      lambda p: own_rotation(p, 1, interleaved), world=SQUARE)
fault("text.layer_of_theta_10000", "text encoder", f"input:{E}.2.self_attn.o_proj", "rotary.theta", lambda p: own_rotation(p, 2, of_theta(1e4)))
fault("text.fourth_layer_not_causal", "text encoder", f"input:{E}.3.self_attn.o_proj", ("attention.mask_missing", "attention.mask"),
      lambda p: attribute(layer(p, 3).self_attn, "is_causal", False))
fault("text.scale_of_a_head_of_128", "text encoder", f"input:{E}.3.self_attn.o_proj", "attention.scale",
      lambda p: attribute(layer(p, 3).self_attn, "scaling", 128**-0.5), world=COARSE_QUAY)
fault("text.fourth_layer_up_for_gate", "text encoder", f"input:{E}.3.mlp.act_fn", ("activation.gate_up_exchanged", "activation.other_input"),
      lambda p: code(layer(p, 3).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.up_proj(x)) * self.gate_proj(x)")), world=SQUARE)
fault("text.last_norm_layer_norm", "text encoder", "output:text_encoder.model.norm", "norm.kind",
      lambda p: layer_norm(p.text_encoder.model.language_model.norm), world=COARSE_TWO)
fault("text.fifth_layer_not_normed", "text encoder", f"output:{E}.4.input_layernorm", "norm.missing",
      lambda p: forward(layer(p, 4).input_layernorm, lambda self, old, x: x), world=SQUARE)

# --- diffusion transformer: rotation and attention -----------------------------------------------------------------------
fault("dit.fifth_block_turns_back", "dit", attended(4), "rotary.sign",
      lambda p: joint_attention(p, 4, *turned_back("img_query", "img_key", "txt_query", "txt_key")), world=COARSE_QUAY)
fault("dit.text_after_every_image_token", "dit", "output:transformer.pos_embed.1", ("rotary.offset", "rotary.positions"),
      lambda p: rope(p, "forward", ("max_vid_index = max(height // 2, width // 2, max_vid_index)", "max_vid_index = height * width")))
fault("dit.table_by_columns", "dit", attended(3), ("rotary.axes_exchanged", "rotary.positions"),
      lambda p: joint_attention(p, 3, ("img_freqs, txt_freqs = image_rotary_emb", "img_freqs, txt_freqs = image_rotary_emb; img_freqs = img_freqs.unflatten(0, (6, 6)).transpose(0, 1).flatten(0, 1)")),
      world=SQUARE)
fault("dit.sixth_block_head_size_before_heads", "dit", attended(5), ("attention.heads", "layout.heads", "layout.interleaved"),
      lambda p: joint_attention(p, 5, ("joint_hidden_states.flatten(2, 3)", "joint_hidden_states.transpose(2, 3).flatten(2, 3)")))
fault("dit.last_block_causal", "dit", attended(4), ("attention.mask_added", "attention.mask"),
      lambda p: joint_attention(p, 4, ("is_causal=False", "is_causal=True")), world=SQUARE)
fault("dit.fourth_block_sees_padding", "dit", attended(3), ("attention.mask_missing", "attention.mask"),
      lambda p: joint_attention(p, 3, ("attn_mask=attention_mask,", "attn_mask=None,")), world=TWO)

# --- diffusion transformer: the rest -------------------------------------------------------------------------------------
fault("dit.fifth_block_scale_before_shift", "dit", (f"input:{T}.4.attn.hidden_states", f"input:{T}.4.attn.encoder_hidden_states"),
      ("modulate.shift_scale_exchanged", "modulate.other_part", "layout.parts_exchanged"),
      lambda p: code(block(p, 4), "_modulate", ("shift, scale, gate = mod_params", "scale, shift, gate = mod_params")))
fault("dit.fourth_block_scale_alone", "dit", (f"input:{T}.3.attn.hidden_states", f"input:{T}.3.attn.encoder_hidden_states"), "modulate.one_plus_missing",
      lambda p: code(block(p, 3), "_modulate", ("x * (1 + scale_result)", "x * scale_result")), world=COARSE_TWO)
fault("dit.third_text_gate_missing", "dit", f"input:{T}.2.txt_norm2", "gate.missing",
      lambda p: code(block(p, 2), "forward", ("txt_gate1 * txt_attn_output", "txt_attn_output")), world=TWO)
fault("dit.last_residual_missing", "dit", (f"output:{T}.4.*", "input:transformer.norm_out*"), "residual.missing",
      lambda p: code(block(p, 4), "forward", ("hidden_states = hidden_states + img_gate2 * img_mlp_output", "hidden_states = img_gate2 * img_mlp_output")), world=SQUARE)
fault("dit.fifth_text_key_eps", "dit", f"output:{T}.4.attn.norm_added_k", "norm.eps", lambda p: attribute(block(p, 4).attn.norm_added_k, "eps", 1e-2))
fault("dit.fourth_gelu_erf", "dit", f"output:{T}.3.img_mlp.net.0", "activation.kind",
      lambda p: attribute(block(p, 3).img_mlp.net[0], "approximate", "none"), world=TWO)  # two parts in ten thousand: what this mistake is
fault("dit.image_backwards", "dit", "output:transformer.img_in", ("layout.reversed", "layout.permuted"),
      lambda p: result(p.transformer.img_in, lambda y: y.flip(1)), world=SQUARE)
fault("dit.patches_written_by_columns", "dit", ("output:transformer.proj_out", NOISE), ("layout.packing", "layout.permuted", "layout.interleaved"),
      lambda p: result(p.transformer.proj_out, lambda y: y.unflatten(-1, (16, 2, 2)).transpose(-1, -2).flatten(-3)))
fault("dit.fifth_text_value_bf16", "dit", f"output:{T}.4.attn.add_v_proj", "precision.bf16",
      lambda p: result(block(p, 4).attn.add_v_proj, lambda y: y.bfloat16().float()), world=SQUARE)
fault("dit.smoothing_scales_left", "dit", f"output:{T}.4.txt_mlp.net.2", ("affine.channel_scale", "linear.weight_row_scale"),
      lambda p: result(block(p, 4).txt_mlp.net[2], lambda y: y * channel_scales(y.shape[-1])))
fault("dit.a_constant_on_the_text", "dit", f"output:{T}.2.attn.to_add_out", ("affine.offset", "affine.channel_offset", "linear.different_bias"),
      lambda p: result(block(p, 2).attn.to_add_out, lambda y: y + 0.2), world=SQUARE)
fault("dit.time_in_thousands_already", "dit", "input:transformer.time_text_embed*", ("timestep.scale", "timestep.factor"),
      lambda p: code(p.transformer, "forward", ("timestep = timestep.to(hidden_states.dtype)", "timestep = (timestep * 1000).to(hidden_states.dtype)")), world=TWO)

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.rows_for_columns_at_the_start", "vae", f"output:{D}.conv_in", "layout.axes",
      lambda p: result(p.vae.decoder.conv_in, lambda y: y.transpose(-1, -2).contiguous()), world=SQUARE)
fault("vae.first_up_residual_missing", "vae", f"output:{D}.up_blocks.0.resnets.0", "residual.missing",
      lambda p: code(up(p, 0, 0), "forward", ("return x + h", "return x")), world=TWO)
fault("vae.gelu_before_the_picture", "vae", f"output:{D}.nonlinearity", "activation.kind",
      lambda p: forward(p.vae.decoder.nonlinearity, lambda self, old, x: F.gelu(x)))
fault("vae.middle_held_in_f16", "vae", f"output:{D}.mid_block.resnets.0.conv2", "precision.saturated",
      lambda p: result(p.vae.decoder.mid_block.resnets[0].conv2, lambda y: (y * 2**16).clamp(-65504, 65504) / 2**16), world=SQUARE)
fault("vae.middle_bias_missing", "vae", f"output:{D}.mid_block.resnets.0.conv1", ("convolution.bias_missing", "affine.channel_offset"),
      lambda p: weights(p.vae.decoder.mid_block.resnets[0].conv1, lambda w: w.update(bias=w["bias"] * 0)))

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.steps_of_one_size", "scheduler", LATENTS, ("scheduler.dt", "scheduler.sigmas"),
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = -1 / self.num_inference_steps")), world=TWO)
fault("scheduler.terminal_of_another_model", "scheduler", (LATENTS, TIME), "scheduler.sigmas",
      lambda p: scheduler(p, "stretch_shift_to_terminal", ("self.config.shift_terminal", "0.1")))
fault("pipeline.negative_prediction_first", "pipeline", NOISE, "guidance.exchanged",
      CALL(("comb_pred = neg_noise_pred", "noise_pred, neg_noise_pred = neg_noise_pred, noise_pred; comb_pred = neg_noise_pred")), world=COARSE_SQUARE)
fault("pipeline.index_in_the_positive_pass", "pipeline", TIME, "timestep.index_as_value",
      CALL((POSITIVE_TIME, POSITIVE_TIME.replace("timestep / 1000", "torch.full_like(timestep, i)"))))
fault("pipeline.two_not_denormalised", "pipeline", "checkpoint:latents_denormalized", "latents.not_denormalised",
      CALL((DENORMALISED, "latents = latents.clone()")), world=COARSE_TWO)
fault("pipeline.embeddings_padded_in_front", "pipeline", "checkpoint:prompt_embeds", ("layout.shifted", "layout.rolled", "layout.permuted"),
      lambda p: code(p, "_get_qwen_prompt_embeds", ("[u, u.new_zeros(max_seq_len - u.size(0), u.size(1))]", "[u.new_zeros(max_seq_len - u.size(0), u.size(1)), u]")), world=TWO)

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.fifth_output_transposed", "weights", f"output:{T}.4.attn.to_out.0", ("linear.transposed_weight", "weights.transposed"),
      lambda p: weights(block(p, 4).attn.to_out[0], lambda w: w.update(weight=w["weight"].T)), world=COARSE_QUAY)
fault("weights.image_keys_and_values", "weights", f"output:{T}.2.attn.to_k", ("linear.other_weight", "attention.qkv_exchanged", "weights.parts_exchanged"),
      lambda p: weights(block(p, 2).attn, lambda w: [swap(f"to_k.{n}", f"to_v.{n}")(w) for n in ("weight", "bias")]), world=TWO)
fault("weights.query_of_the_block_before", "weights", f"output:{T}.4.attn.to_q", "linear.other_weight",
      lambda p: of_another(block(p, 4).attn.to_q, block(p, 3).attn.to_q))
fault("weights.second_mlp_repeated", "weights", f"output:{E}.2.mlp.gate_proj", "linear.other_weight", lambda p: one_mlp_repeated(p, 1), world=SQUARE)
fault("weights.fifth_text_mlp_not_loaded", "weights", f"output:{T}.4.txt_mlp.net.0.proj", ("linear.random_weight", "weights.random", "linear.different_weight"),
      lambda p: never_loaded(block(p, 4).txt_mlp.net[0].proj, 19))
fault("weights.groups_of_64_for_32", "weights", f"output:{T}.2.img_mlp.net.2", ("linear.weight_quantised", "weights.quantised"),
      lambda p: weights(block(p, 2).img_mlp.net[2], lambda w: w.update(weight=read_in_groups(w["weight"], 4, 32, 64))), world=TWO)

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.image_key_column_major", "capture", f"output:{T}.4.attn.to_k", ("layout.strided", "layout.axes"),
      change=at(f"{T}.4.attn.to_k", lambda x: x.transpose(-1, -2).reshape(x.shape)))
fault("capture.text_mlp_never_written", "capture", f"output:{T}.2.txt_mlp.net.2", "garbage.denormal",
      change=at(f"{T}.2.txt_mlp.net.2", lambda x: denormal_bits(x.shape, 19)), world=TWO)
fault("capture.fifth_key_norm_int32", "capture", f"output:{T}.4.attn.norm_k", "precision.integer",
      change=at(f"{T}.4.attn.norm_k", lambda x: x.to(torch.int32)), world=SQUARE)
