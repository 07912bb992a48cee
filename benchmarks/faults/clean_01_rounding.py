"""Pairs that differ by rounding alone: other precision, other order of sums, other kernels, quantised weights with a
quantised run as the noise. Each alarm is false."""

from __future__ import annotations

import contextlib
import shutil

import torch
import torch.nn.functional as F

from planting import attribute, weights
from recorder import load, record


@contextlib.contextmanager
def linear(function):
    with attribute(F, "linear", function):
        yield


def split_linear(parts, reverse=False, double=False):
    """x W^T summed in another order."""
    plain = torch._C._nn.linear

    def function(x, weight, bias=None):
        if double:
            return plain(x.double(), weight.double(), None if bias is None else bias.double()).to(x.dtype)
        pieces = list(zip(x.chunk(parts, -1), weight.chunk(parts, -1)))
        if reverse:
            pieces.reverse()
        total = sum(plain(a, b) for a, b in pieces)
        return total if bias is None else total + bias

    return function


def eager_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **_
):
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1) @ value


def sums(parts, reverse=False, double=False):
    return lambda pipe: linear(split_linear(parts, reverse, double))


def eager(_pipe):
    return attribute(F, "scaled_dot_product_attention", eager_attention)


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def quantised(group):
    """8 bits, symmetric, in groups along the input."""

    def change(parameters):
        for name, value in parameters.items():
            if value.ndim == 2 and value.shape[1] % group == 0 and "embed" not in name:
                x = value.reshape(-1, group)
                step = x.abs().amax(1, keepdim=True) / 127
                parameters[name] = ((x / step).round() * step).reshape(value.shape)

    return lambda pipe: weights(pipe.transformer, change)


# (name, dtype of the reference, dtype of the candidate, what is different, is a noise run needed)
VARIANTS = [
    ("f32, sums in halves", "f32", "f32", sums(2), None),
    ("f32, sums in quarters, reversed", "f32", "f32", sums(4, reverse=True), None),
    ("f32, products in f64", "f32", "f32", sums(1, double=True), None),
    ("f32, attention written out", "f32", "f32", eager, None),
    ("f32, two threads", "f32", "f32", lambda pipe: threads(2), None),
    ("bf16 against f32", "f32", "bf16", None, None),
    ("bf16, sums in halves", "bf16", "bf16", sums(2), None),
    ("bf16, attention written out", "bf16", "bf16", eager, None),
    ("f16 against f32", "f32", "f16", None, None),
    ("8-bit against f32, noise from another 8-bit run", "f32", "f32", quantised(32), quantised(16)),
]
MODELS = [
    {"seed": 3, "layers": 3, "heads": 2, "head_dim": 32, "text_layers": 2},
    {"seed": 11, "layers": 4, "heads": 2, "head_dim": 64, "text_layers": 3},
    {"seed": 12, "layers": 6, "heads": 1, "head_dim": 32, "text_layers": 2},
    {"seed": 13, "layers": 2, "heads": 4, "head_dim": 32, "text_layers": 4},
    {"seed": 14, "layers": 3, "heads": 3, "head_dim": 32, "text_layers": 2},
]


def run_clean_pairs(home, compare, keep=False, reuse=False) -> list:
    from tiny_pipeline import make_pipeline

    alarms, count = [], 0
    for number, config in enumerate(MODELS):
        model = home / f"model-{number}"
        if not (reuse and model.exists()):
            make_pipeline(model, **config)
        settings = {"seed": 100 + number, "steps": 3 + number % 2, "guidance": 4.0 - 0.5 * number,
                    "width": (64, 96, 64, 32, 80)[number], "height": (96, 64, 64, 80, 48)[number],
                    "prompt": ("a red fox", "two birds over a lake at dusk", "x", "a long road through hills, rain", "tea")[number]}  # fmt: skip
        pipelines = {}

        def recorded(name, dtype, plant=None):
            folder = home / f"clean-{number}-{name}"
            if not (reuse and folder.exists()):
                if dtype not in pipelines:
                    pipelines[dtype] = load(model, dtype)
                with plant(pipelines[dtype]) if plant else contextlib.nullcontext():
                    record(pipelines[dtype], folder, **settings)
            return folder

        references = {}
        for index, (name, reference_dtype, dtype, plant, noise) in enumerate(VARIANTS):
            if reference_dtype not in references:
                references[reference_dtype] = recorded(f"reference-{reference_dtype}", reference_dtype)
            more = ["--noise", str(recorded(f"{index}-noise", dtype, noise))] if noise else []
            candidate = recorded(str(index), dtype, plant)
            result = compare(references[reference_dtype], candidate, model, *more)
            count += 1
            good = result["verdict"] == "match"
            first = result["first_divergence"]
            final = [t for t in result["tensors"] if t["name"] == "latents"][-1]["error"]["relative"]
            said = (
                "match"
                if good
                else f"FALSE ALARM at {first['role']}:{first['name']} {first['error']['relative']} floor {first['noise_floor']}"
            )
            print(f"clean pair {count:>2}: model {number}, {name:<50} {said}  (latents off by {final:.1e})", flush=True)
            if not good:
                alarms.append({"model": number, "pair": name, "at": first["name"]})
            if not keep:
                shutil.rmtree(candidate)
        if not keep:
            for path in home.glob("clean-*"):
                if path.is_dir():
                    shutil.rmtree(path)
    print(f"\nfalse alarms on clean pairs: {len(alarms)} of {count}")
    return alarms
