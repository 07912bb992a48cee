"""Ways of planting that several sets share, beside those of suite_01_every_stage.py."""

from __future__ import annotations

import types

import torch

import suite_01_every_stage as suite
from suite_01_every_stage import D, T, block
from planting import attribute, changed_function, forward


MIDDLE = f"{D}.mid_block.attentions.0"


def middle(p):
    """The one attention of the autoencoder's decoder."""
    return p.vae.decoder.mid_block.attentions[0]


def faults_of(collected: list, world=None):
    """A set's own `fault(...)`: into its own list, in its own world unless told otherwise."""

    def fault(*arguments, **more):
        suite.fault(*arguments, **({"world": world} | more))
        collected.append(suite.FAULTS.pop())

    return fault


def method(owner, name, *changes, **names):
    """One instance's method with its source changed; `names` are functions the changed source may call."""
    function = changed_function(getattr(type(owner), name), *changes)
    function.__globals__.update(names)  # a copy of the module's own: nobody else sees them
    return attribute(owner, name, types.MethodType(function, owner))


def class_method(owner, name, *changes):
    """In the class: the recorder wraps methods of the pipeline and the scheduler there."""
    return attribute(type(owner), name, changed_function(getattr(type(owner), name), *changes))


def joint_attention(p, i, *changes, **names):
    """The attention processor of block i with its source changed."""
    old = type(block(p, i).attn.processor)
    call = changed_function(old.__call__, *changes)
    call.__globals__.update(names)
    return attribute(block(p, i).attn, "processor", type("Planted", (old,), {"__call__": call})())


def attended(i):
    """The first tensors after the attention of block i, image stream first."""
    return tuple(f"input:{T}.{i}.attn.{name}" for name in ("to_out.0", "to_add_out"))


def result(module, change):
    """What a module returns, changed."""
    return forward(module, lambda self, old, *a, **k: change(old(*a, **k)))


def rotate_halves(x, freqs):
    """x: [batch, tokens, heads, head size], freqs: complex [tokens, head size / 2]; half-split instead of interleaved."""
    turned = torch.complex(*x.float().chunk(2, -1)) * freqs.unsqueeze(1)
    return torch.cat((turned.real, turned.imag), -1).type_as(x)


def rotated(*streams):
    """(stream, line of the processor that rotates it) → changes are made on these lines."""
    return [(name, f"{name} = apply_rotary_emb_qwen({name}, {name[:3]}_freqs, use_real=False)") for name in streams]


def denormal_bits(shape, seed):
    """Small integers read as f32: what a read beyond a buffer of indices gives."""
    bits = torch.randint(1, 9000, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    return bits.view(torch.float32)


def symmetric(w, bits, group):
    """Weights after symmetric quantisation in groups along the input: (integers, steps), both [rows * groups, group or 1]."""
    x = w.reshape(-1, group)
    step = x.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (x / step).round(), step
