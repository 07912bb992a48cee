"""Mistakes that ports of this model really had, from the prompt's tokens to the files of weights, in models and sizes of their own.
By an author who had not read the rules."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import suite_01_every_stage as suite
from suite_01_every_stage import CALL, D, E, T, attention, block, layer, rope, scheduler, swap, up
from places import attended, class_method, joint_attention, method, result, rotate_halves, rotated
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 4 by 6 image tokens; 6 heads of 32; in the text encoder 8 heads on 2 key heads.
SIX = World(
    "sixth-six",
    {"seed": 61, "layers": 4, "heads": 6, "head_dim": 32, "axes": [8, 10, 14], "text_hidden": 128, "text_heads": 8, "text_kv_heads": 2,
     "text_layers": 3, "text_intermediate": 176, "vae_base": 10, "random_latent_stats": True},
    {"prompt": "Kyoto at dawn, wide view", "negative": "grey sky, rain", "width": 96, "height": 64, "steps": 3,
     "guidance": 4.0, "seed": 101},
)  # fmt: skip
# Taller than wide, an odd number of rows, one head as wide as the text is not.
TALL = World(
    "sixth-tall",
    {"seed": 62, "layers": 3, "heads": 2, "head_dim": 64, "text_hidden": 96, "text_heads": 3, "text_kv_heads": 1, "text_layers": 4,
     "text_intermediate": 120, "vae_res_blocks": 1},
    {"prompt": "a staircase seen from below", "negative": "people", "width": 48, "height": 144, "steps": 4, "guidance": 2.5, "seed": 102},
)  # fmt: skip
# Two prompts of different length: the shorter one is padded and masked.
PAIR = World(
    "sixth-pair",
    {"seed": 63, "layers": 2, "heads": 4, "head_dim": 32, "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["a blue door in a white wall, morning", "snow"], "negative": ["low quality", "cropped, signature, noise"],
     "width": 64, "height": 48, "steps": 2, "guidance": 6.0, "seed": 103},
)  # fmt: skip
MIDDLE = f"{D}.mid_block.attentions.0"
TEXT_ROPE = "output:text_encoder.model.rotary_emb.*"
IDS = ("input:text_encoder.*", "input:text_encoder.model.embed_tokens", "output:text_encoder.model.embed_tokens")


def fault(*arguments, world=SIX, **more):
    suite.fault(*arguments, world=world, **more)
    FAULTS.append(suite.FAULTS.pop())


def rotary(p):
    return p.text_encoder.model.language_model.rotary_emb


def softmax_over_queries(q, k, v):
    """[batch, tokens, heads, head size]: the scores are normalised along the wrong one of their two axes."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-2), v)


def unbiased(x, eps):
    """LayerNorm by a framework's std(), which divides by n - 1."""
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps)


def fused_by_heads(p, i):
    """A fused projection stored head by head (q, k, v of head 0, then of head 1, ...), cut into thirds."""

    def change(w):
        for kind in ("weight", "bias"):
            parts = [w[f"to_{name}.{kind}"].unflatten(0, (block(p, i).attn.heads, -1)) for name in "qkv"]
            for name, third in zip("qkv", torch.stack(parts, 1).flatten(0, 2).chunk(3)):
                w[f"to_{name}.{kind}"] = third.clone()

    return weights(block(p, i).attn, change)


def without_zero_points(w, bits, group):
    """Affine quantisation in groups, read back as steps alone."""
    x = w.reshape(-1, group)
    low, high = x.min(1, keepdim=True).values, x.max(1, keepdim=True).values
    step = (high - low) / (2**bits - 1)
    return (((x - low) / step).round() * step).reshape(w.shape)


# --- tokenizer ------------------------------------------------------------------------------------------------------
fault("tokenizer.lower_case", "tokenizer", IDS, ("input.other",),
      lambda p: code(p, "_get_qwen_prompt_embeds", ("template.format(e) for e in prompt", "template.format(e.lower()) for e in prompt")))
fault("tokenizer.negative_prompt_ignored", "tokenizer", IDS, (), kind="shape",
      plant=CALL(("prompt=negative_prompt,\n", "prompt=' ',\n")), world=TALL)

# --- text encoder ---------------------------------------------------------------------------------------------------
fault("text.llama_without_biases", "text encoder", f"output:{E}.0.self_attn.q_proj", "linear.bias_missing",
      lambda p: weights(p.text_encoder.model.language_model.layers, lambda w: w.update({n: v * 0 for n, v in w.items() if n.endswith("bias")})))
fault("text.rope_linear_scaling", "text encoder", TEXT_ROPE, "rotary.factor",
      lambda p: attribute(rotary(p), "inv_freq", rotary(p).inv_freq / 4), world=TALL)
fault("text.rope_angles_bf16", "text encoder", TEXT_ROPE, "precision.bf16",
      lambda p: code(rotary(p), "forward", ("freqs = position_ids[..., None].float() * self.inv_freq.to(device=x.device, dtype=torch.float)", "freqs = (position_ids[..., None].bfloat16() * self.inv_freq.bfloat16()).float()")))
fault("text.keys_in_rotation", "text encoder", f"input:{E}.2.self_attn.o_proj", "attention.key_groups", attention(tiled=True)(2))
fault("text.gated_after_product", "text encoder", f"input:{E}.1.mlp.act_fn", ("activation.other_input", "elementwise.added"),
      lambda p: code(layer(p, 1).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.gate_proj(x) * self.up_proj(x))")))
fault("text.not_gated", "text encoder", f"input:{E}.2.mlp.down_proj", ("activation.product_missing", "elementwise.missing", "stage.replaced"),
      lambda p: code(layer(p, 2).mlp, "forward", ("self.act_fn(self.gate_proj(x)) * self.up_proj(x)", "self.act_fn(self.gate_proj(x))")), world=TALL)
fault("text.residual_from_the_norm", "text encoder", (f"output:{E}.1", f"output:{E}.1.*"), "residual.other_input",
      lambda p: code(layer(p, 1), "forward", ("hidden_states = self.post_attention_layernorm(hidden_states)", "hidden_states = residual = self.post_attention_layernorm(hidden_states)")))
fault("text.last_layer_not_run", "text encoder", (f"output:{E}.3", f"output:{E}.3.*", "input:text_encoder.model.norm"),
      ("stage.replaced", "capture.other_stage", "residual.branch_missing"),
      lambda p: forward(layer(p, 3), lambda self, old, x, *a, **k: x), world=TALL)
fault("text.last_norm_bf16", "text encoder", "output:text_encoder.model.norm", "precision.bf16",
      lambda p: result(p.text_encoder.model.language_model.norm, lambda y: y.bfloat16().float()))

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.text_norm_one_plus", "dit", "output:transformer.txt_norm", "norm.one_plus_weight",
      lambda p: forward(p.transformer.txt_norm, lambda self, old, x: old(x) + old(x) / self.weight))
fault("dit.text_rope_halves", "dit", attended(1), "rotary.style",
      lambda p: joint_attention(p, 1, *((line, f"{name} = rotate_halves({name}, txt_freqs)") for name, line in rotated("txt_query", "txt_key")),
                                rotate_halves=rotate_halves))
fault("dit.columns_not_centred", "dit", "output:transformer.pos_embed.0", "rotary.offset",
      lambda p: rope(p, "_compute_video_freqs", ("freqs_width = torch.cat([freqs_neg[2][-(width - width // 2) :], freqs_pos[2][: width // 2]], dim=0)", "freqs_width = freqs_pos[2][:width]")))
fault("dit.scale_of_all_heads", "dit", attended(2), "attention.scale",
      lambda p: joint_attention(p, 2, ("dropout_p=0.0,", "dropout_p=0.0,\n        scale=attn.inner_dim**-0.5,")))
fault("dit.softmax_over_queries", "dit", attended(0), "attention.softmax",
      lambda p: joint_attention(p, 0, ("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = softmax_over_queries(joint_query, joint_key, joint_value).flatten(2, 3)"),
                                softmax_over_queries=softmax_over_queries), world=TALL)
fault("dit.image_first", "dit", attended(2), ("attention.streams", "layout.shifted", "layout.rolled"),
      lambda p: joint_attention(p, 2, *((f"torch.cat([txt_{n}, img_{n}], dim=1)", f"torch.cat([img_{n}, txt_{n}], dim=1)") for n in ("query", "key", "value"))), world=TALL)
fault("dit.value_heads_innermost", "dit", attended(3), ("attention.heads", "layout.heads", "layout.interleaved"),
      lambda p: joint_attention(p, 3, ("img_value = img_value.unflatten(-1, (-1, head_dim))", "img_value = img_value.unflatten(-1, (head_dim, -1)).transpose(-1, -2)"),
                                ("txt_value = txt_value.unflatten(-1, (-1, head_dim))", "txt_value = txt_value.unflatten(-1, (head_dim, -1)).transpose(-1, -2)")))
fault("dit.attention_in_bf16", "dit", attended(3), "precision.bf16",
      lambda p: joint_attention(p, 3, *((f"    joint_{n},\n", f"    joint_{n}.bfloat16(),\n") for n in ("query", "key", "value")),
                                ("joint_hidden_states = joint_hidden_states.to(joint_query.dtype)", "joint_hidden_states = joint_hidden_states.float()")))
fault("dit.gate_of_the_text", "dit", f"input:{T}.1.img_norm2", "gate.other_part",
      lambda p: code(block(p, 1), "forward", ("hidden_states = hidden_states + img_gate1 * img_attn_output", "hidden_states = hidden_states + txt_gate1 * img_attn_output")))
fault("dit.text_mlp_not_normed", "dit", f"input:{T}.1.txt_mlp", ("norm.missing", "residual.other_input"),
      lambda p: code(block(p, 1), "forward", ("self._modulate(txt_normed2, txt_mod2)", "self._modulate(encoder_hidden_states, txt_mod2)")))
fault("dit.text_scale_is_gate", "dit", f"input:{T}.2.attn.encoder_hidden_states", "modulate.other_part",
      lambda p: code(block(p, 2), "forward", ("self._modulate(txt_normed, txt_mod1)", "self._modulate(txt_normed, torch.cat([txt_mod1.chunk(3, -1)[k] for k in (0, 2, 1)], -1))")), world=SIX.in_precision("bf16"))
fault("dit.layernorm_unbiased", "dit", f"output:{T}.0.img_norm2", ("norm.kind", "norm.factor", "affine.scale"),
      lambda p: forward(block(p, 0).img_norm2, lambda self, old, x: unbiased(x, self.eps)), world=TALL)
fault("dit.time_silu_twice", "dit", "output:transformer.time_text_embed", "activation.added",
      lambda p: result(p.transformer.time_text_embed, F.silu))
fault("dit.last_norm_without_silu", "dit", "output:transformer.norm_out.silu", "activation.missing",
      lambda p: forward(p.transformer.norm_out.silu, lambda self, old, x: x))

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.padded_on_both_ends", "vae", f"output:{D}.up_blocks.1.resnets.0.conv1", "convolution.temporal_tap",
      lambda p: code(up(p, 1, 0).conv1, "forward", ("padding = list(self._padding)", "padding = list(self._padding)\n    padding[4:] = [1, 1]")))
fault("vae.padding_reflected", "vae", f"output:{D}.up_blocks.2.upsamplers.0.resample.1", "convolution.padding",
      lambda p: forward(p.vae.decoder.up_blocks[2].upsamplers[0].resample[1], lambda self, old, x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.weight, self.bias)))
fault("vae.upsampled_bicubic", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.0", "resample.kind",
      lambda p: attribute(p.vae.decoder.up_blocks[1].upsamplers[0].resample[0], "mode", "bicubic"))
fault("vae.shortcut_from_the_norm", "vae", f"output:{D}.up_blocks.0.resnets.2", "residual.other_input",
      lambda p: code(up(p, 0, 2), "forward", ("x = self.norm1(x)", "x = h = self.norm1(x)")))

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.linear_shift", "scheduler", "checkpoint:latents", "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("self.time_shift(mu, 1.0, sigmas)", "self._time_shift_linear(mu, 1.0, sigmas)")))
fault("scheduler.shift_of_pixels", "scheduler", "checkpoint:latents", "scheduler.sigmas",
      CALL(("image_seq_len = latents.shape[1]", "image_seq_len = height * width")), world=TALL)
fault("scheduler.last_step_short", "scheduler", "checkpoint:latents", ("scheduler.sigmas", "scheduler.dt", "scheduler.step_index"),
      lambda p: scheduler(p, "set_timesteps", ("torch.cat([sigmas, torch.zeros(1, device=sigmas.device)])", "torch.cat([sigmas, sigmas[-1:] / 2])")))
fault("pipeline.timestep_bf16", "pipeline", "input:transformer.timestep", "precision.bf16",
      CALL(("timestep=timestep / 1000", "timestep=(timestep / 1000).bfloat16().float()")))
fault("pipeline.norms_upside_down", "pipeline", "checkpoint:noise_pred", "guidance.rescale",
      CALL(("cond_norm / noise_norm", "noise_norm / cond_norm")), world=PAIR)
fault("pipeline.noise_channels_last", "pipeline", "checkpoint:initial_latents_packed", ("layout.packing", "layout.permuted", "layout.axes", "latents.other_noise"),
      lambda p: class_method(p, "prepare_latents", ("latents = randn_tensor(shape, generator=generator, device=device, dtype=dtype)", "latents = randn_tensor((batch_size, 1, height, width, num_channels_latents), generator=generator, device=device, dtype=dtype).permute(0, 1, 4, 2, 3).contiguous()")))

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.last_norm_halves", "weights", "output:transformer.norm_out.linear", "layout.parts_exchanged",
      lambda p: weights(p.transformer.norm_out.linear, lambda w: w.update({n: torch.cat(v.chunk(2)[::-1]) for n, v in w.items()})))
fault("weights.text_norms_exchanged", "weights", f"output:{T}.0.attn.norm_added_q", "norm.other_weight",
      lambda p: weights(block(p, 0).attn, swap("norm_added_q.weight", "norm_added_k.weight")), world=PAIR)
fault("weights.fused_by_heads", "weights", f"output:{T}.2.attn.to_q", ("linear.other_weight", "linear.different_weight"),
      lambda p: fused_by_heads(p, 2))
fault("weights.zero_points_missing", "weights", f"output:{T}.0.attn.add_k_proj", ("linear.weight_quantised", "linear.different_weight"),
      lambda p: weights(block(p, 0).attn.add_k_proj, lambda w: w.update(weight=without_zero_points(w["weight"], 4, 32))))
fault("weights.fp8_scale_ignored", "weights", f"output:{T}.2.txt_mlp.net.2", ("linear.weight_scaled", "affine.scale"),
      lambda p: weights(block(p, 2).txt_mlp.net[2], lambda w: w.update(weight=w["weight"] / w["weight"].abs().max() * 448)))
