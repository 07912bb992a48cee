"""A port of the diffusion transformer in NumPy, with names of its own and no hooks: what a person writes in an evening.

numpy_port.py MODEL INPUTS.npz MISTAKE      records a run called `port`
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
from safetensors import safe_open

import lockstep


def weights_of(folder):
    out = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            out |= {name: tensors.get_tensor(name).to(torch.float32).numpy() for name in tensors.keys()}
    return out


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x, mistake):
    if mistake == "gelu":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def angles(positions, width):
    return np.outer(positions, 10000.0 ** (-np.arange(0, width, 2) / width))


def rotary_angles(height, width, text, axes, mistake):
    def centred(n):
        return np.arange(n) - (n - n // 2)

    grid = (height, width)
    image = np.concatenate(
        [
            np.broadcast_to(angles([0], axes[0])[:, None], (*grid, axes[0] // 2)),
            np.broadcast_to(angles(centred(height), axes[1])[:, None], (*grid, axes[1] // 2)),
            np.broadcast_to(angles(centred(width), axes[2])[None], (*grid, axes[2] // 2)),
        ],
        axis=-1,
    ).reshape(height * width, -1)
    first = 0 if mistake == "positions" else max(height // 2, width // 2)
    return image, np.concatenate([angles(np.arange(first, first + text), a) for a in axes], axis=-1)


def rotated(x, angle, mistake):  # [tokens, heads, d]
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = np.empty_like(x)
    half = x.shape[-1] // 2
    first, second = (slice(half), slice(half, None)) if mistake == "rope" else (slice(0, None, 2), slice(1, None, 2))
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., first] * s + x[..., second] * c
    return out


def forward(folder, latents, text, time, grid, mistake):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    w, heads = weights_of(folder), config["num_attention_heads"]

    def see(name, x):
        lockstep.checkpoint(name, np.asarray(x, np.float32))
        return np.asarray(x, np.float32)

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    x = see("x_embed", linear(latents, "img_in"))
    y = see("ctx_embed", linear(see("ctx_norm", rms_norm(text, w["txt_norm.weight"])), "txt_in"))
    turn = 1000 * time * np.exp(-math.log(10000) * np.arange(128) / 128)
    embedded = linear(np.concatenate([np.cos(turn), np.sin(turn)]), "time_text_embed.timestep_embedder.linear_1")
    time = see("time", linear(silu(embedded), "time_text_embed.timestep_embedder.linear_2")[None])
    rope_x, rope_y = rotary_angles(*grid, len(y), config["axes_dims_rope"], mistake)
    for i in range(config["num_layers"]):
        block, mine = f"transformer_blocks.{i}", f"layers.{i}"
        of_x = np.split(see(mine + ".mod_x", linear(silu(time), block + ".img_mod.1"))[0], 6)
        of_y = np.split(see(mine + ".mod_y", linear(silu(time), block + ".txt_mod.1"))[0], 6)
        if mistake == "modulation" and i == 1:
            of_x[0], of_x[1] = of_x[1], of_x[0]
        given = {"": layer_norm(x) * (1 + of_x[1]) + of_x[0], "_ctx": layer_norm(y) * (1 + of_y[1]) + of_y[0]}
        names = {
            "": ("to_q", "to_k", "to_v", "norm_q", "norm_k"),
            "_ctx": ("add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q", "norm_added_k"),
        }
        three = {}
        for stream, (q, k, v, norm_q, norm_k) in names.items():
            parts = [
                see(f"{mine}.{short}{stream}", linear(given[stream], f"{block}.attn.{name}"))
                for short, name in zip("qkv", (q, k, v))
            ]
            q, k, v = (part.reshape(len(part), heads, -1) for part in parts)
            q = see(f"{mine}.qn{stream}", rms_norm(q, w[f"{block}.attn.{norm_q}.weight"]))
            k = see(f"{mine}.kn{stream}", rms_norm(k, w[f"{block}.attn.{norm_k}.weight"]))
            angle = rope_y if stream else rope_x
            three[stream] = rotated(q, angle, mistake), rotated(k, angle, mistake), v
        q, k, v = (np.concatenate([three["_ctx"][j], three[""][j]]) for j in range(3))
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        joined = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(len(q), -1)
        out_x = see(mine + ".attn_out", linear(joined[len(y) :], block + ".attn.to_out.0"))
        out_y = see(mine + ".attn_out_ctx", linear(joined[: len(y)], block + ".attn.to_add_out"))
        x = x + (1 if mistake == "gate" and i == 2 else of_x[2]) * out_x
        y = y + of_y[2] * out_y
        for stream, mod, short in (("img", of_x, "ff"), ("txt", of_y, "ff_ctx")):
            wide = linear(
                layer_norm(x if stream == "img" else y) * (1 + mod[4]) + mod[3], f"{block}.{stream}_mlp.net.0.proj"
            )
            made = see(f"{mine}.{short}", linear(gelu(wide, mistake), f"{block}.{stream}_mlp.net.2"))
            x, y = (x + mod[5] * made, y) if stream == "img" else (x, y + mod[5] * made)
        see(mine + ".x", x), see(mine + ".y", y)
    scale, shift = np.split(linear(silu(time), "norm_out.linear")[0], 2)
    see("velocity", linear(see("final_norm", layer_norm(x) * (1 + scale) + shift), "proj_out"))


if __name__ == "__main__":
    model, inputs, mistake = sys.argv[1:]
    given = np.load(inputs)
    with lockstep.run("port"):
        forward(model, given["latents"], given["text"], float(given["time"]), (8, 6), mistake)
