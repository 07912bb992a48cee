"""The planted faults. Each names the tensor that must be found first and the cause that must be named."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn.functional as F
from diffusers.models.transformers import transformer_qwenimage as dit
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from planting import attribute, code, forward, weights
from worlds import World


@dataclass
class Fault:
    id: str
    area: str
    stage: tuple[str, ...]  # "role:name" globs, any of them
    causes: tuple[str, ...]  # accepted ids, any of them
    plant: Callable | None = None  # pipeline → context manager
    change: Callable | None = None  # of what is captured
    kind: str | None = None
    settings: dict = field(default_factory=dict)
    dtype: str = "f32"
    world: World | None = None  # of both runs; None: the one the suite is run in


FAULTS: list[Fault] = []


def fault(id, area, stage, causes, plant=None, **more):
    stage = (stage,) if isinstance(stage, str) else tuple(stage)
    causes = (causes,) if isinstance(causes, str) else tuple(causes)
    FAULTS.append(Fault(id, area, stage, causes, plant, **more))


def block(pipe, i):
    return pipe.transformer.transformer_blocks[i]


def layer(pipe, i):
    return pipe.text_encoder.model.language_model.layers[i]


def up(pipe, i, j):
    return pipe.vae.decoder.up_blocks[i].resnets[j]


T = "transformer.transformer_blocks"
E = "text_encoder.model.layers"
D = "vae.decoder"

# --- text encoder ---------------------------------------------------------------------------------------------------
ATTEND = "input:" + E + ".{}.self_attn.o_proj"

def interleaved(q, k, cos, sin, unsqueeze_dim=1):
    half = cos.shape[-1] // 2
    c, s = (t[..., :half].unsqueeze(unsqueeze_dim) for t in (cos, sin))

    def turn(x):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    return turn(q), turn(k)


fault("text.rope_interleaved", "text encoder", ATTEND.format(0), "rotary.style",
      lambda p: attribute(qwen, "apply_rotary_pos_emb", interleaved))
fault("text.rope_sign", "text encoder", ATTEND.format(0), "rotary.sign",
      lambda p: code(qwen, "apply_rotary_pos_emb", ("(q * cos) + (rotate", "(q * cos) - (rotate"), ("(k * cos) + (rotate", "(k * cos) - (rotate")))
fault("text.rope_q_only", "text encoder", ATTEND.format(0), "rotary.one_side",
      lambda p: code(qwen, "apply_rotary_pos_emb", ("k_embed = (k * cos) + (rotate_half(k) * sin)", "k_embed = k")))
fault("text.rope_theta", "text encoder", "output:text_encoder.model.rotary_emb.*", "rotary.theta",
      lambda p: attribute(p.text_encoder.model.language_model.rotary_emb, "inv_freq",
                          1.0 / (1e4 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16))))


def eager(module, q, k, v, mask, scaling, causal=True, tiled=False, **_):
    groups = module.num_key_value_groups
    repeat = (lambda x: x.repeat(1, groups, 1, 1)) if tiled else (lambda x: x.repeat_interleave(groups, 1))
    scores = q @ repeat(k).transpose(2, 3) * scaling
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
    return (scores.softmax(-1) @ repeat(v)).transpose(1, 2).contiguous(), None


def attention(**options):
    line = "attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )"
    def plant(i):
        def apply(p):
            import functools
            qwen.planted_attention = functools.partial(eager, **options)
            return code(layer(p, i).self_attn, "forward", (line, "attention_interface = planted_attention"))
        return apply
    return plant


fault("text.mask_missing", "text encoder", ATTEND.format(1), "attention.mask_missing", attention(causal=False)(1))
fault("text.gqa_tiled", "text encoder", ATTEND.format(0), "attention.key_groups", attention(tiled=True)(0))
fault("text.scale_missing", "text encoder", ATTEND.format(0), "attention.scale",
      lambda p: attribute(layer(p, 0).self_attn, "scaling", 1.0))
fault("text.layernorm", "text encoder", f"output:{E}.1.input_layernorm", "norm.kind",
      lambda p: code(layer(p, 1).input_layernorm, "forward",
                     ("variance = hidden", "hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)\n    variance = hidden")))
fault("text.norm_eps", "text encoder", f"output:{E}.0.post_attention_layernorm", "norm.eps",
      lambda p: attribute(layer(p, 0).post_attention_layernorm, "variance_epsilon", 1e-3))
fault("text.norm_one_plus", "text encoder", f"output:{E}.0.input_layernorm", "norm.one_plus_weight",
      lambda p: code(layer(p, 0).input_layernorm, "forward", ("return self.weight *", "return (1 + self.weight) *")))
fault("text.norm_weight_missing", "text encoder", f"output:{E}.1.post_attention_layernorm", "norm.weight_missing",
      lambda p: code(layer(p, 1).post_attention_layernorm, "forward", ("self.weight * ", "")))
fault("text.gelu_for_silu", "text encoder", f"output:{E}.0.mlp.act_fn", "activation.kind",
      lambda p: forward(layer(p, 0).mlp.act_fn, lambda self, old, x: F.gelu(x)))
fault("text.gate_up", "text encoder", f"input:{E}.1.mlp.act_fn", ("activation.gate_up_exchanged", "stage.replaced"),
      lambda p: code(layer(p, 1).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.up_proj(x)) * self.gate_proj(x)")))
fault("text.residual_missing", "text encoder", (f"input:{E}.1.post_attention_layernorm",), "residual.missing",
      lambda p: code(layer(p, 1), "forward", ("hidden_states = residual + hidden_states\n\n    # Fully", "\n    # Fully")))
fault("text.final_norm_missing", "text encoder", "output:text_encoder.model.norm", "norm.missing",
      lambda p: forward(p.text_encoder.model.language_model.norm, lambda self, old, x: x))
fault("text.drop_off_by_one", "text encoder", "checkpoint:prompt_embeds", "layout.shifted",
      lambda p: code(p, "_get_qwen_prompt_embeds", ("e[drop_idx:] for", "e[drop_idx - 1:-1] for")))

# --- diffusion transformer -------------------------------------------------------------------------------------------
IMG_IN = "input:" + T + ".{}.attn.hidden_states"
fault("dit.shift_scale", "dit", IMG_IN.format(1), "modulate.shift_scale_exchanged",
      lambda p: code(block(p, 1), "_modulate", ("shift, scale, gate = mod_params", "scale, shift, gate = mod_params")))
fault("dit.one_plus_missing", "dit", IMG_IN.format(0), "modulate.one_plus_missing",
      lambda p: code(block(p, 0), "_modulate", ("x * (1 + scale_result)", "x * scale_result")))
fault("dit.mod_sets_exchanged", "dit", IMG_IN.format(2), "modulate.other_part",
      lambda p: code(block(p, 2), "forward", ("img_mod1, img_mod2 =", "img_mod2, img_mod1 =")))
fault("dit.modulation_missing", "dit", IMG_IN.format(0), ("modulate.missing", "stage.replaced"),
      lambda p: code(block(p, 0), "_modulate", ("return x * (1 + scale_result) + shift_result", "return x")))
fault("dit.gate_missing", "dit", f"input:{T}.0.img_norm2", "gate.missing",
      lambda p: code(block(p, 0), "forward", ("hidden_states + img_gate1 * img_attn", "hidden_states + img_attn")))
fault("dit.gate_other", "dit", f"output:{T}.1.*", "gate.other_part",
      lambda p: code(block(p, 1), "forward", ("img_gate2 * img_mlp_output", "img_gate1 * img_mlp_output")))
fault("dit.residual_missing", "dit", f"output:{T}.2.*", "residual.missing",
      lambda p: code(block(p, 2), "forward", ("hidden_states = hidden_states + img_gate2 * img_mlp_output", "hidden_states = img_gate2 * img_mlp_output")))
fault("dit.residual_text_missing", "dit", f"input:{T}.0.txt_norm2", "residual.missing",
      lambda p: code(block(p, 0), "forward", ("encoder_hidden_states = encoder_hidden_states + txt_gate1", "encoder_hidden_states = txt_gate1")))
fault("dit.residual_normed", "dit", f"input:{T}.1.img_norm2", "residual.other_input",
      lambda p: code(block(p, 1), "forward", ("hidden_states = hidden_states + img_gate1", "hidden_states = img_normed + img_gate1")))
fault("dit.norm_out_order", "dit", "output:transformer.norm_out", "modulate.shift_scale_exchanged",
      lambda p: code(p.transformer.norm_out, "forward", ("scale, shift = torch", "shift, scale = torch")))
fault("dit.silu_missing", "dit", f"output:{T}.1.img_mod.0", "activation.missing",
      lambda p: forward(block(p, 1).img_mod[0], lambda self, old, x: x))
fault("dit.gelu_erf", "dit", f"output:{T}.0.img_mlp.net.0", "activation.kind",
      lambda p: attribute(block(p, 0).img_mlp.net[0], "approximate", "none"))
fault("dit.gelu_quick", "dit", f"output:{T}.2.txt_mlp.net.0", "activation.kind",
      lambda p: code(block(p, 2).txt_mlp.net[0], "gelu", ("return F.gelu(gate, approximate=self.approximate)", "return gate * torch.sigmoid(1.702 * gate)")))
fault("dit.txt_norm_missing", "dit", "output:transformer.txt_norm", "norm.missing",
      lambda p: forward(p.transformer.txt_norm, lambda self, old, x: x))
fault("dit.qk_norm_all_heads", "dit", f"output:{T}.0.attn.norm_q", "norm.axis",
      lambda p: code(block(p, 0).attn.norm_q, "forward", ("mean(-1, keepdim=True)", "mean((-1, -2), keepdim=True)")))
fault("dit.norm1_rms", "dit", f"output:{T}.1.img_norm1", "norm.kind",
      lambda p: forward(block(p, 1).img_norm1, lambda self, old, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)))
ROPE = ("x_rotated = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))", "freqs_cis = freqs_cis.unsqueeze(1)", "x_out = torch.view_as_real(x_rotated * freqs_cis).flatten(3)")
OUT0 = tuple(f"input:{T}.0.attn.{n}" for n in ("to_out.0", "to_add_out"))
fault("dit.rope_halves", "dit", OUT0, "rotary.style",
      lambda p: code(dit, "apply_rotary_emb_qwen", (ROPE[0], "x_rotated = torch.complex(*x.float().chunk(2, -1))"), (ROPE[2], "y = x_rotated * freqs_cis\n        x_out = torch.cat((y.real, y.imag), -1)")))
fault("dit.rope_sign", "dit", OUT0, "rotary.sign",
      lambda p: code(dit, "apply_rotary_emb_qwen", (ROPE[1], "freqs_cis = freqs_cis.unsqueeze(1).conj()")))
OUT1 = tuple(f"input:{T}.1.attn.{n}" for n in ("to_out.0", "to_add_out"))
fault("dit.rope_missing", "dit", OUT1, "rotary.missing",
      lambda p: processor(p, 1, ("if image_rotary_emb is not None:", "if False:")))
fault("dit.rope_not_centred", "dit", "output:transformer.pos_embed.*", ("rotary.offset",),
      lambda p: rope(p, "_compute_video_freqs", ("if self.scale_rope:", "if False:")))
fault("dit.rope_text_offset", "dit", "output:transformer.pos_embed.1", ("rotary.offset", "layout.shifted"),
      lambda p: rope(p, "forward", ("max_vid_index = max(height // 2, width // 2, max_vid_index)", "max_vid_index = max(height, width, max_vid_index)")))
fault("dit.rope_axes", "dit", "output:transformer.pos_embed.0", ("rotary.axes_exchanged",),
      lambda p: rope(p, "_compute_video_freqs", ("[freqs_frame, freqs_height, freqs_width]", "[freqs_frame, freqs_width, freqs_height]")))
fault("dit.rope_theta", "dit", "output:transformer.pos_embed.*", "rotary.theta",
      lambda p: theta(p, 1e6))
fault("dit.attention_scale", "dit", OUT1, "attention.scale",
      lambda p: processor(p, 1, ("dropout_p=0.0,", "dropout_p=0.0,\n        scale=1.0,")))
fault("dit.attention_causal", "dit", OUT0, "attention.mask_added",
      lambda p: processor(p, 0, ("is_causal=False", "is_causal=True")))
fault("dit.attention_qk_swapped", "dit", OUT0, "attention.qkv_exchanged",
      lambda p: processor(p, 0, ("    joint_query,\n        joint_key,", "    joint_key,\n        joint_query,")))
fault("dit.attention_norm_unused", "dit", OUT1, "attention.norm_missing",
      lambda p: processor(p, 1, ("img_query = attn.norm_q(img_query)", "attn.norm_q(img_query)"), ("txt_query = attn.norm_added_q(txt_query)", "attn.norm_added_q(txt_query)")))
fault("dit.heads_mixed", "dit", OUT0, ("layout.heads", "layout.strided", "layout.packing"),
      lambda p: processor(p, 0, ("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = torch.cat([x.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1) for x in joint_hidden_states.split([seq_txt, joint_hidden_states.shape[1] - seq_txt], 1)], 1)")))
fault("dit.streams_exchanged", "dit", OUT0, ("attention.streams", "layout.shifted", "layout.rolled"),
      lambda p: processor(p, 0, ("txt_attn_output = joint_hidden_states[:, :seq_txt, :]", "txt_attn_output = joint_hidden_states[:, -seq_txt:, :]"), ("img_attn_output = joint_hidden_states[:, seq_txt:, :]", "img_attn_output = joint_hidden_states[:, :-seq_txt, :]")))
fault("dit.time_cos_sin", "dit", "output:transformer.time_text_embed.time_proj", ("timestep.cos_sin_order", "layout.parts_exchanged"),
      lambda p: attribute(p.transformer.time_text_embed.time_proj, "flip_sin_to_cos", False))
fault("dit.time_factor", "dit", "output:transformer.time_text_embed.time_proj", "timestep.factor",
      lambda p: attribute(p.transformer.time_text_embed.time_proj, "scale", 1))
fault("dit.bias_missing", "dit", "output:transformer.proj_out", "linear.bias_missing",
      lambda p: forward(p.transformer.proj_out, lambda self, old, x: F.linear(x, self.weight)))
fault("dit.bf16_round", "dit", f"output:{T}.1.attn.to_v", ("precision.bf16", "linear.weight_rounded"),
      lambda p: forward(block(p, 1).attn.to_v, lambda self, old, x: old(x).to(torch.bfloat16).to(x.dtype)))
fault("dit.saturated", "dit", f"output:{T}.0.img_mlp.net.2", "precision.saturated",
      lambda p: forward(block(p, 0).img_mlp.net[2], lambda self, old, x: old(x).clamp(-1, 1)))
fault("dit.nan", "dit", f"output:{T}.2.attn.norm_k", "garbage.nan",
      lambda p: forward(block(p, 2).attn.norm_k, lambda self, old, x: torch.where(x > 1.8, torch.nan, old(x))))


def processor(p, i, *changes):
    """The attention processor is a plain object called through its class: a changed subclass takes its place."""
    from planting import changed_function

    old = block(p, i).attn.processor
    call = changed_function(type(old).__call__, *changes)
    return attribute(block(p, i).attn, "processor", type("Planted", (type(old),), {"__call__": call})())


def rope(p, name, *changes):
    from planting import changed_function

    import types

    function = changed_function(getattr(type(p.transformer.pos_embed), name), *changes)
    return attribute(p.transformer.pos_embed, name, types.MethodType(function, p.transformer.pos_embed))


@contextlib.contextmanager
def theta(p, value):
    rope_module = p.transformer.pos_embed
    other = type(rope_module)(theta=value, axes_dim=rope_module.axes_dim, scale_rope=True)
    with attribute(rope_module, "_get_device_freqs", lambda device: (other.pos_freqs, other.neg_freqs)):
        with attribute(rope_module, "_compute_video_freqs", lambda *a, **k: other._compute_video_freqs(*a, **k)):
            yield


# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.kernel_mirrored", "vae", f"output:{D}.up_blocks.0.resnets.1.conv1", "convolution.kernel_mirrored",
      lambda p: weights(up(p, 0, 1).conv1, lambda w: w.update(weight=w["weight"].flip(-1, -2))))
fault("vae.first_tap", "vae", f"output:{D}.conv_in", "convolution.temporal_tap",
      lambda p: weights(p.vae.decoder.conv_in, lambda w: w.update(weight=w["weight"].flip(2))))
fault("vae.padding_replicate", "vae", f"output:{D}.up_blocks.1.resnets.0.conv2", "convolution.padding",
      lambda p: code(up(p, 1, 0).conv2, "forward", ("x = F.pad(x, padding)", "x = F.pad(F.pad(x, padding[:4] + [0, 0], mode='replicate'), [0, 0, 0, 0] + padding[4:])")))
fault("vae.conv_bias_missing", "vae", f"output:{D}.conv_out", ("convolution.bias_missing", "affine.channel_offset"),
      lambda p: weights(p.vae.decoder.conv_out, lambda w: w.update(bias=w["bias"] * 0)))
fault("vae.norm_factor", "vae", f"output:{D}.up_blocks.0.resnets.0.norm1", ("norm.factor",),
      lambda p: code(up(p, 0, 0).norm1, "forward", ("normalized * self.scale *", "normalized *")))
fault("vae.relu", "vae", f"output:{D}.up_blocks.1.resnets.1.nonlinearity", ("activation.kind", "precision.saturated"),
      lambda p: forward(up(p, 1, 1).nonlinearity, lambda self, old, x: F.relu(x)))
fault("vae.residual_missing", "vae", f"output:{D}.up_blocks.2.resnets.1", ("residual.missing",),
      lambda p: code(up(p, 2, 1), "forward", ("return x + h", "return x")))
fault("vae.upsample_bilinear", "vae", f"output:{D}.up_blocks.0.upsamplers.0.resample.0", ("resample.kind",),
      lambda p: attribute(p.vae.decoder.up_blocks[0].upsamplers[0].resample[0], "mode", "bilinear"))
fault("vae.qkv_order", "vae", f"input:{D}.mid_block.attentions.0.proj", "attention.qkv_exchanged",
      lambda p: code(p.vae.decoder.mid_block.attentions[0], "forward", ("q, k, v = qkv.chunk", "q, v, k = qkv.chunk")))
fault("vae.attention_tiled", "vae", f"input:{D}.mid_block.attentions.0.proj", ("layout.strided", "layout.axes"),
      lambda p: code(p.vae.decoder.mid_block.attentions[0], "forward", ("x.squeeze(1).permute(0, 2, 1).reshape(", "x.squeeze(1).reshape(")))

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
STEP0 = "checkpoint:latents"
fault("scheduler.sign", "scheduler", STEP0, "scheduler.sign",
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = sigma - sigma_next")))
fault("scheduler.index", "scheduler", STEP0, "scheduler.step_index",
      lambda p: scheduler(p, "step", ("sigma_idx = self.step_index", "sigma_idx = min(self.step_index + 1, len(self.sigmas) - 2)")))
fault("scheduler.timesteps_for_sigmas", "scheduler", STEP0, "scheduler.scale",
      lambda p: scheduler(p, "step", ("dt = sigma_next - sigma", "dt = (sigma_next - sigma) / 1000")))
fault("scheduler.no_shift", "scheduler", STEP0, "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "pass")))
fault("scheduler.no_terminal", "scheduler", STEP0, "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("if self.config.shift_terminal:", "if False:")))


def scheduler(p, name, *changes):
    """In the class: the recorder puts its own wrapper into the instance."""
    from planting import changed_function

    return attribute(type(p.scheduler), name, changed_function(getattr(type(p.scheduler), name), *changes))


CALL = lambda *changes: (lambda p: pipeline_call(p, *changes))


def pipeline_call(p, *changes):
    from planting import changed_function

    return attribute(type(p), "__call__", torch.no_grad()(changed_function(type(p).__call__, *changes)))


TIME = "input:transformer.timestep"
fault("pipeline.timestep_scale", "pipeline", TIME, "timestep.scale", CALL(("timestep=timestep / 1000", "timestep=timestep")))
fault("pipeline.timestep_index", "pipeline", TIME, "timestep.index_as_value",
      CALL(("timestep=timestep / 1000", "timestep=torch.full_like(timestep, i)")))
fault("pipeline.cfg_exchanged", "pipeline", "checkpoint:noise_pred", "guidance.exchanged",
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)", "comb_pred = noise_pred + true_cfg_scale * (neg_noise_pred - noise_pred)")))
fault("pipeline.cfg_scale", "pipeline", "checkpoint:noise_pred", "guidance.scale",
      CALL(("neg_noise_pred + true_cfg_scale * (", "neg_noise_pred + (true_cfg_scale + 1) * (")))
fault("pipeline.cfg_no_rescale", "pipeline", "checkpoint:noise_pred", "guidance.rescale",
      CALL(("noise_pred = comb_pred * (cond_norm / noise_norm)", "noise_pred = comb_pred")))
fault("pipeline.not_denormalised", "pipeline", "checkpoint:latents_denormalized", "latents.not_denormalised",
      CALL(("latents = latents / latents_std + latents_mean", "pass")))
fault("pipeline.std_inverted", "pipeline", "checkpoint:latents_denormalized", "latents.std_inverted",
      CALL(("latents = latents / latents_std + latents_mean", "latents = latents * latents_std + latents_mean")))
fault("pipeline.mean_first", "pipeline", "checkpoint:latents_denormalized", "latents.order",
      CALL(("latents = latents / latents_std + latents_mean", "latents = (latents + latents_mean) / latents_std")))
fault("pipeline.unpack_order", "pipeline", "checkpoint:latents_denormalized", ("layout.packing", "layout.permuted", "layout.heads", "layout.interleaved"),
      lambda p: static(p, "_unpack_latents", ("permute(0, 3, 1, 4, 2, 5)", "permute(0, 3, 1, 5, 2, 4)")))
fault("pipeline.pack_order", "pipeline", "checkpoint:initial_latents_packed", ("layout.packing", "layout.interleaved", "layout.heads"),
      lambda p: static(p, "_pack_latents", ("permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 3, 5, 1)")))
fault("pipeline.other_seed", "pipeline", "checkpoint:initial_latents_packed", "latents.other_noise", settings={"seed": 8})
fault("pipeline.image_bgr", "pipeline", "checkpoint:image", ("layout.reversed",),
      change=lambda name, role, step, tags, value: value[..., ::-1].copy() if name == "image" else value)


def static(p, name, *changes):
    from planting import changed_function

    return attribute(type(p), name, staticmethod(changed_function(getattr(type(p), name), *changes)))


# --- weights -------------------------------------------------------------------------------------------------------------
def swap(a, b):
    def change(w):
        w[a], w[b] = w[b].clone(), w[a].clone()
    return change


fault("weights.q_k_exchanged", "weights", f"output:{T}.1.attn.to_q", "linear.other_weight", kind="weights",
      plant=lambda p: weights(block(p, 1).attn, lambda w: (swap("to_q.weight", "to_k.weight")(w), swap("to_q.bias", "to_k.bias")(w))))
fault("weights.neighbour_layer", "weights", f"output:{T}.1.img_mlp.net.0.proj", "linear.other_weight", kind="weights",
      plant=lambda p: weights(block(p, 1).img_mlp, lambda w: w.update({n: v.clone() for n, v in block(p, 2).img_mlp.named_parameters()})))
fault("weights.layer_repeated", "weights", f"output:{T}.1.img_mod.1", "linear.other_weight", kind="weights",
      plant=lambda p: weights(block(p, 1), lambda w: w.update({n: v.clone() for n, v in block(p, 0).named_parameters()})))
fault("weights.transposed", "weights", f"output:{T}.0.attn.to_k", "linear.transposed_weight", kind="weights",
      plant=lambda p: weights(block(p, 0).attn.to_k, lambda w: w.update(weight=w["weight"].T)))
fault("weights.transposed_out", "weights", f"output:{T}.2.attn.to_add_out", "linear.transposed_weight", kind="weights",
      plant=lambda p: weights(block(p, 2).attn.to_add_out, lambda w: w.update(weight=w["weight"].T)))
fault("weights.random", "weights", f"output:{T}.2.attn.to_v", "linear.random_weight", kind="weights",
      plant=lambda p: weights(block(p, 2).attn.to_v, lambda w: w.update(weight=(torch.rand(w["weight"].shape, generator=torch.Generator().manual_seed(5)) * 2 - 1) / math.sqrt(w["weight"].shape[1]))))
fault("weights.halves", "weights", f"output:{T}.0.img_mod.1", ("layout.parts_exchanged",),
      lambda p: weights(block(p, 0).img_mod[1], lambda w: w.update({n: torch.cat(v.chunk(2)[::-1]) for n, v in w.items()})))
fault("weights.thirds", "weights", f"output:{T}.2.txt_mod.1", ("layout.parts_exchanged",),
      lambda p: weights(block(p, 2).txt_mod[1], lambda w: w.update({n: torch.cat([v.chunk(6)[i] for i in (1, 0, 2, 4, 3, 5)]) for n, v in w.items()})))
fault("weights.q4_group32", "weights", f"output:{T}.1.attn.to_out.0", ("linear.weight_quantised",), kind="weights",
      plant=lambda p: weights(block(p, 1).attn.to_out[0], lambda w: w.update(weight=quantise(w["weight"], 4, 32))))
fault("weights.rounded", "weights", f"output:{E}.1.mlp.down_proj", ("linear.weight_rounded",), kind="weights",
      plant=lambda p: weights(layer(p, 1).mlp.down_proj, lambda w: w.update(weight=w["weight"].to(torch.float8_e4m3fn).float())))
fault("weights.input_halves", "weights", f"output:{T}.0.img_mlp.net.2", ("linear.input_parts_exchanged",), kind="weights",
      plant=lambda p: weights(block(p, 0).img_mlp.net[2], lambda w: w.update(weight=torch.cat(w["weight"].chunk(2, 1)[::-1], 1))))
fault("weights.conv_neighbour", "weights", f"output:{D}.up_blocks.3.resnets.1.conv1", "convolution.other_weight", kind="weights",
      plant=lambda p: weights(up(p, 3, 1).conv1, lambda w: w.update({n: v.clone() for n, v in up(p, 3, 2).conv1.named_parameters()})))
fault("weights.norm_other", "weights", f"output:{T}.1.attn.norm_k", ("norm.other_weight",), kind="weights",
      plant=lambda p: weights(block(p, 1).attn.norm_k, lambda w: w.update(weight=block(p, 1).attn.norm_q.weight.detach().clone())))


def quantise(w, bits, group):
    x = w.reshape(-1, group)
    low, high = x.min(1, keepdim=True).values, x.max(1, keepdim=True).values
    step = (high - low) / (2**bits - 1)
    return (((x - low) / step).round() * step + low).reshape(w.shape)


# --- capture -------------------------------------------------------------------------------------------------------------
def at(name, f, role="output", step=None):
    """Changes one captured tensor, in one pass of one step: the model itself is untouched."""
    def change(n, r, s, tags, value):
        hit = n == name and r == role and (step is None or s == step)
        return f(value) if hit else value
    return change


fault("capture.one_stage_early", "capture", f"output:{T}.1.attn.norm_q", ("capture.other_stage",), kind="capture",
      change=lambda n, r, s, tags, v, keep={}: capture_early(n, r, v, keep))
fault("capture.nhwc", "capture", f"output:{D}.up_blocks.1.resnets.0.conv1", (), kind="layout",
      change=at(f"{D}.up_blocks.1.resnets.0.conv1", lambda x: x.permute(0, 2, 3, 4, 1).contiguous()))
fault("capture.transposed_heads", "capture", f"output:{T}.0.attn.norm_k", (), kind="layout",
      change=at(f"{T}.0.attn.norm_k", lambda x: x.transpose(1, 2).contiguous()))
fault("capture.strided", "capture", f"output:{T}.1.img_mlp.net.0.proj", ("layout.strided",), kind="capture",
      change=at(f"{T}.1.img_mlp.net.0.proj", lambda x: x.transpose(1, 2).contiguous().reshape(x.shape)))
fault("capture.integer", "capture", f"output:{T}.0.img_norm1", ("precision.integer",), kind=None,
      change=at(f"{T}.0.img_norm1", lambda x: x.trunc()))
fault("capture.fp16_limit", "capture", f"output:{T}.2.img_mlp.net.2", ("precision.saturated",),
      change=at(f"{T}.2.img_mlp.net.2", lambda x: x.clamp(-0.7, 0.7)))
fault("capture.denormal", "capture", f"output:{T}.1.attn.to_k", ("garbage.denormal",),
      change=at(f"{T}.1.attn.to_k", lambda x: x * 1e-38))
fault("capture.zeros", "capture", f"output:{T}.0.txt_mlp.net.2", ("garbage.zeros",),
      change=at(f"{T}.0.txt_mlp.net.2", lambda x: x * 0))
fault("capture.overwritten", "capture", f"output:{T}.2.attn.to_q", ("capture.other_stage",), kind="capture",
      change=lambda n, r, s, tags, v, keep={}: overwritten(n, r, v, keep))
fault("capture.other_step", "capture", "checkpoint:noise_pred", ("capture.other_hit", "scheduler.other_prediction"), kind="capture",
      change=lambda n, r, s, tags, v, keep={}: other_step(n, s, tags, v, keep))


def capture_early(n, r, v, keep):
    if n == f"{T}.1.attn.to_q" and r == "output":
        keep["q"] = v.clone()
    if n == f"{T}.1.attn.norm_q" and r == "output":
        return keep["q"].reshape(v.shape)
    return v


def overwritten(n, r, v, keep):
    """The buffer of to_q was reused: what is on disk is the input of the module, another stage."""
    if n == f"{T}.2.attn.to_q" and r == "input":
        keep["x"] = v.clone()
    return keep["x"] if n == f"{T}.2.attn.to_q" and r == "output" else v


def other_step(n, s, tags, v, keep):
    if n == "noise_pred" and tags.get("pass") == "combined":
        keep.setdefault(s, v.clone())
        if s == 2:
            return keep[1]
    return v
