"""Norms, modulation, linear layers, activations, residuals and time embeddings done otherwise: neighbours of what blind_07 missed,
written down before it was tried whether they are found. For tuning, no measure."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F

from suite_01_every_stage import D, E, T, block, layer, up
from places import faults_of, method, result
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 3 by 5 image tokens of 4 heads of 24; in the text encoder 6 heads on 2 key heads.
ONE = World(
    "glue-one",
    {"seed": 141, "layers": 3, "heads": 4, "head_dim": 24, "axes": [4, 8, 12], "text_hidden": 96, "text_heads": 6, "text_kv_heads": 2,
     "text_layers": 3, "text_intermediate": 160},
    {"prompt": "a bicycle leaning on a red door", "negative": "noise", "width": 80, "height": 48, "steps": 3, "guidance": 4.0, "seed": 141},
)  # fmt: skip
TWO = World(
    "glue-two",
    {"seed": 142, "layers": 2, "heads": 2, "head_dim": 32, "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["snow on a roof", "a cat asleep beside an old radio"], "negative": ["blur", "frame, text"], "width": 64, "height": 80,
     "steps": 2, "guidance": 3.0, "seed": 142},
)  # fmt: skip
COARSE = ONE.in_precision("bf16")
fault = faults_of(FAULTS, ONE)
VARIANCE = "variance = hidden_states.pow(2).mean(-1, keepdim=True)"
HIDDEN = "input:" + T + ".{}.attn.hidden_states"
NORM2 = "input:" + T + ".{}.img_norm2"
EMBED = "output:transformer.time_text_embed"
FEATURES = "output:transformer.time_text_embed.time_proj"


def text_norm(i, name, *changes):
    return lambda p: code(getattr(layer(p, i), name), "forward", *changes)


def running_sum(x):
    """The sum of the squares as a loop over the channels would have it in bf16."""
    total = torch.zeros(x.shape[:-1], dtype=torch.bfloat16)
    for j in range(x.shape[-1]):
        total = total + x[..., j].pow(2).bfloat16()
    return (total / x.shape[-1]).float().unsqueeze(-1)


def rms(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def written_out(i, source):
    """The second norm of a layer written out where it is called."""
    return lambda p: method(layer(p, i), "forward", ("self.post_attention_layernorm(hidden_states)", source), rms=rms, F=F, other=layer(p, 0))


def modulate(i, *changes):
    return lambda p: code(block(p, i), "_modulate", *changes)


def in_block(i, *changes, **names):
    return lambda p: method(block(p, i), "forward", *changes, **names)


IMAGE = "img_mod_params = self.img_mod(temb)"
PARTS = "img_mod_params.chunk(2, dim=-1)"
SPLIT = "shift, scale, gate = mod_params.chunk(3, dim=-1)"
RETURN = "return x * (1 + scale_result) + shift_result, gate_result"
ATTENDED = "hidden_states = hidden_states + img_gate1 * img_attn_output"


def first_steps(p, i):
    """A cache of the time embedding that is never emptied."""
    kept = []

    def cached(self, old, temb):
        kept.append(temb)
        return old(kept[0])

    return forward(block(p, i).img_mod, cached)


def features(p, make):
    """make(t in thousandths, positions, half) → angles."""

    def changed(self, old, t):
        half = self.num_channels // 2
        angles = make(1000 * t[:, None].float(), torch.arange(half, dtype=torch.float32), half)
        return torch.cat([angles.cos(), angles.sin()], -1)

    return forward(p.transformer.time_text_embed.time_proj, changed)


@contextlib.contextmanager
def with_embedding(p):
    """The stream of the third layer starts from the embedding of the tokens again."""
    kept = {}

    def keep(self, old, ids):
        kept["x"] = old(ids)
        return kept["x"]

    again = ("hidden_states = residual + hidden_states\n\n    # Fully", "hidden_states = kept['x'] + hidden_states\n\n    # Fully")
    with forward(p.text_encoder.model.language_model.embed_tokens, keep), method(layer(p, 2), "forward", again, kept=kept):
        yield


def embedder(p):
    return p.transformer.time_text_embed.timestep_embedder


# --- norms -----------------------------------------------------------------------------------------------------------
fault("norm.running_sum_bf16", "norm", f"output:{E}.1.post_attention_layernorm", "precision.bf16",
      lambda p: method(layer(p, 1).post_attention_layernorm, "forward", (VARIANCE, "variance = running_sum(hidden_states)"), running_sum=running_sum))
fault("norm.statistic_of_bf16", "norm", f"output:{E}.0.input_layernorm", "precision.bf16",
      text_norm(0, "input_layernorm", (VARIANCE, "variance = hidden_states.bfloat16().float().pow(2).mean(-1, keepdim=True)")))
fault("norm.squares_f16", "norm", f"output:{E}.2.input_layernorm", "precision.f16",
      text_norm(2, "input_layernorm", (VARIANCE, "variance = hidden_states.pow(2).half().float().mean(-1, keepdim=True)")))
fault("norm.half_of_the_channels", "norm", f"output:{E}.1.input_layernorm", ("norm.axis", "norm.kind"),
      text_norm(1, "input_layernorm", (VARIANCE, "variance = hidden_states[..., : hidden_states.shape[-1] // 2].pow(2).mean(-1, keepdim=True)")))
fault("norm.padded_length", "norm", f"output:{E}.1.input_layernorm", ("norm.factor", "norm.kind"),
      text_norm(1, "input_layernorm", (VARIANCE, "variance = hidden_states.pow(2).sum(-1, keepdim=True) / 128")))
fault("norm.length", "norm", f"output:{E}.0.post_attention_layernorm", ("norm.factor", "norm.kind"),
      text_norm(0, "post_attention_layernorm", (VARIANCE, "variance = hidden_states.pow(2).sum(-1, keepdim=True)")))
fault("norm.variance_at_least", "norm", f"output:{E}.1.input_layernorm", ("norm.eps", "norm.kind"),
      text_norm(1, "input_layernorm", ("variance + self.variance_epsilon", "variance.clamp(min=float(variance.median()))")))
fault("norm.written_out_other_layer", "norm", (f"*:{E}.1.post_attention_layernorm", f"input:{E}.1.mlp"), "norm.other_weight",
      written_out(1, "rms(hidden_states, other.post_attention_layernorm.weight)"))
fault("norm.written_out_layer_norm", "norm", f"input:{E}.1.mlp", "norm.kind",
      written_out(1, "F.layer_norm(hidden_states, hidden_states.shape[-1:], self.post_attention_layernorm.weight, None, 1e-6)"))
fault("norm.written_out_without_weight", "norm", f"input:{E}.2.mlp", "norm.weight_missing", written_out(2, "rms(hidden_states, 1)"))
fault("norm.written_out_one_plus", "norm", f"input:{E}.0.mlp", "norm.one_plus_weight", written_out(0, "rms(hidden_states, 1 + self.post_attention_layernorm.weight)"))
fault("norm.weight_reversed", "norm", f"output:{E}.1.input_layernorm", ("norm.different_weight", "norm.other_weight"),
      lambda p: weights(layer(p, 1).input_layernorm, lambda w: w.update(weight=w["weight"].flip(0))))
fault("norm.instance_norm", "norm", f"output:{D}.up_blocks.1.resnets.0.norm1", ("norm.kind", "norm.axis"),
      lambda p: forward(up(p, 1, 0).norm1, lambda self, old, x: F.instance_norm(x) * self.gamma))
fault("norm.group_norm_of_three", "norm", f"output:{D}.up_blocks.2.resnets.0.norm2", ("norm.kind", "norm.axis"),
      lambda p: forward(up(p, 2, 0).norm2, lambda self, old, x: F.group_norm(x, 2, self.gamma.flatten(), eps=1e-5)), world=TWO)
fault("norm.layer_norm_of_pixels", "norm", f"output:{D}.up_blocks.0.resnets.0.norm1", "norm.kind",
      lambda p: forward(up(p, 0, 0).norm1, lambda self, old, x: F.layer_norm(x.movedim(1, -1), x.shape[1:2]).movedim(-1, 1) * self.gamma))
fault("norm.after_modulation", "norm", f"input:{T}.1.img_norm1", ("modulate.added", "affine.channel_scale_offset"),
      in_block(1, ("img_normed = self.img_norm1(hidden_states)\n", "img_modulated, img_gate1 = self._modulate(hidden_states, img_mod1, modulate_index)\n"),
               ("img_modulated, img_gate1 = self._modulate(img_normed, img_mod1, modulate_index)", "img_modulated = self.img_norm1(img_modulated)")))
fault("norm.text_skipped", "norm", (f"*:{T}.1.attn.encoder_hidden_states", f"*:{T}.1.txt_norm1"), ("norm.missing", "stage.replaced"),
      in_block(1, ("txt_normed = self.txt_norm1(encoder_hidden_states)", "txt_normed = encoder_hidden_states")))
# --- modulation ------------------------------------------------------------------------------------------------------
fault("modulation.three_innermost", "modulation", HIDDEN.format(1), ("modulate.other_part", "layout.interleaved"),
      modulate(1, (SPLIT, "shift, scale, gate = mod_params.unflatten(-1, (-1, 3)).unbind(-1)")))
fault("modulation.pairs_of_three", "modulation", HIDDEN.format(1), "modulate.other_part",
      in_block(1, (PARTS, "img_mod_params.unflatten(-1, (3, 2, -1)).transpose(-2, -3).flatten(-3).chunk(2, dim=-1)")))
fault("modulation.head_by_head", "modulation", HIDDEN.format(0), ("modulate.other_part", "layout.heads", "layout.strided"),
      in_block(0, (PARTS, "img_mod_params.unflatten(-1, (4, 6, -1)).transpose(-2, -3).flatten(-3).chunk(2, dim=-1)")))
fault("modulation.innermost_bf16", "modulation", f"input:{T}.1.attn.encoder_hidden_states", ("modulate.other_part", "layout.interleaved"),
      in_block(1, ("txt_mod_params.chunk(2, dim=-1)", "txt_mod_params.unflatten(-1, (-1, 6)).transpose(-1, -2).flatten(-2).chunk(2, dim=-1)")), world=COARSE)
fault("modulation.out_innermost", "modulation", "output:transformer.norm_out", ("modulate.other_part", "layout.interleaved"),
      lambda p: code(p.transformer.norm_out, "forward", ("scale, shift = torch.chunk(emb, 2, dim=1)", "scale, shift = emb.unflatten(-1, (-1, 2)).unbind(-1)")))
fault("modulation.one_channel_off", "modulation", HIDDEN.format(2), ("modulate.other_part", "layout.rolled", "layout.shifted"),
      in_block(2, (PARTS, "img_mod_params.roll(1, -1).chunk(2, dim=-1)")))
fault("modulation.reversed", "modulation", HIDDEN.format(2), ("modulate.other_part", "layout.reversed"), in_block(2, (PARTS, "img_mod_params.flip(-1).chunk(2, dim=-1)")))
fault("modulation.of_the_first_step", "modulation", (f"input:{T}.1.img_mod*", f"output:{T}.1.img_mod*"), ("capture.other_hit", "stage.replaced", "capture.other_stage"), lambda p: first_steps(p, 1))
fault("modulation.of_text_tokens", "modulation", f"input:{T}.1.img_mod*", "stage.replaced", in_block(1, (IMAGE, "img_mod_params = self.img_mod(encoder_hidden_states.mean(1))")))
fault("modulation.text_tokens_added", "modulation", f"input:{T}.0.img_mod*", "residual.added", in_block(0, (IMAGE, "img_mod_params = self.img_mod(temb + encoder_hidden_states.mean(1))")))
fault("modulation.silu_left_out", "modulation", f"input:{T}.1.img_mod.1", ("activation.missing", "stage.replaced"), lambda p: forward(block(p, 1).img_mod, lambda self, old, x: self[1](x)))
fault("modulation.shifted_before", "modulation", HIDDEN.format(0), ("modulate.form", "modulate.shift"), modulate(0, (RETURN, "return (x + shift_result) * (1 + scale_result), gate_result")))
fault("modulation.half_the_scale", "modulation", HIDDEN.format(1), "modulate.form", modulate(1, (RETURN, "return x * (1 + scale_result / 2) + shift_result, gate_result")))
fault("modulation.scale_held", "modulation", HIDDEN.format(1), ("modulate.form", "precision.saturated"),
      modulate(1, (RETURN, "return x * (1 + scale_result.clamp(-0.05, 0.05)) + shift_result, gate_result")))
fault("modulation.gate_on_the_sum", "modulation", NORM2.format(1), ("gate.form", "gate.added", "gate.missing", "modulate.added"),
      in_block(1, (ATTENDED, "hidden_states = (hidden_states + img_attn_output) * img_gate1")))
fault("modulation.gate_of_text", "modulation", NORM2.format(0), "gate.other_part", in_block(0, (ATTENDED, ATTENDED.replace("img_gate1", "txt_gate1"))))
fault("modulation.gate_innermost", "modulation", NORM2.format(2), ("gate.other_part", "layout.interleaved"),
      in_block(2, (ATTENDED, "hidden_states = hidden_states + img_mod_params.unflatten(-1, (-1, 6))[:, None, :, 2] * img_attn_output")))
# --- linear layers ---------------------------------------------------------------------------------------------------
fault("linear.bias_rolled", "linear", f"output:{T}.0.attn.to_q", ("linear.different_bias", "linear.other_bias", "layout.rolled"),
      lambda p: weights(block(p, 0).attn.to_q, lambda w: w.update(bias=w["bias"].roll(24))))
fault("linear.bias_negated", "linear", f"output:{T}.1.attn.add_k_proj", "linear.different_bias", lambda p: weights(block(p, 1).attn.add_k_proj, lambda w: w.update(bias=-w["bias"])))
fault("linear.half_loaded", "linear", f"output:{T}.1.img_mlp.net.2", ("linear.zero_weight", "linear.different_weight", "garbage.zeros"),
      lambda p: weights(block(p, 1).img_mlp.net[2], lambda w: w["weight"][48:].zero_()))
fault("linear.rows_of_length_one", "linear", f"output:{T}.0.txt_mlp.net.0.proj", "linear.weight_row_scale",
      lambda p: weights(block(p, 0).txt_mlp.net[0].proj, lambda w: w.update(weight=F.normalize(w["weight"], dim=1))))
fault("linear.columns_scaled", "linear", f"output:{E}.1.mlp.up_proj", ("linear.weight_scaled", "linear.different_weight"),
      lambda p: weights(layer(p, 1).mlp.up_proj, lambda w: w.update(weight=w["weight"] * torch.linspace(0.5, 2, 96))))
fault("linear.result_bf16", "linear", f"output:{T}.1.attn.to_out.0", "precision.bf16", lambda p: result(block(p, 1).attn.to_out[0], lambda y: y.bfloat16().float()))
fault("linear.scales_of_the_norm", "linear", f"output:{E}.1.self_attn.q_proj", ("linear.weight_scaled", "linear.different_weight", "modulate.added", "norm.weight_use"),
      lambda p: weights(layer(p, 1).self_attn.q_proj, lambda w: w.update(weight=w["weight"] * layer(p, 1).input_layernorm.weight)))
# --- activations -----------------------------------------------------------------------------------------------------
fault("activation.held", "activation", f"output:{T}.1.img_mlp.net.0", ("activation.kind", "precision.saturated"), lambda p: result(block(p, 1).img_mlp.net[0], lambda y: y.clamp(-0.05, 0.3)))
fault("activation.in_bf16", "activation", f"output:{T}.0.img_mlp.net.0", "precision.bf16",
      lambda p: code(block(p, 0).img_mlp.net[0], "forward", ("self.gelu(hidden_states)", "self.gelu(hidden_states.bfloat16()).float()")))
fault("activation.after_the_last", "activation", f"output:{T}.1.txt_mlp.net.2", "activation.added", lambda p: result(block(p, 1).txt_mlp.net[2], lambda y: F.gelu(y, approximate="tanh")))
fault("activation.up_plus_one", "activation", f"input:{E}.1.mlp.down_proj", ("activation.product_missing", "activation.other_input", "activation.kind", "residual.added", "affine.offset"),
      lambda p: code(layer(p, 1).mlp, "forward", ("self.up_proj(x)", "(self.up_proj(x) + 1)")))
fault("activation.up_alone", "activation", (f"input:{E}.0.mlp.act_fn", f"input:{E}.0.mlp.down_proj"), ("activation.missing", "activation.product_missing", "stage.replaced"),
      lambda p: code(layer(p, 0).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.up_proj(x))")))
# --- residuals -------------------------------------------------------------------------------------------------------
FIRST = ("residual = hidden_states\n\n    hidden_states = self.input_layernorm", "first = residual = hidden_states\n\n    hidden_states = self.input_layernorm")
fault("residual.attention_lost", "residual", f"output:{E}.1", ("residual.other_input", "residual.branch_missing"),
      lambda p: code(layer(p, 1), "forward", FIRST, ("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual", "hidden_states = self.mlp(hidden_states)\n    hidden_states = first")))
fault("residual.side_by_side", "residual", NORM2.format(1), ("residual.branch_missing", "stage.replaced"),
      in_block(1, ("img_normed2 = self.img_norm2(hidden_states)", "img_normed2 = self.img_norm2(hidden_states - img_gate1 * img_attn_output)")))
fault("residual.from_modulated", "residual", NORM2.format(0), "residual.other_input", in_block(0, (ATTENDED, "hidden_states = img_modulated + img_gate1 * img_attn_output")))
fault("residual.shared", "residual", f"input:{E}.2.post_attention_layernorm", ("affine.scale", "residual.factor"),
      lambda p: code(layer(p, 2), "forward", ("hidden_states = residual + hidden_states\n\n    # Fully", "hidden_states = (residual + hidden_states) * 0.5**0.5\n\n    # Fully")))
fault("residual.attention_doubled", "residual", f"input:{E}.1.post_attention_layernorm", "residual.factor",
      lambda p: code(layer(p, 1), "forward", ("hidden_states = residual + hidden_states\n\n    # Fully", "hidden_states = residual + 2 * hidden_states\n\n    # Fully")))
fault("residual.of_the_other_stream", "residual", f"input:{T}.1.txt_norm2", ("residual.other_input", "residual.added"),
      in_block(1, ("encoder_hidden_states = encoder_hidden_states + txt_gate1 * txt_attn_output", "encoder_hidden_states = encoder_hidden_states + txt_gate1 * txt_attn_output + txt_modulated")))
fault("residual.shortcut_missing", "residual", f"output:{D}.up_blocks.1.resnets.0", "residual.missing", lambda p: code(up(p, 1, 0), "forward", ("return x + h", "return x")))
# --- time embedding --------------------------------------------------------------------------------------------------
fault("time.exponent_by_width", "time", FEATURES, "timestep.theta", lambda p: features(p, lambda t, i, half: t * torch.exp(-9.210340371976184 * i / (2 * half))))
fault("time.base_two", "time", FEATURES, "timestep.theta", lambda p: features(p, lambda t, i, half: t * torch.exp2(-torch.log10(torch.tensor(10000.0)) * i / half)))
fault("time.counted_from_one", "time", FEATURES, ("timestep.theta", "timestep.factor"), lambda p: features(p, lambda t, i, half: t * torch.exp(-9.210340371976184 * (i + 1) / half)))
fault("time.silu_left_out", "time", ("*:transformer.time_text_embed.timestep_embedder.linear_2", "*:transformer.time_text_embed.timestep_embedder.act"), ("activation.missing", "stage.replaced"),
      lambda p: attribute(embedder(p), "act", None))
fault("time.one_layer", "time", ("output:transformer.time_text_embed.timestep_embedder", EMBED), "stage.replaced",
      lambda p: code(embedder(p), "forward", ("sample = self.linear_2(sample)", "sample = sample")))
fault("time.bias_once_more", "time", EMBED, ("linear.bias_doubled", "linear.other_bias", "affine.channel_offset"), lambda p: result(p.transformer.time_text_embed, lambda y: y + embedder(p).linear_2.bias))
fault("time.vector_for_each_channel", "time", EMBED, "affine.channel_scale", lambda p: result(p.transformer.time_text_embed, lambda y: y * torch.linspace(0.5, 1.5, y.shape[-1])))
fault("time.normalised", "time", EMBED, ("norm.added", "affine.row_scale", "affine.scale"), lambda p: result(p.transformer.time_text_embed, lambda y: F.rms_norm(y, y.shape[-1:])))
fault("time.silu_on_the_result", "time", EMBED, "activation.added", lambda p: result(p.transformer.time_text_embed, F.silu))
# --- a second round, written after the first was mended ----------------------------------------------------------------
fault("norm.along_the_width", "norm", f"output:{D}.up_blocks.1.resnets.1.norm1", ("norm.axis", "norm.kind"),
      lambda p: forward(up(p, 1, 1).norm1, lambda self, old, x: F.normalize(x, dim=-1) * self.scale * self.gamma))
fault("norm.along_the_tokens", "norm", f"output:{T}.1.img_norm1", ("norm.axis", "norm.kind"),
      lambda p: forward(block(p, 1).img_norm1, lambda self, old, x: F.layer_norm(x.transpose(1, 2), x.shape[1:2], eps=1e-6).transpose(1, 2)))
fault("norm.written_out_between", "norm", f"input:{T}.1.img_mlp", ("norm.kind", "stage.replaced"),
      in_block(1, ("img_normed2 = self.img_norm2(hidden_states)", "img_normed2 = F.rms_norm(hidden_states, hidden_states.shape[-1:], eps=1e-6)"), F=F))
fault("norm.first_one_again", "norm", f"input:{T}.1.img_mlp", ("stage.replaced", "residual.other_input"),
      in_block(1, ("self._modulate(img_normed2, img_mod2, modulate_index)", "self._modulate(img_normed, img_mod2, modulate_index)")))
fault("norm.on_the_branch", "norm", NORM2.format(1), ("norm.added", "residual.factor"),
      in_block(1, (ATTENDED, "hidden_states = hidden_states + img_gate1 * F.layer_norm(img_attn_output, img_attn_output.shape[-1:])"), F=F))
fault("norm.of_the_sum", "norm", f"input:{E}.2.post_attention_layernorm", ("norm.added", "norm.twice", "affine.row_scale"),
      lambda p: code(layer(p, 2), "forward", ("hidden_states = residual + hidden_states\n\n    # Fully", "hidden_states = self.input_layernorm(residual + hidden_states)\n\n    # Fully")))
fault("norm.mean_only", "norm", f"output:{T}.0.txt_norm1", "norm.kind", lambda p: forward(block(p, 0).txt_norm1, lambda self, old, x: x - x.mean(-1, keepdim=True)))
fault("norm.last_layer_twice", "norm", ("*:text_encoder.model.norm", "checkpoint:prompt_embeds"), "norm.twice",
      lambda p: result(p.text_encoder.model.language_model.norm, lambda y: rms(y, p.text_encoder.model.language_model.norm.weight)))
fault("modulation.mlp_of_the_first", "modulation", f"input:{T}.1.img_mlp", ("stage.replaced", "modulate.other_part"),
      in_block(1, ("img_mlp_output = self.img_mlp(img_modulated2)", "img_mlp_output = self.img_mlp(img_modulated)")))
fault("modulation.mlp_unmodulated", "modulation", f"input:{T}.2.txt_mlp", ("modulate.missing", "stage.replaced"),
      in_block(2, ("txt_mlp_output = self.txt_mlp(txt_modulated2)", "txt_mlp_output = self.txt_mlp(txt_normed2)")))
fault("modulation.twice", "modulation", HIDDEN.format(1), ("modulate.added", "modulate.form"),
      in_block(1, ("img_modulated, img_gate1 = self._modulate(img_normed, img_mod1, modulate_index)",
                   "img_modulated, img_gate1 = self._modulate(self._modulate(img_normed, img_mod1, modulate_index)[0], img_mod1, modulate_index)")))
fault("modulation.without_its_bias", "modulation", f"output:{T}.1.img_mod.1", "linear.bias_missing", lambda p: weights(block(p, 1).img_mod[1], lambda w: w["bias"].zero_()))
fault("modulation.gate_of_the_mlp", "modulation", NORM2.format(1), "gate.other_part",
      in_block(1, (ATTENDED, "hidden_states = hidden_states + self._modulate(img_normed, img_mod2, modulate_index)[1] * img_attn_output")))
fault("modulation.gate_held", "modulation", NORM2.format(1), ("gate.form", "precision.saturated"), in_block(1, (ATTENDED, "hidden_states = hidden_states + img_gate1.clamp(min=0) * img_attn_output")))
fault("modulation.gate_only_half", "modulation", NORM2.format(0), ("gate.form", "gate.missing", "residual.branch_missing"),
      in_block(0, (ATTENDED, "img_gate1 = torch.cat([img_gate1[..., :48], torch.ones_like(img_gate1[..., 48:])], -1)\n    " + ATTENDED)))
fault("modulation.minus_shift", "modulation", HIDDEN.format(0), ("modulate.shift", "modulate.form"), modulate(0, (RETURN, "return x * (1 + scale_result) - shift_result, gate_result")))
fault("modulation.exponential", "modulation", HIDDEN.format(2), "modulate.form", modulate(2, (RETURN, "return x * scale_result.exp() + shift_result, gate_result")))
fault("modulation.in_f16", "modulation", HIDDEN.format(2), "precision.f16", modulate(2, (RETURN, "return x * (1 + scale_result.half().float()) + shift_result.half().float(), gate_result")))
fault("modulation.out_without_silu", "modulation", "*:transformer.norm_out.linear", ("activation.missing", "stage.replaced"),
      lambda p: code(p.transformer.norm_out, "forward", ("self.linear(self.silu(conditioning_embedding).to(x.dtype))", "self.linear(conditioning_embedding.to(x.dtype))")))
fault("linear.bias_after_rounding", "linear", f"output:{T}.0.attn.to_v", ("precision.bf16", "linear.different_bias", "linear.weight_rounded"),
      lambda p: weights(block(p, 0).attn.to_v, lambda w: w.update(bias=w["bias"].bfloat16().float(), weight=w["weight"].bfloat16().float())))
fault("linear.other_stream", "linear", f"output:{T}.1.attn.add_v_proj", "linear.other_weight", lambda p: weights(block(p, 1).attn.add_v_proj, lambda w: w.update(weight=block(p, 1).attn.to_v.weight.data.clone(), bias=block(p, 1).attn.to_v.bias.data.clone())))
fault("linear.absolute_maximum", "linear", f"output:{T}.1.txt_mlp.net.2", ("linear.weight_scaled", "linear.weight_row_scale"),
      lambda p: weights(block(p, 1).txt_mlp.net[2], lambda w: w.update(weight=w["weight"] / w["weight"].abs().amax(1, keepdim=True))))
fault("linear.input_transposed", "linear", f"output:{T}.1.img_mlp.net.2", "linear.input_parts_exchanged",
      lambda p: weights(block(p, 1).img_mlp.net[2], lambda w: w.update(weight=w["weight"].unflatten(1, (4, -1)).transpose(1, 2).flatten(1))))
fault("linear.first_rows_twice", "linear", f"output:{E}.0.self_attn.q_proj", ("linear.different_weight", "layout.repeated", "layout.parts_exchanged", "layout.permuted"),
      lambda p: weights(layer(p, 0).self_attn.q_proj, lambda w: w.update(weight=torch.cat([w["weight"][:48]] * 2), bias=torch.cat([w["bias"][:48]] * 2))))
fault("activation.leaky", "activation", f"output:{E}.1.mlp.act_fn", "activation.kind", lambda p: forward(layer(p, 1).mlp.act_fn, lambda self, old, x: F.leaky_relu(x, 0.05)))
fault("activation.gate_twice", "activation", f"input:{E}.1.mlp.down_proj", ("activation.other_input", "activation.product_missing", "activation.gate_up_exchanged"),
      lambda p: code(layer(p, 1).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.gate_proj(x)) * self.gate_proj(x)")))
fault("activation.before_the_gate", "activation", (f"input:{E}.2.mlp.gate_proj", f"*:{E}.2.mlp.act_fn"), ("activation.added", "activation.other_input", "stage.replaced"),
      lambda p: code(layer(p, 2).mlp, "forward", ("self.act_fn(self.gate_proj(x))", "self.gate_proj(self.act_fn(x))")))
fault("residual.text_unchanged", "residual", f"output:{T}.1.0", ("residual.branch_missing", "stage.replaced"), in_block(1, ("return encoder_hidden_states, hidden_states", "return encoder_hidden_states - txt_gate2 * txt_mlp_output, hidden_states")))
fault("residual.layer_left_out", "residual", f"output:{E}.1*", ("stage.replaced", "residual.branch_missing"), lambda p: forward(layer(p, 1), lambda self, old, hidden_states, **k: hidden_states))
fault("residual.mlp_halved", "residual", f"output:{T}.0.1", ("residual.factor", "gate.form"), in_block(0, ("hidden_states = hidden_states + img_gate2 * img_mlp_output", "hidden_states = hidden_states + 0.5 * img_gate2 * img_mlp_output")))
fault("residual.stream_in_f16", "residual", f"output:{T}.1.1", "precision.f16", in_block(1, ("return encoder_hidden_states, hidden_states", "return encoder_hidden_states, hidden_states.half().float()")))
fault("residual.without_mean", "residual", NORM2.format(2), ("norm.added", "residual.other_input", "norm.kind"), in_block(2, (ATTENDED, ATTENDED + "\n    hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)")))
fault("time.half_of_the_features", "time", FEATURES, ("timestep.theta", "garbage.zeros"),
      lambda p: result(p.transformer.time_text_embed.time_proj, lambda y: F.pad(torch.cat([y[:, :128:2], y[:, 128::2]], -1), (0, 128))))
fault("time.linear_frequencies", "time", FEATURES, "timestep.theta", lambda p: features(p, lambda t, i, half: t * (1 - i / half)))
fault("time.in_degrees", "time", FEATURES, ("timestep.factor", "timestep.scale"), lambda p: features(p, lambda t, i, half: t * torch.exp(-9.210340371976184 * i / half) * torch.pi / 180))
fault("time.first_layer_twice", "time", "output:transformer.time_text_embed.timestep_embedder.linear_2", "linear.other_weight",
      lambda p: weights(embedder(p).linear_2, lambda w: w.update(weight=block(p, 0).attn.to_q.weight.data.clone())))
# --- a third round -----------------------------------------------------------------------------------------------------
fault("norm.second_called_first", "norm", (f"*:{D}.up_blocks.1.resnets.1.nonlinearity", f"*:{D}.up_blocks.1.resnets.1.norm2"), ("norm.other_weight", "norm.different_weight", "stage.replaced"),
      lambda p: code(up(p, 1, 1), "forward", ("x = self.norm1(x)", "x = self.norm2(x)")))
fault("norm.whole_in_bf16", "norm", "output:transformer.norm_out.norm", "precision.bf16", lambda p: forward(p.transformer.norm_out.norm, lambda self, old, x: old(x.bfloat16()).float()))
fault("norm.sample_variance", "norm", f"output:{T}.1.img_norm1", "norm.kind", lambda p: forward(block(p, 1).img_norm1, lambda self, old, x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)))
fault("norm.mean_magnitude", "norm", f"output:{E}.1.input_layernorm", "norm.kind",
      text_norm(1, "input_layernorm", (VARIANCE, "variance = hidden_states.abs().mean(-1, keepdim=True).pow(2)")))
fault("norm.root_left_out", "norm", f"output:{E}.0.input_layernorm", ("norm.kind", "affine.row_scale"),
      text_norm(0, "input_layernorm", ("torch.rsqrt(variance + self.variance_epsilon)", "1 / (variance + self.variance_epsilon)")))
fault("norm.statistic_of_the_first_token", "norm", f"output:{E}.2.post_attention_layernorm", ("norm.axis", "norm.kind", "affine.row_scale"),
      text_norm(2, "post_attention_layernorm", (VARIANCE, VARIANCE + "[:, :1]")))
fault("norm.weight_under_the_root", "norm", f"output:{E}.1.post_attention_layernorm", ("norm.weight_use", "norm.kind"),
      text_norm(1, "post_attention_layernorm", (VARIANCE, "variance = (hidden_states * self.weight).pow(2).mean(-1, keepdim=True)")))
fault("modulation.block_before", "modulation", (HIDDEN.format(1), f"*:{T}.1.img_mod*"), ("modulate.other_part", "linear.other_weight"),
      lambda p: method(block(p, 1), "forward", (IMAGE, "img_mod_params = other.img_mod(temb)"), other=block(p, 0)))
fault("modulation.tanh_of_scale", "modulation", HIDDEN.format(0), "modulate.form", modulate(0, (RETURN, "return x * (1 + scale_result.tanh()) + shift_result, gate_result")))
fault("modulation.gate_for_scale", "modulation", HIDDEN.format(1), "modulate.other_part", modulate(1, (SPLIT, "shift, gate, scale = mod_params.chunk(3, dim=-1)")))
fault("modulation.backwards", "modulation", HIDDEN.format(2), "modulate.other_part", modulate(2, (SPLIT, "gate, scale, shift = mod_params.chunk(3, dim=-1)")))
fault("modulation.mean_of_both", "modulation", HIDDEN.format(1), ("modulate.form", "modulate.other_part"), in_block(1, (PARTS, "((img_mod_params + txt_mod_params) / 2).chunk(2, dim=-1)")))
fault("modulation.sum_of_both", "modulation", f"input:{T}.0.attn.encoder_hidden_states", ("modulate.form", "modulate.other_part", "modulate.added"), in_block(0, ("txt_mod_params.chunk(2, dim=-1)", "(img_mod_params + txt_mod_params).chunk(2, dim=-1)")))
fault("modulation.text_of_no_time", "modulation", f"*:{T}.1.txt_mod*", ("garbage.zeros", "stage.replaced"), in_block(1, ("self.txt_mod(temb)", "self.txt_mod(torch.zeros_like(temb))")))
fault("modulation.norm_out_of_block", "modulation", ("output:transformer.norm_out", "*:transformer.norm_out*"), ("modulate.other_part", "modulate.shift_scale_exchanged", "stage.replaced", "linear.other_weight"),
      lambda p: method(p.transformer.norm_out, "forward", ("scale, shift = torch.chunk(emb, 2, dim=1)", "shift, scale = other.img_mod(conditioning_embedding).chunk(6, dim=1)[:2]"), other=block(p, 2)))
fault("linear.twice", "linear", f"output:{T}.1.attn.to_out.0", ("linear.twice", "stage.replaced"), lambda p: forward(block(p, 1).attn.to_out[0], lambda self, old, x: old(old(x))))
fault("linear.left_out", "linear", f"output:{E}.1.self_attn.o_proj", "stage.replaced", lambda p: forward(layer(p, 1).self_attn.o_proj, lambda self, old, x: x.clone()))
fault("linear.in_f16", "linear", f"output:{T}.0.txt_mlp.net.2", "precision.f16", lambda p: forward(block(p, 0).txt_mlp.net[2], lambda self, old, x: F.linear(x.half().float(), self.weight.half().float(), self.bias)))
fault("linear.rows_in_turns", "linear", f"output:{E}.1.mlp.gate_proj", "linear.other_weight",
      lambda p: weights(layer(p, 1).mlp.gate_proj, lambda w: w.update(weight=torch.stack([w["weight"], layer(p, 1).mlp.up_proj.weight.data], 1).flatten(0, 1)[: w["weight"].shape[0]])))
fault("linear.bias_for_one_token", "linear", f"output:{T}.1.attn.add_q_proj", "linear.bias_missing", lambda p: result(block(p, 1).attn.add_q_proj, lambda y: torch.cat([y[:, :1], y[:, 1:] - block(p, 1).attn.add_q_proj.bias], 1)))
fault("linear.negated", "linear", f"output:{T}.2.attn.to_k", "linear.weight_scaled", lambda p: weights(block(p, 2).attn.to_k, lambda w: w.update(weight=-w["weight"])))
fault("activation.of_half_the_channels", "activation", f"output:{T}.1.img_mlp.net.0", ("activation.missing", "activation.kind"),
      lambda p: forward(block(p, 1).img_mlp.net[0], lambda self, old, x: torch.cat([old(x)[..., :192], self.proj(x)[..., 192:]], -1)))
fault("activation.silu_of_the_sum", "activation", f"input:{E}.0.mlp.down_proj", "activation.other_input",
      lambda p: method(layer(p, 0).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "F.silu(self.gate_proj(x) + self.up_proj(x))"), F=F))
fault("residual.of_itself", "residual", NORM2.format(1), ("residual.other_input", "residual.branch_missing", "gate.added", "modulate.added"), in_block(1, (ATTENDED, "hidden_states = hidden_states + img_gate1 * hidden_states")))
fault("residual.of_the_embedding", "residual", f"input:{E}.2.post_attention_layernorm", ("residual.other_input", "stage.replaced"), with_embedding)
fault("residual.product", "residual", NORM2.format(1), ("residual.other_input", "elementwise.added"), in_block(1, (ATTENDED, "hidden_states = hidden_states * (1 + img_gate1 * img_attn_output)")))
fault("residual.mlp_twice", "residual", f"output:{E}.1", ("residual.factor", "residual.added"), lambda p:
      code(layer(p, 1), "forward", ("hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states", "hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states + hidden_states")))
fault("time.shortcut", "time", ("output:transformer.time_text_embed.timestep_embedder", EMBED), ("residual.added", "affine.channel_offset"),
      lambda p: code(embedder(p), "forward", ("sample = self.linear_2(sample)", "sample = self.linear_2(sample) + sample")))
fault("time.cosines_twice", "time", FEATURES, ("timestep.cos_sin_order", "layout.repeated", "layout.parts_exchanged", "timestep.sign"), lambda p: result(p.transformer.time_text_embed.time_proj, lambda y: torch.cat([y[:, :128], y[:, :128]], -1)))
fault("time.times_guidance", "time", EMBED, "affine.scale", lambda p: result(p.transformer.time_text_embed, lambda y: 4 * y))
fault("time.clipped", "time", EMBED, ("precision.saturated", "elementwise.function"), lambda p: result(p.transformer.time_text_embed, lambda y: y.clamp(-0.1, 0.1)))
