"""What people reported who took image models, language models and autoencoders from one framework to another, as it would look in
Qwen-Image. Where a report is known it is named. By an author who had not read the rules; stages and causes were written down before any run."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from blind_11_odd_shapes import own_rotation
from suite_01_every_stage import CALL, D, E, T, at, block, layer, rope, scheduler, swap, up
from places import MIDDLE, attended, class_method, faults_of, joint_attention, method, middle, result
from planting import attribute, code, forward, weights
from recorder import RECORDER
from blind_07_port_reports import all_of, rotary, text_attention
from worlds import World

FAULTS: list = []
# 4 by 13 image tokens, 5 heads of 28; in the text encoder 8 heads on 2 key heads of 20.
WIDE = World(
    "seventeenth-wide",
    {"seed": 171, "layers": 4, "heads": 5, "head_dim": 28, "axes": [4, 10, 14], "text_hidden": 160, "text_heads": 8, "text_kv_heads": 2,
     "text_layers": 3, "text_intermediate": 184, "vae_base": 14, "random_latent_stats": True},
    {"prompt": "a long goods train crossing a plain, dust behind it", "negative": "houses, trees", "width": 208, "height": 64, "steps": 4,
     "guidance": 3.75, "seed": 171},
)  # fmt: skip
# Two prompts of different length, 5 by 3 image tokens, 4 heads of 52; in the text encoder 12 heads on 4 key heads of 8.
DUO = World(
    "seventeenth-duo",
    {"seed": 172, "layers": 3, "heads": 4, "head_dim": 52, "axes": [12, 20, 20], "text_hidden": 96, "text_heads": 12, "text_kv_heads": 4,
     "text_layers": 3, "text_intermediate": 136, "text_keys": "new", "vae_res_blocks": 1},
    {"prompt": ["moss", "a clockmaker at a bench full of small brass wheels"], "negative": ["dull, flat light", "smoke"], "width": 48,
     "height": 80, "steps": 3, "guidance": 4.75, "seed": 172},
)  # fmt: skip
# 9 by 7 image tokens, 7 heads of 16, six steps of the few-step schedule; in the text encoder 4 heads on one key head of 22.
FEW = World(
    "seventeenth-few",
    {"seed": 173, "layers": 3, "heads": 7, "head_dim": 16, "axes": [4, 6, 6], "text_hidden": 88, "text_heads": 4, "text_kv_heads": 1,
     "text_layers": 2, "text_intermediate": 112, "rope_theta": 1e4, "vae_base": 10, "vae_dim_mult": [1, 2, 2, 4], "vae_res_blocks": 1,
     "scheduler": "lightning", "shard": 300_000},
    {"prompt": "an owl on a gatepost at dusk, long shadow", "negative": "frames", "width": 112, "height": 144, "steps": 6, "guidance": 2.25,
     "seed": 173},
)  # fmt: skip
fault = faults_of(FAULTS, WIDE)
IDS = ("input:text_encoder.*", "input:text_encoder.model.embed_tokens", "output:text_encoder.model.embed_tokens")
TIME = "input:transformer.timestep"
LATENTS = "checkpoint:latents"
DENORMALISED = "checkpoint:latents_denormalized"
EMBEDS = ("checkpoint:prompt_embeds", "checkpoint:negative_prompt_embeds")


def text_layers(p):
    return range(len(p.text_encoder.model.language_model.layers))


def position_of_the_head(q, k, cos, sin, **_):
    """A rotation that takes the last axis but one for the positions, given [batch, tokens, heads, size]."""

    def turn(x):
        c, s = (t[:, : x.shape[1]].unsqueeze(2) for t in (cos, sin))
        first, second = x.chunk(2, -1)
        return x * c + torch.cat((-second, first), -1) * s

    return turn(q), turn(k)


def cache_not_cleared(p):
    """The second prompt sees the keys and values of the first in front of its own."""

    def attention():
        kept = []

        def attend(module, q, k, v, mask, scaling, **_):
            k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
            kept.append((k, v))
            keys, values = (torch.cat(parts, 2) for parts in zip(*kept))
            seen = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).tril(keys.shape[2] - q.shape[2])
            scores = (q @ keys.transpose(2, 3) * scaling).masked_fill(~seen, -torch.inf)
            return (scores.softmax(-1) @ values).transpose(1, 2).contiguous(), None

        return attend

    return all_of(*(text_attention(p, i, attention()) for i in text_layers(p)))


def added_tokens_one_off(p):
    """The tokens that were added to the vocabulary stand one row further than in the file."""
    first = min(p.tokenizer.added_tokens_decoder)
    return method(p, "_get_qwen_prompt_embeds", ("input_ids=txt_tokens.input_ids", "input_ids=moved(txt_tokens.input_ids)"),
                  moved=lambda ids: ids + (ids >= first))  # fmt: skip


def time_of_rounded_frequencies(self, old, timesteps):
    """The table of frequencies in bf16, the angles and their sines in f32."""
    frequencies = torch.exp(-math.log(10000) * torch.arange(128) / 128).bfloat16().float()
    angles = 1000 * timesteps.float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


def of_the_step_before(p, i):
    """What the image's MLP gave one step before, for each of the passes by itself; the first step is as it should be."""
    last: dict = {}

    def stale(y):
        kept = last.get(RECORDER.tags.get("pass"))
        last[RECORDER.tags.get("pass")] = y.clone()
        return y if kept is None else kept

    return result(block(p, i).img_mlp, stale)


def eight_bits(x):
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def ceiling(x):
    """Twice the size; every place takes the nearest cell upwards instead of downwards."""
    rows, columns = ((torch.arange(2 * n) + 1).div(2, rounding_mode="floor").clamp(max=n - 1) for n in x.shape[-2:])
    return x[..., rows, :][..., columns]


def nf4(w, group):
    """Four bits by the quantiles of a normal distribution, one largest number for each group of the flattened weight."""
    normal = torch.distributions.Normal(0, 1)
    lower, upper = normal.icdf(torch.linspace(0.9677083, 0.5, 9)[:-1]), normal.icdf(torch.linspace(0.9677083, 0.5, 8)[:-1])
    levels = torch.cat([-lower[1:], upper, torch.zeros(1), -lower[:1]]).sort().values / lower[0]
    x = w.reshape(-1, group)
    most = x.abs().amax(1, keepdim=True)
    nearest = (x[..., None] / most[..., None] - levels).abs().argmin(-1)
    return (levels[nearest] * most).reshape(w.shape)


def without_the_largest(w, rank):
    """What is left in low precision when the strongest directions are kept apart in a branch of their own."""
    u, s, v = torch.linalg.svd(w, full_matrices=False)
    return w - (u[:, :rank] * s[:rank]) @ v[:rank]


def other_revision(w):
    generator = torch.Generator().manual_seed(17)
    w.update({n: v + 0.03 * v.std() * torch.randn(v.shape, generator=generator) for n, v in w.items() if v.ndim == 2})


def bytes_by_row(w):
    step = w.abs().amax(1, keepdim=True) / 127
    return (w / step).round() * step


def rows_in_the_order_of_the_nibbles(w):
    return w.unflatten(0, (-1, 8))[:, [0, 2, 4, 6, 1, 3, 5, 7]].flatten(0, 1)


def scale_of_the_input(w):
    """Eight bits with a scale for the weight and one for the activations; the second is applied to the weight."""
    return eight_bits(w / (w.abs().max() / 448)) * (3.5 / 448)


def exchanged_outputs(w):
    for part in ("weight", "bias"):
        swap(f"to_out.0.{part}", f"to_add_out.{part}")(w)


def half_not_arrived():
    """The copy to the host was still under way: the lower half is of the step before, in the same pass."""
    last: dict = {}

    def change(name, role, step, tags, x):
        if name != f"{T}.0.img_mlp.net.2" or role != "output":
            return x
        kept = last.get(tags.get("pass")) if step else None
        last[tags.get("pass")] = x.clone()
        middle_row = x.shape[1] // 2
        return x if kept is None else torch.cat([x[:, :middle_row], kept[:, middle_row:]], 1)

    return change


# --- tokenizer and text encoder ---------------------------------------------------------------------------------------
fault("tokenizer.no_assistant_turn", "tokenizer", IDS, (), kind="shape",  # a template without its generation prompt
      plant=lambda p: attribute(p, "prompt_template_encode", p.prompt_template_encode.removesuffix("<|im_start|>assistant\n")))
fault("tokenizer.added_tokens_one_off", "tokenizer", IDS, ("input.other", "embedding.offset"), added_tokens_one_off, world=FEW)
fault("text.embeds_kept_in_bf16", "text encoder", EMBEDS, "precision.bf16",  # a cache of encoded prompts
      lambda p: code(p, "_get_qwen_prompt_embeds", ("prompt_embeds = prompt_embeds.to(dtype=dtype, device=device)", "prompt_embeds = prompt_embeds.bfloat16().to(dtype=dtype, device=device)")), world=DUO)
fault("text.table_too_short", "text encoder", "output:text_encoder.model.rotary_emb.*", "rotary.positions",  # 41 positions; all later ones are the last
      lambda p: method(rotary(p), "forward", ("position_ids = position_ids.expand(3, -1, -1)", "position_ids = position_ids.expand(3, -1, -1).clamp(max=40)")), world=FEW)
fault("text.position_of_the_head", "text encoder", f"input:{E}.1.self_attn.o_proj", "rotary.positions", lambda p: own_rotation(p, 1, position_of_the_head))
fault("text.norms_of_the_next_model", "text encoder", f"input:{E}.2.self_attn.o_proj", "attention.norm_added",  # Qwen3 norms its queries and keys
      lambda p: method(layer(p, 2).self_attn, "forward", ("cos, sin = position_embeddings", "query_states, key_states = (F.rms_norm(x, x.shape[-1:], eps=1e-6) for x in (query_states, key_states)); cos, sin = position_embeddings"), F=F),
      world=DUO)
# No code says that keys of another call are seen; that other keys are seen than should be is what it comes to.
fault("text.cache_not_cleared", "text encoder", f"input:{E}.0.self_attn.o_proj", ("attention.mask", "attention.mask_missing"), cache_not_cleared)

# --- diffusion transformer -------------------------------------------------------------------------------------------
# [batch, tokens, heads, size] given to a kernel that expects heads before tokens: ml-explore/mlx #3585
fault("dit.tokens_for_heads", "dit", attended(1), ("attention.heads", "layout.heads", "layout.axes"),
      lambda p: joint_attention(p, 1, ("joint_hidden_states = dispatch_attention_fn(", "joint_hidden_states = planted("),
                                planted=lambda q, k, v, **_: F.scaled_dot_product_attention(q, k, v)))
fault("dit.keys_and_values_f8", "dit", attended(2), "precision.f8_e4m3",
      lambda p: joint_attention(p, 2, ("joint_hidden_states = dispatch_attention_fn(", "joint_key, joint_value = eight_bits(joint_key), eight_bits(joint_value); joint_hidden_states = dispatch_attention_fn("), eight_bits=eight_bits))
fault("dit.negative_rows_wrap", "dit", "output:transformer.pos_embed.0", ("rotary.positions", "rotary.offset"),  # -k is looked up at 4096 - k
      lambda p: rope(p, "_compute_video_freqs", ("freqs_neg[1][-(height - height // 2) :]", "freqs_pos[1][-(height - height // 2) :]")), world=FEW)
fault("dit.text_starts_after_the_rows", "dit", "output:transformer.pos_embed.1", ("rotary.offset", "rotary.positions"),
      lambda p: rope(p, "forward", ("max_vid_index = max(height // 2, width // 2, max_vid_index)", "max_vid_index = max(height // 2, max_vid_index)")))
# The product is made small for f16 and large again afterwards, and the bias with it: leejet/stable-diffusion.cpp #968
fault("dit.bias_grows_with_the_product", "dit", f"output:{T}.1.img_mlp.net.2", ("linear.different_bias", "linear.bias_doubled"),
      lambda p: forward(block(p, 1).img_mlp.net[2], lambda self, old, x: (F.linear(x / 32, self.weight) + self.bias) * 32), world=DUO)
fault("dit.one_rank_alone", "dit", f"output:{T}.2.txt_mlp.net.2", ("linear.different_weight", "linear.zero_weight"),  # the sum over two ranks left out: sgl-project/sglang #15225
      lambda p: forward(block(p, 2).txt_mlp.net[2], lambda self, old, x: F.linear(x[..., : x.shape[-1] // 2], self.weight[:, : x.shape[-1] // 2], self.bias)))
fault("dit.gelu_of_the_square", "dit", f"output:{T}.0.txt_mlp.net.0", "activation.kind",  # apache/tvm #16188, tensorflow/tfjs #8224
      lambda p: forward(block(p, 0).txt_mlp.net[0], lambda self, old, x: (lambda y: 0.5 * y * (1 + torch.tanh((2 / math.pi) ** 0.5 * (y + 0.044715 * y * y))))(self.proj(x))), world=FEW)
fault("dit.time_frequencies_bf16", "dit", "output:transformer.time_text_embed.time_proj", "precision.bf16",  # Comfy-Org/ComfyUI #15081
      lambda p: forward(p.transformer.time_text_embed.time_proj, time_of_rounded_frequencies), world=DUO)
fault("dit.of_the_step_before", "dit", f"output:{T}.2.img_mlp", ("capture.other_hit", "stage.replaced"), lambda p: of_the_step_before(p, 2), world=FEW)  # a cache of branches

# --- VAE ---------------------------------------------------------------------------------------------------------------
# No code names a convolution that should not have run on the only frame; its result stands where its input should.
fault("vae.time_convolution_run", "vae", tuple(f"input:{D}.up_blocks.0.upsamplers.0.resample{end}" for end in ("", ".0")), ("stage.replaced", "input.other"),
      lambda p: code(p.vae.decoder.up_blocks[0].upsamplers[0], "forward", ('feat_cache[idx] = "Rep"', 'feat_cache[idx] = "Rep"; x = self.time_conv(x)[:, :c]')))
fault("vae.seamless", "vae", f"output:{D}.conv_in", "convolution.padding",  # borders that meet, for tiles, left on
      lambda p: class_method(p.vae.decoder.conv_in, "forward", ("x = F.pad(x, padding)", "x = F.pad(F.pad(x, padding[:4] + [0, 0], mode='circular') if padding[0] else x, [0, 0, 0, 0, *padding[4:]])")), world=DUO)
fault("vae.hard_swish", "vae", f"output:{D}.up_blocks.2.resnets.0.nonlinearity", "activation.kind",  # what some accelerators have for SiLU
      lambda p: forward(up(p, 2, 0).nonlinearity, lambda self, old, x: F.hardswish(x)), world=FEW)
fault("vae.nearest_upwards", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.0", ("resample.kind", "layout.shifted"),  # ONNX's Resize with ceil
      lambda p: forward(p.vae.decoder.up_blocks[1].upsamplers[0].resample[0], lambda self, old, x: ceiling(x)))
fault("vae.softmax_over_the_queries", "vae", f"input:{MIDDLE}.proj", "attention.softmax",
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-2) @ v")), world=FEW)

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.timesteps_not_shifted", "scheduler", TIME, ("scheduler.sigmas", "timestep.function"),  # huggingface/diffusers #14036
      lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "plain = torch.from_numpy(sigmas); sigmas = self.time_shift(mu, 1.0, sigmas)"),
                          ("timesteps = sigmas * self.config.num_train_timesteps\n\n", "timesteps = plain * self.config.num_train_timesteps\n\n")), world=FEW)
fault("scheduler.exponential", "scheduler", (LATENTS, TIME), "scheduler.sigmas",  # another setting than the model's
      lambda p: scheduler(p, "set_timesteps", ("if self.config.use_karras_sigmas:", "sigmas = self._convert_to_exponential(in_sigmas=sigmas, num_inference_steps=num_inference_steps)\n    if self.config.use_karras_sigmas:")))
fault("scheduler.second_order", "scheduler", LATENTS, "scheduler.formula",  # Adams and Bashforth's, where Euler's is meant
      lambda p: scheduler(p, "step", ("prev_sample = sample + dt * model_output", "before = self.__dict__.get('before') if self._step_index else None; self.__dict__['before'] = model_output; prev_sample = sample + dt * (model_output if before is None else 1.5 * model_output - 0.5 * before)")), world=DUO)
fault("pipeline.guidance_zero_star", "pipeline", "checkpoint:noise_pred", "guidance.formula",  # the unconditional one fitted to the other first
      CALL(("comb_pred = neg_noise_pred + true_cfg_scale", "neg_noise_pred = neg_noise_pred * ((noise_pred * neg_noise_pred).sum((1, 2), keepdim=True) / neg_noise_pred.square().sum((1, 2), keepdim=True)); comb_pred = neg_noise_pred + true_cfg_scale")))
fault("pipeline.from_darkest_to_brightest", "pipeline", "checkpoint:image", ("affine.scale_offset", "affine.scale", "precision.clamp_missing"),  # kijai/ComfyUI-WanVideoWrapper #657
      lambda p: code(p.vae, "_decode", ("out = torch.clamp(out, min=-1.0, max=1.0)", "out = (out - out.min()) / (out.max() - out.min()) * 2 - 1")), world=FEW)
fault("pipeline.statistics_tiled_over_patches", "pipeline", DENORMALISED, ("latents.order", "latents.statistics"),  # before unpacking: 16 numbers four times over, where each should stand four times
      CALL(("latents = self._unpack_latents(latents, height, width, self.vae_scale_factor)", "latents = self._unpack_latents(latents * torch.tensor(self.vae.config.latents_std).repeat(4) + torch.tensor(self.vae.config.latents_mean).repeat(4), height, width, self.vae_scale_factor)"),
           ("latents = latents / latents_std + latents_mean", "pass")))
fault("pipeline.noise_of_pairs", "pipeline", "checkpoint:initial_latents_packed", ("latents.other_noise", "layout.interleaved", "layout.permuted"),  # sines beside cosines, not eight after eight
      lambda p: class_method(p, "prepare_latents", ("latents = self._pack_latents(", "latents = latents.reshape(-1, 2, 8).transpose(1, 2).reshape(shape); latents = self._pack_latents(")), world=DUO)
fault("pipeline.negative_of_zeros", "pipeline", "input:transformer.encoder_hidden_states", "garbage.zeros",  # as SDXL does with an empty prompt
      CALL(("self.scheduler.set_begin_index(0)", "self.scheduler.set_begin_index(0); negative_prompt_embeds = torch.zeros_like(negative_prompt_embeds)")), world=FEW)

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.norm_around_zero", "weights", f"output:{T}.1.attn.norm_added_k", ("norm.different_weight", "weights.different"),  # stored less one: Blaizzy/mlx-vlm #2114
      lambda p: weights(block(p, 1).attn.norm_added_k, lambda w: w.update(weight=w["weight"] - 1)), world=DUO)
fault("weights.order_of_nibbles", "weights", f"output:{E}.1.mlp.up_proj", ("linear.different_weight", "weights.rearranged", "layout.permuted"),  # AWQ's, not undone
      lambda p: weights(layer(p, 1).mlp.up_proj, lambda w: w.update(weight=rows_in_the_order_of_the_nibbles(w["weight"]))))
fault("weights.nf4", "weights", f"output:{T}.1.img_mlp.net.0.proj", ("linear.weight_quantised", "weights.quantised"),
      lambda p: weights(block(p, 1).img_mlp.net[0].proj, lambda w: w.update(weight=nf4(w["weight"], 64))), world=FEW)
fault("weights.low_rank_branch_left_out", "weights", f"output:{T}.2.attn.to_q", ("linear.different_weight", "weights.different"),
      lambda p: weights(block(p, 2).attn.to_q, lambda w: w.update(weight=without_the_largest(w["weight"], 16))), world=DUO)
fault("weights.other_revision", "weights", "output:transformer.img_in", ("linear.different_weight", "weights.different", "weights.small_error"),  # huggingface/diffusers #1818
      lambda p: weights(p.transformer, other_revision), world=FEW)
fault("weights.embedding_in_bytes", "weights", "output:text_encoder.model.embed_tokens", ("weights.quantised", "linear.weight_quantised", "precision.integer"),
      lambda p: weights(p.text_encoder.model.language_model.embed_tokens, lambda w: w.update(weight=bytes_by_row(w["weight"]))), world=DUO)
fault("weights.outputs_exchanged", "weights", f"output:{T}.3.attn.to_out.0", "linear.other_weight", lambda p: weights(block(p, 3).attn, exchanged_outputs))
fault("weights.scale_of_the_input", "weights", f"output:{E}.1.self_attn.v_proj", ("linear.weight_scaled", "weights.scaled"),  # Lightricks/LTX-2 #172
      lambda p: weights(layer(p, 1).self_attn.v_proj, lambda w: w.update(weight=scale_of_the_input(w["weight"]))), world=FEW)

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.one_rank_twice", "capture", f"output:{T}.2.img_mlp.net.0.proj", "layout.repeated",
      change=at(f"{T}.2.img_mlp.net.0.proj", lambda x: x[..., : x.shape[-1] // 2].repeat(1, 1, 2)), world=DUO)
fault("capture.activated_in_place", "capture", f"output:{D}.up_blocks.1.resnets.0.norm2", ("capture.other_stage", "activation.added"),  # ViCCo-Group/thingsvision #44
      change=at(f"{D}.up_blocks.1.resnets.0.norm2", F.silu))
fault("capture.half_not_arrived", "capture", f"output:{T}.0.img_mlp.net.2", "capture.other_hit", change=half_not_arrived(), world=FEW)
