"""What public reports of ports of diffusion and language models say went wrong, each where it would happen here, beside it the report
that gave the idea. By an author who had not read the rules; causes were written down before any run."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from PIL import Image
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from suite_01_every_stage import CALL, D, E, T, at, block, layer, scheduler, up
from places import attended, faults_of, joint_attention, method, result, symmetric
from planting import attribute, code, forward, weights
from blind_07_port_reports import all_of, rotary, text_attention
from worlds import World

FAULTS: list = []
# 7 by 6 image tokens, 4 heads of 48: a head that no kernel is made for; in the text encoder 8 heads on 4 key heads.
WIDE = World(
    "twelfth-wide",
    {"seed": 121, "layers": 3, "heads": 4, "head_dim": 48, "axes": [8, 16, 24], "text_hidden": 128, "text_heads": 8, "text_kv_heads": 4,
     "text_layers": 4, "text_intermediate": 224, "random_latent_stats": True},
    {"prompt": "an old radio on a shelf, dust in the light", "negative": "cartoon, text", "width": 96, "height": 112, "steps": 3,
     "guidance": 3.5, "seed": 121},
)  # fmt: skip
# Two prompts and two negative prompts, none as long as another; 5 heads of 24.
BATCH = World(
    "twelfth-batch",
    {"seed": 122, "layers": 2, "heads": 5, "head_dim": 24, "axes": [4, 8, 12], "text_hidden": 96, "text_heads": 6, "text_kv_heads": 2,
     "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["a tram in the rain, many umbrellas", "ash"], "negative": ["x", "grey, empty, far away"], "width": 64, "height": 80,
     "steps": 2, "guidance": 4.0, "seed": 122},
)  # fmt: skip
# 3 by 11 image tokens, four steps; in the text encoder two heads on one key head.
FLAT = World(
    "twelfth-flat",
    {"seed": 123, "layers": 4, "heads": 2, "head_dim": 64, "text_hidden": 80, "text_heads": 2, "text_kv_heads": 1, "text_layers": 3,
     "text_intermediate": 136, "vae_base": 12, "vae_res_blocks": 1},
    {"prompt": "a row of beach huts", "negative": "night", "width": 176, "height": 48, "steps": 4, "guidance": 6.0, "seed": 123},
)  # fmt: skip
fault = faults_of(FAULTS, WIDE)
LATENTS = ("checkpoint:latents", "input:transformer.timestep")
JOINED = "joint_hidden_states = joint_hidden_states.flatten(2, 3)"


def llama3(frequencies, factor=8, low=1, high=4, length=512):
    """Llama 3's stretching of slow frequencies, which this text encoder does not have; its 8192 tokens are 512 for short prompts."""
    waves = 2 * math.pi / frequencies
    smooth = ((length / waves - low) / (high - low)).clamp(0, 1)
    return frequencies * (smooth + (1 - smooth) / factor)


def first_item_turned(q, k, cos, sin, unsqueeze_dim=1):
    """The kernel was launched for one item of the batch: the others stay as they were."""
    turned = ((x * cos.unsqueeze(unsqueeze_dim)) + (qwen.rotate_half(x) * sin.unsqueeze(unsqueeze_dim)) for x in (q, k))
    return tuple(torch.cat([new[:1], old[1:]]) for new, old in zip(turned, (q, k)))


def attend(module, q, k, v, scaling, change=lambda scores: scores, window=None):
    """Causal attention of the text encoder; `change` of the scaled scores, `window`: how many tokens back are seen."""
    k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
    scores = change(q @ k.transpose(2, 3) * scaling)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if window:
        seen = seen.triu(1 - window)
    return (scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v).transpose(1, 2).contiguous(), None


def capped(module, q, k, v, mask, scaling, **_):
    return attend(module, q, k, v, scaling, lambda scores: 5 * torch.tanh(scores / 5))


def windowed(module, q, k, v, mask, scaling, **_):
    return attend(module, q, k, v, scaling, window=12)


def normed_again(p):
    norm = p.text_encoder.model.language_model.norm

    def again(x):
        return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)

    old = "hidden_states = encoder_hidden_states.hidden_states[-1]"
    return method(p, "_get_qwen_prompt_embeds", (old, "hidden_states = again(encoder_hidden_states.hidden_states[-1])"), again=again)


def overflowing(y, factor):
    """What is larger than f16 can hold becomes infinite; `factor` stands for the size of a real model's activations."""
    return (y * factor).half().to(y.dtype) / factor


def squares_in_f16(self, old, x):
    """The sum of squares overflows in f16 for every token that is a little longer than others: 1 / infinity is 0."""
    squares = (16 * x).half().pow(2).sum(-1, keepdim=True, dtype=torch.float32).half().float()
    return self.weight * x * torch.rsqrt(squares / (256 * x.shape[-1]) + self.variance_epsilon)


def in_shards(mask, text):
    """Keys lie as [text, image] of the first rank and then of the second; the mask is still [text, image] of both."""
    tokens = torch.arange(mask.shape[1])
    first, second = zip(*((part[: len(part) // 2], part[len(part) // 2 :]) for part in (tokens[:text], tokens[text:])))
    moved = torch.empty_like(mask)
    moved[:, torch.cat(first + second)] = mask
    return moved


def both_ways(q, k, v, mask):
    """[batch, tokens, heads, head size]: padded tokens may not be seen and see nothing themselves, not even each other."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~(mask & mask.transpose(-1, -2)), -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def restarted(freqs):
    """The second rank takes the angles of the first tokens for its own."""
    half = len(freqs) // 2
    return torch.cat([freqs[:half], freqs[: len(freqs) - half]])


def angles_f16(self, old, timestep):
    half = self.num_channels // 2
    frequencies = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half).half()
    angles = ((1000 * timestep).half()[:, None] * frequencies[None]).float()
    return torch.cat([angles.cos(), angles.sin()], -1)


def first_lanes(self, old, x):
    """The mean square of the first 32 channels alone: one warp, no loop."""
    return x * torch.rsqrt(x[..., :32].pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def baked(module):
    """A graph was captured in the first step, and what it read then is read ever after."""
    kept = []

    def first(self, old, *a, **k):
        kept.append(old(*a, **k))
        return kept[0]

    return forward(module, first)


def fp8_convolutions(p):
    convolutions = {n for n, v in p.vae.named_parameters() if n.endswith("weight") and v.ndim > 3}
    return weights(p.vae, lambda w: w.update({n: w[n].to(torch.float8_e4m3fn).to(w[n].dtype) for n in convolutions}))


def wrapped(image, output_type=None, **_):
    """[batch, 3, rows, columns] to bytes without a look at the range: 256 is 0 again."""
    bytes_ = ((image * 0.5 + 0.5) * 255).round().to(torch.int64).bitwise_and(255).to(torch.uint8)
    return [Image.fromarray(picture.permute(1, 2, 0).numpy()) for picture in bytes_]


def halves_exchanged(output):
    half = output[0].shape[1] // 2
    return (torch.cat([output[0][:, half:], output[0][:, :half]], 1),)


def aliased(w, group=32):
    """The index of a nibble lacks its group: every group has the whole numbers of the last one, and its own step."""
    integers, step = symmetric(w, 4, group)
    last = integers.reshape(w.shape[0], -1, group)[:, -1:].expand(-1, w.shape[1] // group, -1)
    return (last * step.reshape(w.shape[0], -1, 1)).reshape(w.shape)


def low_bits(w):
    """Blocks of 8 times 32: of the six bits of the last four steps only the lower four are read."""
    integers, step = symmetric(w, 4, 32)
    step = step.reshape(-1, 8)
    unit = step.amax(1, keepdim=True) / 63
    sixes = (step / unit).round().to(torch.int64)
    sixes[:, 4:] &= 15
    return (integers * (sixes * unit).reshape(-1, 1)).reshape(w.shape)


def rows_by_four(w):
    """Four rows lie element by element beside each other and are read one after the other."""
    return w.reshape(-1, 4, w.shape[1]).transpose(1, 2).reshape(w.shape)


def encoder_for_decoder(p):
    """Both middle blocks have the same names once the prefix is gone."""
    other = {n: v.detach().clone() for n, v in p.vae.encoder.mid_block.named_parameters()}
    return weights(p.vae.decoder.mid_block, lambda w: w.update(other))


def scale_twice(w):
    scale = w.abs().max() / 448
    return (w / scale).to(torch.float8_e4m3fn).float() * scale * scale


def one_call_late(name):
    """The copy is asked for before the kernel has run: it has what the call before left there."""
    kept = []

    def change(n, role, step, tags, value):
        if n != name or role != "output":
            return value
        kept.append(value.clone())
        return kept[max(0, len(kept) - 2)]

    return change


def rows_padded(x, multiple=32):
    """Rows begin at multiples of 32 elements and are read as if they followed each other."""
    return F.pad(x, (0, -x.shape[-1] % multiple)).flatten()[: x.numel()].reshape(x.shape)


# --- tokenizer and text encoder ---------------------------------------------------------------------------------------
fault("tokenizer.five_more_dropped", "tokenizer", "checkpoint:prompt_embeds", (), kind="shape",  # kandinskylab/kandinsky-5 #92
      plant=lambda p: code(p, "_get_qwen_prompt_embeds", ("drop_idx = self.prompt_template_encode_start_idx", "drop_idx = self.prompt_template_encode_start_idx + 5")))
fault("text.llama3_frequencies", "text encoder", "output:text_encoder.model.rotary_emb.*", ("rotary.theta", "rotary.factor"),  # ml-explore/mlx-swift-lm #110
      lambda p: attribute(rotary(p), "inv_freq", llama3(rotary(p).inv_freq)))
fault("text.first_item_turned", "text encoder", f"input:{E}.0.self_attn.o_proj", ("rotary.missing", "rotary.partial", "rotary.positions"),  # ml-explore/mlx #3494
      lambda p: attribute(qwen, "apply_rotary_pos_emb", first_item_turned), world=BATCH)
fault("text.divided_by_the_reciprocal", "text encoder", f"output:{E}.2.post_attention_layernorm", "norm.kind",  # mosaicml/llm-foundry #372
      lambda p: code(layer(p, 2).post_attention_layernorm, "forward", ("hidden_states * torch.rsqrt(", "hidden_states / torch.rsqrt(")))
fault("text.scale_by_layer", "text encoder", f"input:{E}.1.self_attn.o_proj", "attention.scale",  # TransformerLensOrg/TransformerLens #27
      lambda p: all_of(*(attribute(layer(p, i).self_attn, "scaling", layer(p, i).self_attn.scaling / (i + 1)) for i in range(3))), world=FLAT)
fault("text.scores_capped", "text encoder", f"input:{E}.2.self_attn.o_proj", "attention.cap",  # ggml-org/llama.cpp #29034
      lambda p: text_attention(p, 2, capped))
fault("text.normed_again", "text encoder", "checkpoint:prompt_embeds", ("norm.twice", "norm.added"), normed_again, world=FLAT)  # huggingface/diffusers #1863
fault("text.mlp_overflows", "text encoder", f"output:{E}.2.mlp.down_proj", "garbage.infinite",  # openvinotoolkit/openvino #37041, huggingface/candle #2480
      lambda p: result(layer(p, 2).mlp.down_proj, lambda y: overflowing(y, 4e4)), world=FLAT)
fault("text.sliding_window", "text encoder", f"input:{E}.1.self_attn.o_proj", ("attention.mask_added", "attention.mask"),  # huggingface/transformers #38002
      lambda p: all_of(*(text_attention(p, i, windowed) for i in range(1, 4))))
fault("text.squares_in_f16", "text encoder", f"output:{E}.1.input_layernorm", ("garbage.zeros", "precision.f16"),  # NVIDIA/TensorRT-LLM #3223
      lambda p: forward(layer(p, 1).input_layernorm, squares_in_f16))

# --- diffusion transformer -------------------------------------------------------------------------------------------
fault("dit.mask_not_in_shards", "dit", attended(0), "attention.mask",  # huggingface/diffusers #13756
      lambda p: joint_attention(p, 0, ("attention_mask = attention_mask[:, None, None, :]", "attention_mask = in_shards(attention_mask, encoder_hidden_states.shape[1])[:, None, None, :]"), in_shards=in_shards), world=BATCH)
fault("dit.masked_both_ways", "dit", f"input:{T}.0.attn.to_add_out", "garbage.nan",  # huggingface/diffusers #12294
      lambda p: joint_attention(p, 0, (JOINED, "joint_hidden_states = both_ways(joint_query, joint_key, joint_value, attention_mask).flatten(2, 3)"), both_ways=both_ways), world=BATCH)
fault("dit.head_cut_at_32", "dit", attended(1), "garbage.zeros",  # mni-ml/framework #38
      lambda p: joint_attention(p, 1, (JOINED, "joint_hidden_states = F.pad(joint_hidden_states[..., :32], (0, head_dim - 32)).flatten(2, 3)")))
fault("dit.scale_of_the_padded_head", "dit", attended(2), "attention.scale",  # intel/ipex-llm #12619
      lambda p: joint_attention(p, 2, ("dropout_p=0.0,", "dropout_p=0.0,\n        scale=64**-0.5,")))
fault("dit.angles_restart", "dit", "output:transformer.pos_embed.0", ("rotary.positions", "layout.repeated"),  # sgl-project/sglang #20679
      lambda p: result(p.transformer.pos_embed, lambda tables: (restarted(tables[0]), tables[1])))
fault("dit.time_angles_f16", "dit", "output:transformer.time_text_embed.time_proj", "precision.f16",  # facebookincubator/AITemplate #1009
      lambda p: forward(p.transformer.time_text_embed.time_proj, angles_f16), world=FLAT)
fault("dit.norm_of_the_first_lanes", "dit", f"output:{T}.1.attn.norm_k", ("norm.axis", "norm.kind", "affine.row_scale"),  # lablup/mlxcel #824
      lambda p: forward(block(p, 1).attn.norm_k, first_lanes))
fault("dit.first_step_baked", "dit", "output:transformer.time_text_embed.time_proj", ("capture.other_hit", "timestep.step_index", "stage.replaced"),  # jcelerier/librediffusion #20
      lambda p: baked(p.transformer.time_text_embed.time_proj), world=FLAT)
fault("dit.text_never_updated", "dit", f"input:{T}.1.encoder_hidden_states", ("stage.replaced", "capture.other_stage", "residual.branch_missing"),  # chengzeyi/ParaAttention #54
      lambda p: code(p.transformer, "forward", ("encoder_hidden_states, hidden_states = block(", "_, hidden_states = block(")))

# --- VAE ---------------------------------------------------------------------------------------------------------------
fault("vae.fp8_convolutions", "vae", "output:vae.post_quant_conv", ("convolution.weight_rounded", "precision.f8_e4m3"), fp8_convolutions)  # VincentGourbin/ltx-video-swift-mlx #57, qskousen/ggufy #4
fault("vae.in_tiles", "vae", ("input:vae.post_quant_conv*", "output:vae.post_quant_conv*"), (), kind="shape",  # leejet/stable-diffusion.cpp #873
      plant=lambda p: all_of(attribute(p.vae, "use_tiling", True), *(attribute(p.vae, f"tile_sample_{n}", v) for n, v in (("min_height", 64), ("min_width", 64), ("stride_height", 48), ("stride_width", 48)))), world=FLAT)
fault("vae.corners_aligned", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.0", "resample.kind",  # ml-explore/mlx #3908, microsoft/onnxruntime #1179
      lambda p: all_of(*(attribute(p.vae.decoder.up_blocks[1].upsamplers[0].resample[0], n, v) for n, v in (("mode", "bilinear"), ("align_corners", True)))))
fault("vae.norm_over_columns", "vae", f"output:{D}.up_blocks.1.resnets.1.norm1", "norm.axis",  # huggingface/diffusers #11387
      lambda p: forward(up(p, 1, 1).norm1, lambda self, old, x: F.normalize(x, dim=-1) * x.shape[-1] ** 0.5 * self.gamma))
fault("vae.padding_as_dilation", "vae", f"output:{D}.up_blocks.0.upsamplers.0.resample.1", "convolution.dilation",  # ml-explore/mlx #3793
      lambda p: forward(p.vae.decoder.up_blocks[0].upsamplers[0].resample[1], lambda self, old, x: F.conv2d(x, self.weight, self.bias, padding=2, dilation=2)), world=FLAT)

# --- scheduler and pipeline ----------------------------------------------------------------------------------------------
fault("scheduler.one_point_more", "scheduler", LATENTS, "scheduler.sigmas",  # apple/coreai-models #190
      CALL(("np.linspace(1.0, 1 / num_inference_steps, num_inference_steps)", "np.linspace(1.0, 1 / num_inference_steps, num_inference_steps + 1)[:-1]")), world=FLAT)
fault("scheduler.stretched_first", "scheduler", LATENTS, "scheduler.sigmas",  # huggingface/diffusers #13243
      lambda p: scheduler(p, "set_timesteps", ("self.time_shift(mu, 1.0, sigmas)", "self.time_shift(mu, 1.0, self.stretch_shift_to_terminal(sigmas))"), ("if self.config.shift_terminal:", "if False:")))
fault("scheduler.stochastic", "scheduler", LATENTS, ("scheduler.noise", "scheduler.formula"),  # huggingface/diffusers #10146
      lambda p: scheduler(p, "step", ("if self.config.stochastic_sampling:", "if True:"), ("randn_tensor(sample.shape, generator=generator,", "randn_tensor(sample.shape, generator=torch.Generator().manual_seed(12),")))
fault("pipeline.last_step_unguided", "pipeline", "checkpoint:noise_pred", ("guidance.scale", "stage.replaced", "capture.other_hit"),  # asagi4/ComfyUI-Adaptive-Guidance #14
      CALL(("noise_pred = comb_pred * (cond_norm / noise_norm)", "noise_pred = comb_pred * (cond_norm / noise_norm) if i < num_inference_steps - 1 else noise_pred")), world=FLAT)
fault("pipeline.shards_exchanged", "pipeline", "checkpoint:noise_pred", ("layout.parts_exchanged", "layout.rolled"),  # sgl-project/sglang #20679
      lambda p: forward(p.transformer, lambda self, old, *a, **k: halves_exchanged(old(*a, **k))))
fault("pipeline.bytes_wrap", "pipeline", "checkpoint:image", "precision.clamp_missing",  # Nerogar/OneTrainer #440
      lambda p: all_of(code(p.vae, "_decode", ("out = torch.clamp(out, min=-1.0, max=1.0)", "pass")), attribute(p.image_processor, "postprocess", wrapped)))
fault("pipeline.prompts_exchanged", "pipeline", ("input:transformer.encoder_hidden_states_mask", "input:transformer.encoder_hidden_states"), ("layout.reversed", "layout.parts_exchanged", "layout.rolled"),  # huggingface/diffusers #9280
      CALL(("encoder_hidden_states_mask=prompt_embeds_mask,", "encoder_hidden_states_mask=prompt_embeds_mask.flip(0),"), ("encoder_hidden_states=prompt_embeds,", "encoder_hidden_states=prompt_embeds.flip(0),")), world=BATCH)

# --- weights -------------------------------------------------------------------------------------------------------------
fault("weights.groups_aliased", "weights", f"output:{T}.1.attn.to_v", ("linear.weight_quantised", "linear.different_weight"),  # 1bit-MONSTER/1bit-MONSTER #153
      lambda p: weights(block(p, 1).attn.to_v, lambda w: w.update(weight=aliased(w["weight"]))))
fault("weights.low_bits_of_steps", "weights", f"output:{T}.0.img_mlp.net.2", ("linear.weight_quantised", "linear.different_weight"),  # paiml/aprender #2115, paiml/trueno #182
      lambda p: weights(block(p, 0).img_mlp.net[2], lambda w: w.update(weight=low_bits(w["weight"]))))
fault("weights.rows_by_four", "weights", f"output:{E}.2.mlp.up_proj", ("linear.different_weight", "weights.rearranged"),  # ikawrakow/ik_llama.cpp #1561
      lambda p: weights(layer(p, 2).mlp.up_proj, lambda w: w.update(weight=rows_by_four(w["weight"]))))
fault("weights.encoder_for_decoder", "weights", f"output:{D}.mid_block.resnets.0.norm1", "norm.other_weight", encoder_for_decoder)
fault("weights.bf16_bits_as_f16", "weights", f"output:{T}.0.txt_mlp.net.0.proj", "linear.different_weight",  # modular/modular #6660
      lambda p: weights(block(p, 0).txt_mlp.net[0].proj, lambda w: w.update(weight=w["weight"].bfloat16().view(torch.float16).float())), world=FLAT)
fault("weights.fp8_scale_twice", "weights", "output:transformer.time_text_embed.timestep_embedder.linear_2", "linear.weight_scaled",  # leejet/stable-diffusion.cpp #1898, invoke-ai/InvokeAI #9478
      lambda p: weights(p.transformer.time_text_embed.timestep_embedder.linear_2, lambda w: w.update(weight=scale_twice(w["weight"]))))
fault("weights.convolution_of_zeros", "weights", f"output:{D}.up_blocks.1.resnets.0.conv1", ("convolution.zero_weight", "garbage.constant"),  # raven-ml/raven #81
      lambda p: weights(up(p, 1, 0).conv1, lambda w: w.update(weight=0 * w["weight"])))

# --- capture -------------------------------------------------------------------------------------------------------------
fault("capture.one_call_late", "capture", "output:transformer.time_text_embed", "capture.other_hit",  # jcelerier/librediffusion #14
      change=one_call_late("transformer.time_text_embed"), world=FLAT)
fault("capture.rows_padded", "capture", f"output:{T}.1.attn.to_out.0", "layout.strided",  # Muesli-HQ/muesli #282, tile-ai/tilelang #2730
      change=at(f"{T}.1.attn.to_out.0", rows_padded), world=BATCH)
