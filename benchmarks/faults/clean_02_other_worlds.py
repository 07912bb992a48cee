"""Twenty more pairs that differ by rounding alone, in worlds the rules were not tuned in: other shapes, seeds and step counts, two
prompts with a mask, no guidance, all three precisions, other kernels and quantised weights. Each alarm is false."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, replace
from typing import Callable

import torch
import torch.nn.functional as F
from diffusers.models import normalization
from diffusers.models.transformers import transformer_qwenimage as dit
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from clean_01_rounding import eager, sums, threads
from planting import attribute, weights
from places import symmetric
from recorder import load, record
from worlds import World


def all_of(*plants):
    """Several differences at once."""

    @contextlib.contextmanager
    def plant(pipe):
        with contextlib.ExitStack() as stack:
            for one in plants:
                stack.enter_context(one(pipe))
            yield

    return plant


def attention_by_blocks(size):
    """Softmax over blocks of keys with a running maximum, as fused kernels do."""

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **_):
        if enable_gqa:
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
        scores = query.float() @ key.float().transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
        if is_causal:
            scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        highest = torch.full_like(scores[..., :1], -1e30)
        total, result = torch.zeros_like(highest), torch.zeros_like(query, dtype=torch.float32)
        for part, values in zip(scores.split(size, -1), value.float().split(size, -2)):
            higher = torch.maximum(highest, part.amax(-1, keepdim=True))
            kept, weight = (highest - higher).exp(), (part - higher).exp()
            total, result, highest = (
                total * kept + weight.sum(-1, keepdim=True),
                result * kept + weight @ values,
                higher,
            )
        return (result / total).to(query.dtype)

    return lambda pipe: attribute(F, "scaled_dot_product_attention", attend)


def convolutions_in_parts(parts):
    """Sums over the input channels in parts."""

    def split(plain):
        def convolve(x, weight, bias=None, *rest):
            total = sum(plain(a, b, None, *rest) for a, b in zip(x.chunk(parts, 1), weight.chunk(parts, 1)))
            return total if bias is None else total + bias.reshape(-1, *[1] * (x.ndim - 2))

        return convolve

    return all_of(
        lambda pipe: attribute(F, "conv3d", split(torch.conv3d)),
        lambda pipe: attribute(F, "conv2d", split(torch.conv2d)),
    )


def norms_in_f64(pipe):
    plain = F.layer_norm

    def layer(x, shape, weight=None, bias=None, eps=1e-5):
        more = [None if t is None else t.double() for t in (weight, bias)]
        return plain(x.double(), shape, *more, eps).to(x.dtype)

    def root_mean_square(self, x):
        y = x.double()
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        return (y / (y.pow(2).mean(-1, keepdim=True) + eps).sqrt() * self.weight.double()).to(x.dtype)

    return all_of(
        lambda pipe: attribute(F, "layer_norm", layer),
        lambda pipe: attribute(qwen.Qwen2_5_VLRMSNorm, "forward", root_mean_square),
        lambda pipe: attribute(normalization.RMSNorm, "forward", root_mean_square),
    )(pipe)


def rotation_by_sines(pipe):
    """Real arithmetic in f64 instead of complex f32."""

    def rotate(x, freqs, use_real=True):
        a, b = x.double().unflatten(-1, (-1, 2)).unbind(-1)
        c, s = freqs.real.double().unsqueeze(1), freqs.imag.double().unsqueeze(1)
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2).to(x.dtype)

    return attribute(dit, "apply_rotary_emb_qwen", rotate)


def activations_by_exponentials(pipe):
    """GELU(tanh) as x * sigmoid(2 u), SiLU as x / (1 + exp(-x)), both in f32."""

    def gelu(x, approximate="none"):
        y = x.float()
        return (y * torch.sigmoid(2 * 0.7978845608028654 * (y + 0.044715 * y**3))).to(x.dtype)

    return all_of(
        lambda pipe: attribute(F, "gelu", gelu),
        lambda pipe: attribute(F, "silu", lambda x, inplace=False: (x.float() / (1 + (-x.float()).exp())).to(x.dtype)),
    )(pipe)


def plain_kernels(_pipe):
    return torch.backends.mkldnn.flags(enabled=False)


def quantised(bits, group, part="transformer"):
    """Symmetric, in groups along the input."""

    def change(parameters):
        for name, value in parameters.items():
            if value.ndim == 2 and value.shape[1] % group == 0 and "embed" not in name:
                parameters[name] = torch.mul(*symmetric(value, bits, group)).reshape(value.shape)

    return lambda pipe: weights(getattr(pipe, part), change)


@dataclass
class Pair:
    name: str
    world: World
    candidate: Callable | None = None  # what is different
    both: Callable | None = None  # what the two runs have in common
    noise: Callable | None = None  # a second candidate whose error is the floor


def mixed(world, reference_dtype, dtype):
    return replace(world, name=f"{world.name}-{dtype}-{reference_dtype}", dtype=dtype, reference_dtype=reference_dtype)


THREE = World(
    "pairs-three",
    {
        "seed": 61,
        "layers": 3,
        "heads": 3,
        "head_dim": 32,
        "text_hidden": 96,
        "text_heads": 6,
        "text_kv_heads": 3,
        "vae_base": 10,
    },
    {
        "prompt": "a paper boat in a puddle",
        "negative": "dark",
        "width": 80,
        "height": 48,
        "steps": 3,
        "guidance": 2.0,
        "seed": 501,
    },
)
TALL = World(
    "pairs-tall",
    {"seed": 62, "layers": 2, "heads": 4, "head_dim": 64, "text_layers": 3, "text_kv_heads": 1},
    {
        "prompt": "a narrow stair between two walls",
        "width": 32,
        "height": 144,
        "steps": 5,
        "guidance": 6.0,
        "seed": 502,
    },
)
PAIR = World(
    "pairs-two-prompts",
    {"seed": 63, "layers": 3, "heads": 2, "head_dim": 32, "text_layers": 2, "random_latent_stats": True},
    {"prompt": ["moss", "a train leaving a small station in the rain"], "negative": ["low quality, noise", " "],
     "width": 64, "height": 48, "steps": 2, "guidance": 3.5, "seed": 503},
)  # fmt: skip
DEEP = World(
    "pairs-deep",
    {"seed": 64, "layers": 8, "heads": 1, "head_dim": 64, "text_layers": 5, "vae_res_blocks": 1},
    {"prompt": "snow", "negative": "people", "width": 48, "height": 48, "steps": 2, "guidance": 4.0, "seed": 504},
)
PLAIN = World(  # no guidance: one pass a step
    "pairs-plain",
    {
        "seed": 65,
        "layers": 4,
        "heads": 2,
        "head_dim": 32,
        "axes": [8, 8, 16],
        "vae_base": 16,
        "random_latent_stats": True,
    },
    {
        "prompt": "a blue cup on a white table, morning light",
        "width": 112,
        "height": 64,
        "steps": 2,
        "guidance": 1.0,
        "seed": 505,
    },
)
bf16, f16 = (lambda world, dtype=dtype: world.in_precision(dtype) for dtype in ("bf16", "f16"))
PAIRS = [
    Pair("f32, sums in thirds", THREE, sums(3)),
    Pair("f32, convolutions in halves", THREE, convolutions_in_parts(2)),
    Pair("f32, attention by blocks of 7", THREE, attention_by_blocks(7)),
    Pair("bf16, sums in eighths, reversed", bf16(THREE), sums(8, reverse=True)),
    Pair("f16, attention by blocks of 16", f16(THREE), attention_by_blocks(16)),
    Pair("f32, norms in f64", TALL, norms_in_f64),
    Pair("f32, rotation by sines in f64", TALL, rotation_by_sines),
    Pair("f16 against f32", mixed(TALL, "f32", "f16")),
    Pair("bf16, activations by exponentials", bf16(TALL), activations_by_exponentials),
    Pair("f32, three threads, plain kernels", TALL, all_of(lambda pipe: threads(3), plain_kernels)),
    Pair("f32, two prompts, attention written out", PAIR, eager),
    Pair("f32, two prompts, sums and convolutions in halves", PAIR, all_of(sums(2), convolutions_in_parts(2))),
    Pair("bf16 against f32, two prompts", mixed(PAIR, "f32", "bf16")),
    Pair("f16, two prompts, sums in thirds", f16(PAIR), sums(3)),
    Pair("f32, activations by exponentials", DEEP, activations_by_exponentials),
    Pair("bf16 against f32, 8 layers", mixed(DEEP, "f32", "bf16")),
    Pair("8-bit against f32, noise from another 8-bit run", DEEP, quantised(8, 64), noise=quantised(8, 32)),
    Pair("4-bit both, sums in halves", DEEP, sums(2), both=all_of(quantised(4, 32), quantised(4, 32, "text_encoder"))),
    Pair("f32, no guidance, everything at once", PLAIN,
         all_of(sums(4, reverse=True), attention_by_blocks(9), convolutions_in_parts(2), norms_in_f64, rotation_by_sines, activations_by_exponentials)),
    Pair("f16 against bf16, no guidance", mixed(PLAIN, "bf16", "f16")),
]  # fmt: skip


def runs_of(home, pair: Pair, load_once: Callable) -> tuple:
    """(model folder, reference, candidate, noise run or None) of a pair, recorded."""
    from tiny_pipeline import make_pipeline

    world = pair.world
    model = home / f"model-pairs-{world.model['seed']}"
    if not model.exists():
        make_pipeline(model, **world.model)
    number = PAIRS.index(pair)

    def recorded(name, dtype, *plants):
        folder = home / f"pair-{number}-{name}"
        if not folder.exists():
            pipeline = load_once(model, dtype)
            with all_of(*(plant for plant in plants if plant))(pipeline):
                record(pipeline, folder, **world.settings)
        return folder

    reference = recorded("reference", world.reference_dtype, pair.both)
    candidate = recorded("candidate", world.dtype, pair.both, pair.candidate)
    noise = recorded("noise", world.dtype, pair.both, pair.noise) if pair.noise else None
    return model, reference, candidate, noise


def run_clean_pairs(home, compare, keep=False, reuse=False) -> list:
    alarms, loaded = [], {}

    def load_once(model, dtype):
        if (model, dtype) not in loaded:
            loaded[model, dtype] = load(model, dtype)
        return loaded[model, dtype]

    for number, pair in enumerate(PAIRS):
        if not reuse:
            for path in home.glob(f"pair-{number}-*"):
                shutil.rmtree(path)
        model, reference, candidate, noise = runs_of(home, pair, load_once)
        result = compare(reference, candidate, model, *(["--noise", str(noise)] if noise else []))
        good, first = result["verdict"] == "match", result["first_divergence"]
        final = [t for t in result["tensors"] if t["name"] == "latents"][-1]["error"]["relative"]
        said = (
            "match"
            if good
            else f"FALSE ALARM at {first['role']}:{first['name']} {first['error']['relative']} floor {first['noise_floor']}"
        )
        print(
            f"clean pair {number + 1:>2}: {pair.world.name:<18} {pair.name:<50} {said}  (latents off by {final:.1e})",
            flush=True,
        )
        if not good:
            alarms.append({"model": pair.world.name, "pair": pair.name, "at": first["name"]})
        if not keep:
            for path in home.glob(f"pair-{number}-*"):
                shutil.rmtree(path)
    print(f"\nfalse alarms on clean pairs: {len(alarms)} of {len(PAIRS)}")
    return alarms
