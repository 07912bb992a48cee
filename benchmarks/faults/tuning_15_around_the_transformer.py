"""Mistakes in the stages around the transformer: convolutions, norms and resampling of the autoencoder, steps of the sampler, guidance,
weights in few bits, captures. Written down before it was tried whether they are found. For tuning, no measure."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F

from suite_01_every_stage import CALL, D, E, T, at, block, layer, scheduler, up
from places import MIDDLE, faults_of, symmetric
from planting import attribute, code, forward, weights
from worlds import World

FAULTS: list = []
# 4 by 5 image tokens; square projections of the text stream; channels of the autoencoder that are no power of two.
WIDE = World(
    "stage-wide",
    {"seed": 151, "layers": 2, "heads": 4, "head_dim": 32, "text_hidden": 128, "text_heads": 4, "text_kv_heads": 2, "text_layers": 2,
     "text_intermediate": 192, "vae_base": 12, "vae_res_blocks": 1, "random_latent_stats": True},
    {"prompt": "two chairs on a beach, early morning", "negative": "grey", "width": 80, "height": 64, "steps": 4, "guidance": 3.5, "seed": 15},
)  # fmt: skip
TWO = World(
    "stage-two",
    {"seed": 152, "layers": 2, "heads": 2, "head_dim": 32, "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["a kite over the hills", "rust"], "negative": ["frame", "hands, people, text"], "width": 64, "height": 64, "steps": 3,
     "guidance": 4.0, "seed": 16},
)  # fmt: skip
fault = faults_of(FAULTS, WIDE)
LATENTS, PREDICTION, DECODED = "checkpoint:latents", "checkpoint:noise_pred", "checkpoint:latents_denormalized"
STEP = "prev_sample = sample + dt * model_output"
COMBINED = "noise_pred = comb_pred * (cond_norm / noise_norm)"


def conv_weight(place, change):
    """A convolution whose weight was changed on its way; `place` finds it in the decoder."""
    return lambda p: weights(place(p), lambda w: w.update(weight=change(w["weight"]).reshape(w["weight"].shape)))


def conv_path(i, j, name):
    return f"output:{D}.up_blocks.{i}.resnets.{j}.{name}"


def read_as(*axes):
    """The weight's memory taken for that of its axes in another order."""
    def change(w):
        back = sorted(range(len(axes)), key=axes.__getitem__)
        return w.reshape([w.shape[a] for a in axes]).permute(back)
    return change


def laid_down(*axes):
    return lambda w: w.permute(axes).contiguous()


def in_tiles(dim):
    """Two tiles that do not overlap, put side by side."""
    def run(self, old, x, *a):
        return torch.cat([old(part, *a) for part in x.tensor_split([x.shape[dim] // 2], dim)], dim)
    return run


def norm_with(i, j, name, change):
    return lambda p: forward(getattr(up(p, i, j), name), lambda self, old, x: change(x) * self.gamma)


def upsampled(i, change):
    return lambda p: forward(p.vae.decoder.up_blocks[i].upsamplers[0].resample[0], lambda self, old, x: change(x))


def only_rows(x):
    return F.interpolate(F.interpolate(x, scale_factor=(2, 1), mode="bilinear"), scale_factor=(1, 2), mode="nearest")


@contextlib.contextmanager
def trained(module):
    """As it was while the model was trained: dropout is on."""
    module.p, module.training = 0.25, True
    torch.manual_seed(3)
    try:
        yield
    finally:
        module.p, module.training = 0.0, False


def stepped(source, *more):
    return lambda p: scheduler(p, "step", (STEP, source), *more)


def in_groups(change, bits=8, group=None):
    """change(whole numbers, scales) of a symmetric quantiser, [rows * groups, group or 1] → weight."""
    return lambda w: w.update(weight=change(*symmetric(w["weight"], bits, group or w["weight"].shape[1])).reshape(w["weight"].shape))


def f8(w, scale):
    return (w / scale).to(torch.float8_e4m3fn).float()


def largest(w, dim=None):
    return (w.abs().amax() if dim is None else w.abs().amax(dim, keepdim=True)) / 448


def as_other_half(w):
    return w.bfloat16().view(torch.float16).float()


def of_columns(w):
    step = w.abs().amax(0, keepdim=True) / 7
    return (w / step).round() * step


def scales_by_group(integers, step):
    """Scales stored group by group, read row by row."""
    groups = 4
    return integers * step.reshape(-1, groups).T.reshape(-1, 1)


def q4_0(w, offset):
    x = w.reshape(-1, 32)
    peak = x.gather(1, x.abs().argmax(1, keepdim=True))
    step = peak / -8
    return ((x / step + 8.5).floor().clamp(0, 15) - offset) * step


def at_module(name, other):
    """Captures another tensor of the run, as it was seen before, in its place."""
    seen = {}

    def change(n, role, step, tags, x):
        if n == other[0] and role == "output":
            seen["x"] = x.clone()
        return other[1](seen["x"]) if n == name and role == "output" and "x" in seen else x

    return change


def eight_bit(x):
    step = x.abs().amax(-1, keepdim=True) / 127
    return (x / step).round() * step


# --- convolutions of the autoencoder ---------------------------------------------------------------------------------------
first = lambda p: up(p, 0, 0).conv1  # noqa: E731
second = lambda p: up(p, 1, 0).conv2  # noqa: E731
resampled = lambda p: p.vae.decoder.up_blocks[1].upsamplers[0].resample[1]  # noqa: E731
AXES = ("convolution.kernel_axes", "convolution.transposed_weight")
fault("vae.kernel_read_channels_last", "vae", conv_path(0, 0, "conv1"), AXES, conv_weight(first, read_as(0, 2, 3, 4, 1)))
fault("vae.kernel_laid_channels_last", "vae", conv_path(1, 0, "conv2"), AXES, conv_weight(second, laid_down(0, 2, 3, 4, 1)))
fault("vae.kernel_read_inputs_first", "vae", conv_path(0, 0, "conv1"), AXES, conv_weight(first, read_as(2, 3, 4, 1, 0)))
fault("vae.kernel_time_last", "vae", conv_path(1, 0, "conv2"), (*AXES, "convolution.temporal_tap"), conv_weight(second, read_as(0, 1, 3, 4, 2)))
fault("vae.one_frame_repeated_once", "vae", conv_path(0, 0, "conv1"), "convolution.temporal_tap",
      conv_weight(first, lambda w: torch.cat([0 * w[:, :, :2], w[:, :, 1:].sum(2, keepdim=True)], 2)))
fault("vae.taps_averaged", "vae", conv_path(1, 0, "conv2"), "convolution.temporal_tap", conv_weight(second, lambda w: w.mean(2, keepdim=True).expand(-1, -1, 3, -1, -1)))
fault("vae.transposed_convolution", "vae", conv_path(0, 0, "conv1"), ("convolution.transposed_weight", "convolution.kernel_mirrored", "convolution.kernel_axes"),
      conv_weight(first, lambda w: w.transpose(0, 1).flip(-1, -2)))
fault("vae.mirrored_and_repeated", "vae", conv_path(1, 0, "conv2"), ("convolution.kernel_mirrored", "convolution.temporal_tap"),
      conv_weight(second, lambda w: w.flip(-1, -2).sum(2, keepdim=True).expand(-1, -1, 3, -1, -1) * torch.tensor([0.0, 0, 1]).view(1, 1, 3, 1, 1)))
fault("vae.inputs_interleaved", "vae", conv_path(0, 0, "conv1"), "convolution.input_order", conv_weight(first, lambda w: w.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2)))
fault("vae.conv_tiles_rows", "vae", conv_path(1, 0, "conv2"), "convolution.padding", lambda p: forward(second(p), in_tiles(-2)))
fault("vae.conv_tiles_columns", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.1", "convolution.padding", lambda p: forward(resampled(p), in_tiles(-1)))
fault("vae.conv_of_activation", "vae", conv_path(0, 0, "conv1"), "activation.added", lambda p: forward(first(p), lambda self, old, x, *a: old(F.silu(x), *a)))
fault("vae.conv_eight_bits", "vae", conv_path(0, 0, "conv1"), "convolution.weight_rounded",
      conv_weight(first, lambda w: (lambda q, s: q * s)(*symmetric(w.flatten(1), 8, w[0].numel()))))
fault("vae.conv_four_bits_groups", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.1", "convolution.weight_rounded",
      conv_weight(resampled, lambda w: (lambda q, s: q * s)(*symmetric(w.flatten(1), 4, 36))))
fault("vae.conv_second_prompt_only", "vae", conv_path(1, 0, "conv2"), "convolution.padding", world=TWO,
      plant=lambda p: forward(second(p), lambda self, old, x, *a: torch.cat([old(x, *a)[:1], old(F.pad(x, (1, 1, 1, 1, 0, 0), mode="replicate"), *a)[1:, ..., 1:-1, 1:-1]])))

# --- norms, resampling and the rest of the autoencoder -------------------------------------------------------------------------
NORM = ("norm.kind", "norm.axis")
fault("vae.instance_norm", "vae", conv_path(0, 0, "norm1"), NORM, norm_with(0, 0, "norm1", lambda x: F.instance_norm(x)))
fault("vae.norm_over_all", "vae", conv_path(1, 0, "norm2"), NORM, norm_with(1, 0, "norm2", lambda x: F.layer_norm(x, x.shape[1:])))
fault("vae.group_rms_and_space", "vae", conv_path(1, 0, "norm1"), NORM,
      norm_with(1, 0, "norm1", lambda x: (lambda g: (g * torch.rsqrt(g.pow(2).mean((2, 3, 4, 5), keepdim=True) + 1e-6)).flatten(1, 2))(x.unflatten(1, (4, -1)))))
fault("vae.group_norm_without_space", "vae", conv_path(2, 0, "norm1"), NORM,
      norm_with(2, 0, "norm1", lambda x: F.layer_norm(x.unflatten(1, (3, -1)).movedim(2, -1), (x.shape[1] // 3,)).movedim(-1, 2).flatten(1, 2)))
fault("vae.norm_out_of_groups", "vae", f"output:{D}.norm_out", NORM, lambda p: forward(p.vae.decoder.norm_out, lambda self, old, x: F.group_norm(x, 3, self.gamma.flatten(), eps=1e-5)))
fault("vae.dropout_on", "vae", (f"output:{D}.up_blocks.1.resnets.0.dropout", f"input:{D}.up_blocks.1.resnets.0.conv2"), "garbage.zeros", lambda p: trained(up(p, 1, 0).dropout))
fault("vae.rows_bilinear", "vae", f"output:{D}.up_blocks.1.upsamplers.0.resample.0", "resample.kind", upsampled(1, only_rows))
fault("vae.upsampled_with_corners", "vae", f"output:{D}.up_blocks.0.upsamplers.0.resample.0", "resample.kind", upsampled(0, lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True)))
fault("vae.residual_divided", "vae", f"output:{D}.up_blocks.1.resnets.0", ("residual.factor", "affine.scale"), lambda p: code(up(p, 1, 0), "forward", ("return x + h", "return (x + h) / 2**0.5")))
fault("vae.mid_attention_unscaled", "vae", f"input:{MIDDLE}.proj", "attention.scale",
      lambda p: code(p.vae.decoder.mid_block.attentions[0], "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(q, k, v, scale=1.0)")))
fault("capture.picture_upside_down_and_mirrored", "capture", "checkpoint:image", "layout.reversed", change=lambda n, role, step, tags, x: x[..., ::-1, ::-1, :].copy() if n == "image" else x)

# --- sampler ----------------------------------------------------------------------------------------------------------------
fault("scheduler.to_the_end_at_once", "scheduler", LATENTS, ("scheduler.dt", "scheduler.formula", "scheduler.sigmas"), stepped("prev_sample = sample - sigma * model_output"))
fault("scheduler.next_sigma", "scheduler", LATENTS, ("scheduler.dt", "scheduler.formula", "scheduler.sigmas"), stepped("prev_sample = sample - sigma_next * model_output"))
fault("scheduler.twice_as_far", "scheduler", LATENTS, ("scheduler.scale", "scheduler.dt"), stepped("prev_sample = sample + 2 * dt * model_output"))
fault("scheduler.three_predictions", "scheduler", LATENTS, "scheduler.formula",
      stepped("self._v = ([] if self.step_index == 0 else self._v)[-2:] + [model_output]\n        w = {1: [1], 2: [-.5, 1.5], 3: [5/12, -16/12, 23/12]}[len(self._v)]\n        prev_sample = sample + dt * sum(a * b for a, b in zip(w, self._v))"))
fault("scheduler.noise_again", "scheduler", LATENTS, ("scheduler.noise", "scheduler.formula"),
      stepped("prev_sample = (1 - sigma_next) * (sample - sigma * model_output) + sigma_next * torch.randn(sample.shape, generator=torch.Generator().manual_seed(4))"))
fault("scheduler.sigmas_f16", "scheduler", LATENTS, ("precision.f16", "scheduler.sigmas"), stepped(STEP, ("dt = sigma_next - sigma", "dt = sigma_next.half().float() - sigma.half().float()")))
fault("scheduler.fixed_shift", "scheduler", LATENTS, "scheduler.sigmas", lambda p: scheduler(p, "set_timesteps", ("sigmas = self.time_shift(mu, 1.0, sigmas)", "sigmas = 3 * sigmas / (1 + 2 * sigmas)")))

# --- guidance and latents -----------------------------------------------------------------------------------------------------
fault("pipeline.rescale_never_up", "pipeline", PREDICTION, "guidance.rescale", CALL((COMBINED, "ratio = cond_norm / noise_norm; noise_pred = comb_pred * ratio.clamp(max=float(ratio.median()))")))
fault("pipeline.rescale_by_sums", "pipeline", PREDICTION, "guidance.rescale", CALL((COMBINED, "noise_pred = comb_pred * (noise_pred.abs().sum(-1, keepdim=True) / comb_pred.abs().sum(-1, keepdim=True))")))
fault("pipeline.rescale_squares", "pipeline", PREDICTION, "guidance.rescale", CALL((COMBINED, "noise_pred = comb_pred * (cond_norm / noise_norm) ** 2")))
fault("pipeline.rescale_by_item", "pipeline", PREDICTION, "guidance.rescale", CALL((COMBINED, "noise_pred = comb_pred * (noise_pred.norm(dim=(1, 2), keepdim=True) / comb_pred.norm(dim=(1, 2), keepdim=True))")), world=TWO)
fault("pipeline.rescale_by_pixel", "pipeline", PREDICTION, "guidance.rescale",
      CALL((COMBINED, "noise_pred = comb_pred * (noise_pred.unflatten(-1, (-1, 4)).norm(dim=-2, keepdim=True) / comb_pred.unflatten(-1, (-1, 4)).norm(dim=-2, keepdim=True)).expand(-1, -1, 16, -1).flatten(-2)")))
fault("pipeline.negative_projected", "pipeline", PREDICTION, ("guidance.scale", "guidance.rescale"),
      CALL(("comb_pred = neg_noise_pred +", "neg_noise_pred = neg_noise_pred * (noise_pred * neg_noise_pred).sum() / neg_noise_pred.square().sum(); comb_pred = neg_noise_pred +"), (COMBINED, "noise_pred = comb_pred")))
fault("pipeline.statistics_bf16", "pipeline", DECODED, ("precision.bf16", "latents.statistics"), CALL(("latents = latents / latents_std + latents_mean", "latents = latents / latents_std.bfloat16().float() + latents_mean.bfloat16().float()")))
fault("pipeline.last_step_not_taken", "pipeline", (DECODED, LATENTS), ("stage.replaced", "capture.other_hit", "scheduler.dt", "scheduler.formula"),
      CALL(("latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]", "latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0] if i + 1 < len(timesteps) else latents")))

# --- weights in few bits, and captures ------------------------------------------------------------------------------------------
QUANTISED = ("linear.weight_quantised", "linear.weight_row_scale", "linear.different_weight")
SQUARE, WIDER = f"output:{T}.1.attn.add_k_proj", f"output:{T}.0.img_mlp.net.0.proj"
square, wider = lambda p: block(p, 1).attn.add_k_proj, lambda p: block(p, 0).img_mlp.net[0].proj  # noqa: E731
fault("weights.scales_by_group", "weights", SQUARE, QUANTISED, lambda p: weights(square(p), in_groups(scales_by_group, 8, 32)))
fault("weights.groups_of_outputs", "weights", WIDER, (*QUANTISED, "linear.weight_rounded"), lambda p: weights(wider(p), lambda w: w.update(weight=of_columns(w["weight"]))))
fault("weights.f8_scale_inverted", "weights", WIDER, ("linear.weight_quantised", "linear.weight_scaled"), lambda p: weights(wider(p), lambda w: w.update(weight=f8(w["weight"], largest(w["weight"])) / largest(w["weight"]))))
fault("weights.f8_rows", "weights", SQUARE, ("linear.weight_quantised", "linear.weight_rounded"), lambda p: weights(square(p), lambda w: w.update(weight=f8(w["weight"], largest(w["weight"], 1)) * largest(w["weight"], 1))))
fault("weights.f8_row_scales_missing", "weights", SQUARE, ("linear.weight_quantised", "linear.weight_row_scale", "linear.weight_scaled"), lambda p: weights(square(p), lambda w: w.update(weight=f8(w["weight"], largest(w["weight"], 1)))))
fault("weights.q4_0", "weights", WIDER, ("linear.weight_quantised",), lambda p: weights(wider(p), lambda w: w.update(weight=q4_0(w["weight"], 8).reshape(w["weight"].shape))))
fault("weights.q4_0_not_centred", "weights", WIDER, ("linear.weight_quantised", "linear.different_weight"), lambda p: weights(wider(p), lambda w: w.update(weight=q4_0(w["weight"], 0).reshape(w["weight"].shape))))
fault("weights.other_half_format", "weights", SQUARE, ("linear.different_weight", "linear.weight_rounded"), lambda p: weights(square(p), lambda w: w.update(weight=as_other_half(w["weight"]))))
fault("weights.cut_to_bf16", "weights", f"output:{E}.1.mlp.up_proj", ("linear.weight_rounded",),
      lambda p: weights(layer(p, 1).mlp.up_proj, lambda w: w.update(weight=(w["weight"].view(torch.int32) & -65536).view(torch.float32))))
fault("capture.other_stage_channels_last", "capture", conv_path(1, 0, "conv1"), ("capture.other_stage", "stage.replaced", "layout.axes"),
      change=at_module(f"{D}.up_blocks.1.resnets.0.conv1", (f"{D}.up_blocks.1.resnets.0.conv_shortcut", lambda x: x.permute(0, 2, 3, 4, 1).contiguous().reshape(x.shape))))
fault("capture.eight_bit_activations", "capture", f"output:{T}.1.img_mlp.net.2", "precision.integer", change=at(f"{T}.1.img_mlp.net.2", eight_bit))

# --- a second look: the same stages, other mistakes -----------------------------------------------------------------------------
STEP_CALL = "latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]"
fault("pipeline.no_guidance", "pipeline", PREDICTION, ("guidance.scale", "stage.replaced"), CALL((COMBINED, "pass")))
fault("pipeline.guidance_sign", "pipeline", PREDICTION, ("guidance.scale", "guidance.exchanged"), CALL(("true_cfg_scale * (noise_pred - neg_noise_pred)", "true_cfg_scale * (neg_noise_pred - noise_pred)")))
fault("pipeline.guidance_of_first_channels", "pipeline", PREDICTION, ("stage.replaced", "guidance.scale", "guidance.rescale"), CALL((COMBINED, COMBINED + "; noise_pred = torch.cat([noise_pred[..., :12], cond_pred[..., 12:]], -1)"), ("comb_pred = neg_noise_pred +", "cond_pred = noise_pred; comb_pred = neg_noise_pred +")))
fault("pipeline.prediction_of_last_step", "pipeline", (PREDICTION, LATENTS), ("scheduler.other_prediction", "capture.other_hit"),
      CALL((STEP_CALL, "before = noise_pred if i == 0 else now; now = noise_pred; latents = self.scheduler.step(before, t, latents, return_dict=False)[0]")))
fault("scheduler.from_the_noise_again", "scheduler", LATENTS, ("scheduler.formula", "stage.replaced", "residual.other_input"),
      CALL((STEP_CALL, "start = latents if i == 0 else start; latents = self.scheduler.step(noise_pred, t, start, return_dict=False)[0]")))
fault("scheduler.velocity_as_noise", "scheduler", LATENTS, "scheduler.formula", stepped("prev_sample = sample + (sigma_next - sigma) * (model_output + sample)"))
fault("scheduler.karras", "scheduler", (LATENTS, "input:transformer.timestep"), "scheduler.sigmas", lambda p: scheduler(p, "set_timesteps", ("if self.config.use_karras_sigmas:", "if True:")))
fault("scheduler.down_to_zero", "scheduler", LATENTS, "scheduler.sigmas", CALL(("np.linspace(1.0, 1 / num_inference_steps, num_inference_steps)", "np.linspace(1.0, 0.001, num_inference_steps)")))
fault("pipeline.one_scaling_factor", "pipeline", DECODED, ("latents.statistics", "affine.scale"), CALL(("latents = latents / latents_std + latents_mean", "latents = latents / 0.18215")))
fault("pipeline.statistics_rolled", "pipeline", DECODED, "latents.statistics", CALL(("latents = latents / latents_std + latents_mean", "latents = latents / latents_std.roll(1, 1) + latents_mean.roll(1, 1)")))
fault("vae.block_left_out", "vae", (f"*:{D}.up_blocks.1.*", f"*:{D}.up_blocks.0.resnets.1*"), ("stage.replaced", "capture.other_stage", "residual.branch_missing"), lambda p: forward(up(p, 0, 1), lambda self, old, x, *a: x))
fault("vae.attention_left_out", "vae", f"output:{MIDDLE}", ("stage.replaced", "residual.branch_missing", "capture.other_stage"), lambda p: forward(p.vae.decoder.mid_block.attentions[0], lambda self, old, x: x))
fault("vae.weights_of_the_encoder", "vae", f"output:{D}.mid_block.resnets.0.conv1", "convolution.other_weight",
      lambda p: weights(p.vae.decoder.mid_block.resnets[0].conv1, lambda w: w.update({n: v.clone() for n, v in p.vae.encoder.mid_block.resnets[0].conv1.named_parameters()})))
fault("vae.projection_transposed", "vae", f"output:{MIDDLE}.proj", "convolution.transposed_weight", conv_weight(lambda p: p.vae.decoder.mid_block.attentions[0].proj, lambda w: w.transpose(0, 1)))
fault("vae.qkv_by_rows", "vae", (f"output:{MIDDLE}.to_qkv", f"input:{MIDDLE}.proj"), ("layout.interleaved", "attention.qkv_exchanged", "layout.parts_exchanged"),
      lambda p: weights(p.vae.decoder.mid_block.attentions[0].to_qkv, lambda w: w.update(weight=w["weight"].unflatten(0, (3, -1)).transpose(0, 1).flatten(0, 1), bias=w["bias"].unflatten(0, (3, -1)).T.flatten())))
fault("vae.gamma_plus_one", "vae", conv_path(1, 0, "norm2"), "norm.one_plus_weight", lambda p: forward(up(p, 1, 0).norm2, lambda self, old, x: F.normalize(x, dim=1) * self.scale * (1 + self.gamma)))
fault("vae.norm_over_columns", "vae", conv_path(0, 0, "norm2"), NORM, norm_with(0, 0, "norm2", lambda x: F.normalize(x, dim=-1) * x.shape[-1] ** 0.5))
fault("vae.norm_over_rows_and_columns_of_groups", "vae", conv_path(1, 0, "norm1"), NORM, lambda p: forward(up(p, 1, 0).norm1, lambda self, old, x: F.group_norm(x, 6, eps=1e-6)))
fault("vae.activation_of_mish", "vae", f"output:{D}.up_blocks.0.resnets.0.nonlinearity", ("activation.kind", "elementwise.function"), lambda p: forward(up(p, 0, 0).nonlinearity, lambda self, old, x: F.mish(x)))
fault("vae.output_through_tanh", "vae", (f"output:{D}.conv_out", f"output:{D}", "output:vae", "checkpoint:*"), ("activation.added", "elementwise.added", "elementwise.function"), lambda p: forward(p.vae.decoder.conv_out, lambda self, old, x, *a: torch.tanh(old(x, *a))))
fault("capture.latents_of_the_step_before", "capture", LATENTS, ("capture.other_hit",), change=(lambda seen: lambda n, role, step, tags, x: (seen.append(x) or (seen[-2] if len(seen) > 1 else x)) if n == "latents" and step is not None and step >= 0 else x)([]))
fault("weights.zero_points_off_by_one", "weights", WIDER, "linear.weight_quantised",
      lambda p: weights(wider(p), lambda w: w.update(weight=(lambda x, lo, st: ((((x / st).round() - (lo / st).round()).clamp(0, 15)) + (lo / st).round() - 1) * st)(*(lambda x: (x, x.amin(1, keepdim=True), (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)) / 15))(w["weight"].reshape(-1, 64))).reshape(w["weight"].shape))))

# --- memory and formats of weights, a sampler that thresholds --------------------------------------------------------------------
fault("weights.read_too_late", "weights", WIDER, ("linear.different_weight",), lambda p: weights(wider(p), lambda w: w.update(weight=w["weight"].flatten().roll(-8).reshape(w["weight"].shape))))
fault("weights.tiles_transposed", "weights", WIDER, ("linear.transposed_weight", "linear.different_weight"),
      lambda p: weights(wider(p), lambda w: w.update(weight=w["weight"].unflatten(0, (-1, 32)).unflatten(2, (-1, 32)).transpose(1, 3).flatten(0, 1).flatten(1, 2))))
fault("weights.tiles_as_rows", "weights", SQUARE, ("linear.different_weight", "linear.input_parts_exchanged"),
      lambda p: weights(square(p), lambda w: w.update(weight=w["weight"].unflatten(0, (-1, 16)).unflatten(2, (-1, 16)).transpose(1, 2).reshape(w["weight"].shape))))
fault("weights.conv_read_too_early", "weights", conv_path(0, 0, "conv1"), ("convolution.different_weight", "convolution.kernel_axes"), conv_weight(first, lambda w: w.flatten().roll(4)))
fault("weights.f8_other_bias", "weights", SQUARE, ("linear.different_weight", "linear.weight_scaled", "linear.weight_rounded"), lambda p: weights(square(p), lambda w: w.update(weight=w["weight"].to(torch.float8_e4m3fn).float() / 2)))
fault("scheduler.thresholded", "scheduler", LATENTS, "scheduler.formula", stepped("x0 = (sample - sigma * model_output).clamp(-1, 1)\n        prev_sample = x0 + sigma_next / sigma * (sample - x0)"))

# --- a third look: latents, pictures, tokens, captures -----------------------------------------------------------------------------
DENORMALISED = "latents = latents / latents_std + latents_mean"
PACKED = "checkpoint:initial_latents_packed"
picture = lambda f: (lambda n, role, step, tags, x: f(x).copy() if n == "image" else x)  # noqa: E731
fault("pipeline.mean_by_hand", "pipeline", DECODED, ("latents.mean_missing", "latents.statistics"), CALL((DENORMALISED, "latents = latents / latents_std + latents_mean.mean()")))
fault("pipeline.root_of_std", "pipeline", DECODED, "latents.statistics", CALL((DENORMALISED, "latents = latents / latents_std**0.5 + latents_mean")))
fault("pipeline.latents_shifted_by_a_pixel", "pipeline", (DECODED,), ("layout.rolled", "layout.shifted"), CALL((DENORMALISED, DENORMALISED + "; latents = latents.roll((1, 1), (-1, -2))")))
fault("pipeline.latents_mirrored", "pipeline", DECODED, ("layout.reversed",), CALL((DENORMALISED, DENORMALISED + "; latents = latents.flip(-1)")))
fault("pipeline.latents_in_f16", "pipeline", DECODED, "precision.f16", CALL((DENORMALISED, DENORMALISED + "; latents = latents.half().float()")))
fault("pipeline.unpacked_column_by_column", "pipeline", DECODED, ("layout.packing", "layout.permuted", "layout.strided"), world=TWO,
      plant=CALL(("latents = self._unpack_latents(latents, height, width, self.vae_scale_factor)", "latents = self._unpack_latents(latents, height, width, self.vae_scale_factor).transpose(-1, -2).contiguous()")))
fault("pipeline.noise_scaled_by_std", "pipeline", PACKED, ("affine.channel_scale", "affine.scale"), lambda p: attribute(type(p), "_pack_latents", staticmethod((lambda old: lambda x, *a: old(x * torch.linspace(0.5, 1.5, 16).view(1, 16, *[1] * (x.ndim - 2)) if x.shape[1] == 16 else x * torch.linspace(0.5, 1.5, 16).view(1, 1, 16, 1, 1), *a))(p._pack_latents))))
fault("capture.picture_tiles_exchanged", "capture", "checkpoint:image", ("layout.parts_exchanged",), change=picture(lambda x: __import__("numpy").roll(x, (x.shape[-3] // 2, x.shape[-2] // 2), (-3, -2))))
fault("capture.picture_planes_first", "capture", "checkpoint:image", ("layout.strided", "layout.axes"), change=picture(lambda x: __import__("numpy").moveaxis(x, -1, -3).reshape(x.shape)))
fault("capture.picture_green_blue", "capture", "checkpoint:image", ("layout.permuted", "layout.rolled", "layout.reversed"), change=picture(lambda x: x[..., [0, 2, 1]]))
fault("capture.picture_grey", "capture", "checkpoint:image", ("layout.repeated", "affine.scale"), change=picture(lambda x: x[..., [1, 1, 1]]))
fault("capture.picture_negative", "capture", "checkpoint:image", ("affine.scale_offset", "affine.scale"), change=picture(lambda x: 255 - x))
fault("capture.picture_seven_bits", "capture", "checkpoint:image", ("precision.integer", "elementwise.function"), change=picture(lambda x: x // 2 * 2))
fault("capture.every_other_token_twice", "capture", f"output:{T}.0.attn.to_q", ("layout.repeated",), change=at(f"{T}.0.attn.to_q", lambda x: x[:, torch.arange(x.shape[1]) // 2 * 2]))
fault("capture.sum_with_the_residual", "capture", f"output:{D}.up_blocks.1.resnets.0.conv2", ("capture.other_stage", "residual.added"),
      change=at_module(f"{D}.up_blocks.1.resnets.0.conv2", (f"{D}.up_blocks.1.resnets.0.conv_shortcut", lambda x: x)))
fault("capture.row_of_zeros_at_the_end", "capture", f"output:{E}.0.mlp.gate_proj", ("garbage.zeros",), change=at(f"{E}.0.mlp.gate_proj", lambda x: torch.cat([x[:, :-3], 0 * x[:, -3:]], 1)))
fault("capture.last_token_repeated", "capture", f"output:{E}.1.mlp", ("layout.repeated", "layout.shifted"), change=at(f"{E}.1.mlp", lambda x: torch.cat([x[:, :-4], x[:, -5:-4].expand(-1, 4, -1)], 1)))
fault("weights.rows_for_rope", "weights", SQUARE, ("layout.interleaved", "layout.heads", "layout.permuted"), lambda p: weights(square(p), lambda w: w.update({n: v.unflatten(0, (4, 2, 16)).transpose(1, 2).flatten(0, 2) for n, v in w.items()})))
fault("weights.lora_negative", "weights", WIDER, "linear.different_weight", lambda p: weights(wider(p), lambda w: w.update(weight=w["weight"] - 0.05 * torch.randn(w["weight"].shape[0], 3, generator=torch.Generator().manual_seed(1)) @ torch.randn(3, w["weight"].shape[1], generator=torch.Generator().manual_seed(2)))))
fault("weights.first_rows_only", "weights", WIDER, ("garbage.zeros", "linear.zero_weight", "linear.different_weight"), lambda p: weights(wider(p), lambda w: w["weight"][256:].zero_()))
fault("weights.conv_rows_of_next", "weights", conv_path(1, 0, "conv2"), ("layout.rolled", "convolution.different_weight"), conv_weight(second, lambda w: w.roll(1, 0)))
