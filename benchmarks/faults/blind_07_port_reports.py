"""What people who ported this model got wrong, by their own reports and by the habits of the models they came from. By an author who
had not read the rules; causes were written down before any run."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from diffusers.models.embeddings import get_timestep_embedding
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from suite_01_every_stage import CALL, D, E, T, block, layer, rope, scheduler, up
from places import MIDDLE, attended, class_method, faults_of, joint_attention, method, middle, result, symmetric
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 5 by 7 image tokens: odd both ways; 5 heads with three axes of different size; in the text encoder 7 heads on one key head.
ODD = World(
    "seventh-odd",
    {"seed": 71, "layers": 3, "heads": 5, "head_dim": 32, "axes": [6, 12, 14], "text_hidden": 112, "text_heads": 7, "text_kv_heads": 1,
     "text_layers": 3, "text_intermediate": 144, "random_latent_stats": True},
    {"prompt": "a paper boat on a puddle after the rain", "negative": "low contrast, people", "width": 112, "height": 80, "steps": 3,
     "guidance": 4.5, "seed": 71},
)  # fmt: skip
# One row of tokens more than a strip; every head of the text encoder has a key head of its own.
STRIP = World(
    "seventh-strip",
    {"seed": 72, "layers": 2, "heads": 3, "head_dim": 64, "text_hidden": 128, "text_heads": 4, "text_kv_heads": 4, "text_layers": 4,
     "text_intermediate": 192, "vae_base": 12, "vae_res_blocks": 1},
    {"prompt": "an empty road, seen through a wet window", "negative": " ", "width": 128, "height": 48, "steps": 4, "guidance": 3.0, "seed": 72},
)  # fmt: skip
# Two prompts of different length: the shorter one is padded and masked.
PAIR = World(
    "seventh-pair",
    {"seed": 73, "layers": 2, "heads": 4, "head_dim": 32, "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["moss", "an orchard in bloom behind a low stone wall"], "negative": ["text, frame, watermark", "dull"], "width": 80,
     "height": 64, "steps": 2, "guidance": 5.0, "seed": 73},
)  # fmt: skip
fault = faults_of(FAULTS, ODD)
IDS = ("input:text_encoder.*", "output:text_encoder.model.embed_tokens")
TEXT_ROPE = "output:text_encoder.model.rotary_emb.*"
LATENTS = "checkpoint:latents"


@contextlib.contextmanager
def all_of(*contexts):
    """Several places changed by one mistake."""
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def rotary(p):
    return p.text_encoder.model.language_model.rotary_emb


def before_the_norm(p):
    """The pipeline takes what the last norm is given instead of what it gives."""
    norm, given = p.text_encoder.model.language_model.norm, {}

    def keep(self, old, x):
        given["x"] = x
        return old(x)

    changed = method(p, "_get_qwen_prompt_embeds", ("encoder_hidden_states.hidden_states[-1]", "given['x']"), given=given)
    return all_of(forward(norm, keep), changed)


def half_rotated(q, k, cos, sin, unsqueeze_dim=1):
    """Only the first half of each head turns, as with a partial rotary factor of 0.5."""
    size = q.shape[-1] // 2
    c, s = (torch.cat([t[..., : size // 2]] * 2, -1).unsqueeze(unsqueeze_dim) for t in (cos, sin))
    return tuple(torch.cat([x[..., :size] * c + qwen.rotate_half(x[..., :size]) * s, x[..., size:]], -1) for x in (q, k))


def mask_multiplied(module, q, k, v, mask, scaling, **_):
    """Scores of later tokens become 0 where they should be minus infinity."""
    k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
    scores = (q @ k.transpose(2, 3) * scaling).tril()
    return (scores.softmax(-1) @ v).transpose(1, 2).contiguous(), None


def text_attention(p, i, function):
    line = "attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )"
    return method(layer(p, i).self_attn, "forward", (line, "attention_interface = planted"), planted=function)


def one_table(p):
    """Frequencies counted through the whole head and then cut into axes, instead of from the start in every axis."""
    own = p.transformer.pos_embed
    other = type(own)(theta=own.theta, axes_dim=own.axes_dim, scale_rope=True)
    steps = own.theta ** -(torch.arange(0, sum(own.axes_dim), 2) / sum(own.axes_dim))
    angles = torch.outer(torch.arange(4096), steps), torch.outer(torch.arange(-4096, 0), steps)
    other.pos_freqs, other.neg_freqs = (torch.polar(torch.ones_like(a), a) for a in angles)
    return all_of(attribute(own, "_get_device_freqs", lambda device: (other.pos_freqs, other.neg_freqs)),
                  attribute(own, "_compute_video_freqs", lambda *a, **k: other._compute_video_freqs(*a, **k)))  # fmt: skip


def without_transposing(x):
    """[batch, tokens, heads, size] seen as [batch, heads, tokens, size], by shape alone."""
    return x.reshape(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2)


def shared_cache(p, i):
    """A cache of block i's image stream, one for both passes: the unconditional one finds what the conditional one left."""
    kept = []

    def cached(self, old, *a, **k):
        text, image = old(*a, **k)
        if kept:
            return text, kept.pop()
        kept.append(image)
        return text, image

    return forward(block(p, i), cached)


def guidance_embedded(self, old, timestep, *a, **k):
    """As in a model distilled for guidance: its scale is embedded like a timestep and added."""
    first, second = self.timestep_embedder.linear_1, self.timestep_embedder.linear_2
    scale = get_timestep_embedding(torch.full_like(timestep, 4.5), 256, flip_sin_to_cos=True, downscale_freq_shift=0, scale=1000)
    y = F.linear(F.silu(F.linear(scale, first.weight, first.bias)), second.weight, second.bias)
    return old(timestep, *a, **k) + y


def first_frame_repeated(p):
    """All convolutions through time see the one frame three times instead of two frames of zeros and it."""
    padded = "x = F.pad(torch.cat([x[:, :, :1].expand(-1, -1, padding[4], -1, -1), x], 2), padding[:4])"
    convolutions = [m for m in p.vae.decoder.modules() if type(m).__name__ == "QwenImageCausalConv3d"]
    return all_of(*(code(m, "forward", ("x = F.pad(x, padding)", padded)) for m in convolutions))


def frame_doubled(p):
    """The first frame, which alone is not made into two, is."""
    old = 'feat_cache[idx] = "Rep"\n                feat_idx[0] += 1'
    new = "x = self.time_conv(x).reshape(b, 2, c, t, h, w)\n                x = torch.stack((x[:, 0], x[:, 1]), 3).reshape(b, c, 2 * t, h, w)\n                feat_idx[0] += 1"
    return all_of(*(code(p.vae.decoder.up_blocks[i].upsamplers[0], "forward", (old, new)) for i in (0, 1)))


def nibbles_in_pairs(w):
    """Blocks of 32: a byte holds elements j and j + 16 and is read as elements 2 j and 2 j + 1."""
    integers, step = symmetric(w, 4, 32)
    return (integers.unflatten(1, (2, 16)).transpose(1, 2).flatten(1) * step).reshape(w.shape)


def scales_of_columns(w):
    """Eight bits with one scale for each row, spread along the other axis."""
    integers, step = symmetric(w, 8, w.shape[1])
    return integers.reshape(w.shape) * step.reshape(1, -1)


# --- tokenizer ------------------------------------------------------------------------------------------------------
fault("tokenizer.special_tokens_as_text", "tokenizer", IDS, (), kind="shape",
      plant=lambda p: code(p, "_get_qwen_prompt_embeds", ("txt, max_length=", "txt, split_special_tokens=True, max_length=")))
fault("tokenizer.space_in_front", "tokenizer", IDS, "input.other",
      lambda p: code(p, "_get_qwen_prompt_embeds", ("template.format(e) for e in prompt", "template.format(' ' + e) for e in prompt")))

# --- text encoder ---------------------------------------------------------------------------------------------------
fault("text.before_the_norm", "text encoder", "checkpoint:prompt_embeds", ("norm.missing", "stage.replaced", "capture.other_stage"), before_the_norm)
fault("text.template_kept", "text encoder", "checkpoint:prompt_embeds", (), kind="shape",
      plant=lambda p: code(p, "_get_qwen_prompt_embeds", ("e[drop_idx:] for", "e for")), world=STRIP)
fault("text.yarn_attention_factor", "text encoder", TEXT_ROPE, "affine.scale",
      lambda p: attribute(rotary(p), "attention_scaling", 1.1386))
fault("text.half_of_the_head_turned", "text encoder", f"input:{E}.0.self_attn.o_proj", ("rotary.style", "rotary.missing"),
      lambda p: attribute(qwen, "apply_rotary_pos_emb", half_rotated), world=STRIP)
fault("text.branches_side_by_side", "text encoder", f"input:{E}.1.post_attention_layernorm", ("residual.branch_missing", "stage.replaced"),
      lambda p: code(layer(p, 1), "forward", ("hidden_states = self.input_layernorm(hidden_states)", "first = hidden_states\n    hidden_states = self.input_layernorm(hidden_states)"),
                     ("self.post_attention_layernorm(hidden_states)", "self.post_attention_layernorm(first)")))
fault("text.mask_multiplied", "text encoder", f"input:{E}.0.self_attn.o_proj", ("attention.mask", "attention.mask_missing"),
      lambda p: text_attention(p, 0, mask_multiplied))
fault("text.mean_square_bf16", "text encoder", f"output:{E}.2.input_layernorm", "precision.bf16",
      lambda p: code(layer(p, 2).input_layernorm, "forward", ("variance = hidden_states.pow(2).mean(-1, keepdim=True)", "variance = hidden_states.bfloat16().pow(2).mean(-1, keepdim=True)")), world=STRIP)
fault("text.first_norm_called_twice", "text encoder", (f"*:{E}.1.input_layernorm*", f"*:{E}.1.post_attention_layernorm*", f"input:{E}.1.mlp*"),
      ("norm.other_weight", "norm.different_weight"),
      lambda p: code(layer(p, 1), "forward", ("self.post_attention_layernorm(hidden_states)", "self.input_layernorm(hidden_states)")))
fault("text.bias_not_in_the_files", "text encoder", f"output:{E}.0.self_attn.o_proj", ("affine.channel_offset", "linear.different_bias"),
      lambda p: result(layer(p, 0).self_attn.o_proj, lambda y: y + (torch.rand(y.shape[-1], generator=torch.Generator().manual_seed(7)) * 2 - 1) * y.shape[-1] ** -0.5))

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.mask_image_first", "dit", attended(0), ("attention.mask", "attention.mask_missing", "attention.mask_added"),
      lambda p: joint_attention(p, 0, ("torch.cat([encoder_hidden_states_mask, image_mask], dim=1)", "torch.cat([image_mask, encoder_hidden_states_mask], dim=1)")), world=PAIR)
fault("dit.mask_added_as_numbers", "dit", attended(1), ("attention.mask", "attention.mask_missing"),
      lambda p: joint_attention(p, 1, ("attn_mask=attention_mask,", "attn_mask=attention_mask.to(joint_query.dtype),")), world=PAIR)
fault("dit.text_at_position_zero", "dit", "output:transformer.pos_embed.1", ("rotary.missing", "rotary.positions", "rotary.factor", "garbage.constant"),
      lambda p: rope(p, "forward", ("pos_freqs_device[max_vid_index : max_vid_index + max_txt_seq_len_int, ...]", "pos_freqs_device[:1].expand(max_txt_seq_len_int, -1)")))
fault("dit.one_table_for_all_axes", "dit", "output:transformer.pos_embed.*", ("rotary.theta", "rotary.factor"), one_table)
fault("dit.negative_positions_backwards", "dit", "output:transformer.pos_embed.0", ("rotary.positions", "rotary.offset", "layout.permuted"),
      lambda p: rope(p, "_compute_video_freqs", ("freqs_neg[1][-(height - height // 2) :]", "freqs_neg[1][-(height - height // 2) :].flip(0)"),
                     ("freqs_neg[2][-(width - width // 2) :]", "freqs_neg[2][-(width - width // 2) :].flip(0)")))
fault("dit.six_parts_innermost", "dit", f"input:{T}.1.attn.hidden_states", ("modulate.other_part", "layout.interleaved", "layout.strided"),
      lambda p: code(block(p, 1), "forward", ("img_mod_params.chunk(2, dim=-1)", "img_mod_params.unflatten(-1, (-1, 6)).transpose(-1, -2).flatten(-2).chunk(2, dim=-1)")),
      world=STRIP.in_precision("bf16"))
fault("dit.time_cos_sin_in_pairs", "dit", "output:transformer.time_text_embed.time_proj", ("timestep.cos_sin_order", "layout.interleaved"),
      lambda p: result(p.transformer.time_text_embed.time_proj, lambda y: y.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)))
fault("dit.time_freq_shift", "dit", "output:transformer.time_text_embed.time_proj", "timestep.theta",
      lambda p: attribute(p.transformer.time_text_embed.time_proj, "downscale_freq_shift", 1), world=STRIP)
fault("dit.heads_by_shape_alone", "dit", attended(1), ("attention.heads", "layout.heads", "layout.strided"),
      lambda p: joint_attention(p, 1, *((f"    joint_{n},\n", f"    without_transposing(joint_{n}),\n") for n in ("query", "key", "value")),
                                ("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = joint_hidden_states.transpose(1, 2).reshape(joint_query.shape).flatten(2, 3)"),
                                without_transposing=without_transposing))
fault("dit.keys_of_zeros_attended", "dit", attended(0), ("attention.softmax", "attention.mask", "attention.mask_missing"),
      lambda p: joint_attention(p, 0, *((f"    joint_{n},\n", f"    F.pad(joint_{n}, (0, 0, 0, 0, 0, -joint_{n}.shape[1] % 32)),\n") for n in ("key", "value"))), world=STRIP)
fault("dit.cache_shared_by_passes", "dit", f"output:{T}.1.1", ("capture.other_hit", "stage.replaced", "capture.other_stage"), lambda p: shared_cache(p, 1))
fault("dit.silu_in_place", "dit", (f"input:{T}.0.txt_mod*", f"output:{T}.0.txt_mod.0"), ("activation.added", "stage.replaced"),
      lambda p: all_of(*(attribute(m[0], "inplace", True) for b in p.transformer.transformer_blocks for m in (b.img_mod, b.txt_mod))))
fault("dit.guidance_embedded", "dit", "output:transformer.time_text_embed", ("affine.channel_offset", "affine.offset"),
      lambda p: forward(p.transformer.time_text_embed, guidance_embedded))

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.first_frame_repeated", "vae", f"output:{D}.conv_in", ("convolution.temporal_tap", "convolution.padding"), first_frame_repeated)
fault("vae.attention_in_four_heads", "vae", f"input:{MIDDLE}.proj", ("attention.heads", "layout.heads"),
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(*(t.squeeze(1).unflatten(-1, (4, -1)).transpose(1, 2) for t in (q, k, v))).transpose(1, 2).flatten(2).unsqueeze(1)")))
fault("vae.group_norm", "vae", f"output:{D}.up_blocks.1.resnets.0.norm2", ("norm.kind", "norm.axis"),
      lambda p: forward(up(p, 1, 0).norm2, lambda self, old, x: F.group_norm(x, 4, self.gamma.flatten(), eps=1e-6)), world=STRIP)
fault("vae.activation_before_norm", "vae", f"*:{D}.up_blocks.2.resnets.1.nonlinearity", ("norm.missing", "stage.replaced"),
      lambda p: code(up(p, 2, 1), "forward", ("x = self.norm1(x)\n    x = self.nonlinearity(x)", "x = self.nonlinearity(x)\n    x = self.norm1(x)")))
fault("vae.first_frame_doubled", "vae", f"input:{D}.up_blocks.0.upsamplers.0.resample*", (), kind="shape", plant=frame_doubled)

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.shifted_twice", "scheduler", LATENTS, "scheduler.sigmas",
      lambda p: scheduler(p, "set_timesteps", ("self.time_shift(mu, 1.0, sigmas)", "self.time_shift(mu, 1.0, self.time_shift(mu, 1.0, sigmas))")))
fault("scheduler.down_to_one_thousandth", "scheduler", LATENTS, "scheduler.sigmas",
      CALL(("np.linspace(1.0, 1 / num_inference_steps, num_inference_steps)", "np.linspace(1.0, 1 / 1000, num_inference_steps)")), world=STRIP)
fault("scheduler.sigmas_bf16", "scheduler", LATENTS, ("precision.bf16", "scheduler.sigmas", "scheduler.dt"),
      lambda p: scheduler(p, "set_timesteps", ("self.sigmas = sigmas", "self.sigmas = sigmas.bfloat16().float()")))
fault("pipeline.prediction_negated", "pipeline", "checkpoint:noise_pred", "affine.scale",
      CALL(("noise_pred = comb_pred * (cond_norm / noise_norm)", "noise_pred = -comb_pred * (cond_norm / noise_norm)")))
fault("pipeline.rescaled_by_deviation", "pipeline", "checkpoint:noise_pred", "guidance.rescale",
      CALL(("noise_pred = comb_pred * (cond_norm / noise_norm)", "noise_pred = 0.7 * comb_pred * (noise_pred.std((1, 2), keepdim=True) / comb_pred.std((1, 2), keepdim=True)) + 0.3 * comb_pred")), world=STRIP)
fault("pipeline.denormalised_twice", "pipeline", "checkpoint:latents_denormalized", "latents.statistics",
      CALL(("latents = latents / latents_std + latents_mean", "latents = (latents / latents_std + latents_mean) / latents_std + latents_mean")))
fault("pipeline.seed_for_each_image", "pipeline", "checkpoint:initial_latents_packed", "latents.other_noise",
      lambda p: class_method(p, "prepare_latents", ("latents = randn_tensor(shape, generator=generator, device=device, dtype=dtype)", "latents = torch.cat([randn_tensor((1, *shape[1:]), generator=torch.Generator().manual_seed(generator.initial_seed() + n), device=device, dtype=dtype) for n in range(batch_size)])")), world=PAIR)

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.nibbles_in_pairs", "weights", f"output:{T}.1.img_mlp.net.0.proj", ("linear.weight_quantised", "linear.input_parts_exchanged", "linear.different_weight"),
      lambda p: weights(block(p, 1).img_mlp.net[0].proj, lambda w: w.update(weight=nibbles_in_pairs(w["weight"]))))
fault("weights.patch_channels_last", "weights", "output:transformer.img_in", "linear.input_parts_exchanged",
      lambda p: weights(p.transformer.img_in, lambda w: w.update(weight=w["weight"].unflatten(1, (16, 4)).transpose(1, 2).flatten(1))), world=STRIP)
fault("weights.dimensions_reversed", "weights", f"output:{E}.1.mlp.down_proj", ("linear.transposed_weight", "linear.different_weight"),
      lambda p: weights(layer(p, 1).mlp.down_proj, lambda w: w.update(weight=w["weight"].reshape(w["weight"].shape[::-1]).T)))
fault("weights.scales_of_columns", "weights", f"output:{T}.0.attn.add_q_proj", ("linear.weight_quantised", "linear.weight_row_scale", "linear.different_weight"),
      lambda p: weights(block(p, 0).attn.add_q_proj, lambda w: w.update(weight=scales_of_columns(w["weight"]))), world=STRIP)
