"""Qwen-Image's transformer and sampler, ported to MLX under names of its own. It has bugs: see docs/from_noise_to_a_picture.md.

    python port.py MODEL REFERENCE.npz [PICTURE.png]

REFERENCE.npz holds what the port is given: the first noise and the embedded prompts. The picture is decoded by diffusers.
"""

import json
import math
import pathlib
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import lockstep

GRID, STEPS, GUIDANCE = 8, 8, 4.0  # 8 x 8 patches of 16 x 16 pixels


def rope(x, angles):
    """x: [tokens, heads, channels], angles: [tokens, channels / 2]"""
    cos, sin = mx.cos(angles)[:, None], mx.sin(angles)[:, None]
    a, b = mx.split(x, 2, axis=-1)
    return mx.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def frequencies(positions, width):
    return np.outer(positions, 10000.0 ** (-np.arange(0, width, 2) / width))


def rope_angles(text_tokens, axes):
    """Positions of the picture count from its middle; those of the text follow on the picture's diagonal."""
    middle = np.arange(GRID) - (GRID - GRID // 2)
    parts = [
        np.broadcast_to(frequencies([0], axes[0])[:, None], (GRID, GRID, axes[0] // 2)),
        np.broadcast_to(frequencies(middle, axes[1])[:, None], (GRID, GRID, axes[1] // 2)),
        np.broadcast_to(frequencies(middle, axes[2])[None], (GRID, GRID, axes[2] // 2)),
    ]
    image = np.concatenate(parts, axis=-1).reshape(GRID * GRID, -1)
    text = np.concatenate([frequencies(np.arange(text_tokens) + GRID // 2, axis) for axis in axes], axis=-1)
    return mx.array(image.astype(np.float32)), mx.array(text.astype(np.float32))


def layer_norm(x):
    return mx.fast.layer_norm(x, None, None, 1e-6)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x):
        return self.fc2(nn.gelu(self.fc1(x)))


class Attention(nn.Module):
    """Of one stream: its queries, keys and values, and what becomes of the mixed values."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.q_norm, self.k_norm = (nn.RMSNorm(width // heads, eps=1e-6) for _ in range(2))

    def project(self, x, angles):
        q, k, v = (layer(x).reshape(len(x), self.heads, -1) for layer in (self.q, self.k, self.v))
        return rope(self.q_norm(q), angles), rope(self.k_norm(k), angles), v


class Stream(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.modulation = nn.Linear(width, 6 * width)
        self.attention, self.mlp = Attention(width, heads), FeedForward(width)

    def start(self, x, time, angles):
        scale, shift, self.gate, *self.second = mx.split(self.modulation(nn.silu(time)), 6, axis=-1)
        return self.attention.project(layer_norm(x) * (1 + scale) + shift, angles)

    def finish(self, x, mixed):
        x = x + self.gate * self.attention.o(mixed)
        scale, shift, gate = self.second
        return x + gate * self.mlp(layer_norm(x) * (1 + scale) + shift)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.image, self.text = Stream(width, heads), Stream(width, heads)

    def __call__(self, x, y, time, angles):
        image, text = self.image.start(x, time, angles[0]), self.text.start(y, time, angles[1])
        q, k, v = (mx.concatenate(pair).transpose(1, 0, 2)[None] for pair in zip(text, image))
        mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5)
        mixed = mixed[0].transpose(1, 0, 2).reshape(len(x) + len(y), -1)
        return self.image.finish(x, mixed[len(y) :]), self.text.finish(y, mixed[: len(y)])


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        heads = config["num_attention_heads"]
        width, self.axes = heads * config["attention_head_dim"], config["axes_dims_rope"]
        self.image_in = nn.Linear(config["in_channels"], width)
        self.text_norm = nn.RMSNorm(config["joint_attention_dim"], eps=1e-6)
        self.text_in = nn.Linear(config["joint_attention_dim"], width)
        self.time_in, self.time_out = nn.Linear(256, width), nn.Linear(width, width)
        self.layers = [Layer(width, heads) for _ in range(config["num_layers"])]
        self.modulation, self.out = nn.Linear(width, 2 * width), nn.Linear(width, config["in_channels"])

    def __call__(self, latents, prompt, sigma):
        turns = 1000 * sigma * np.exp(-math.log(10000) * np.arange(128) / 128)
        time = mx.array(np.concatenate([np.cos(turns), np.sin(turns)]).astype(np.float32))[None]
        time = self.time_out(nn.silu(self.time_in(time)))
        x, y = self.image_in(latents), self.text_in(self.text_norm(prompt))
        angles = rope_angles(len(y), self.axes)
        for layer in self.layers:
            x, y = layer(x, y, time, angles)
        scale, shift = mx.split(self.modulation(nn.silu(time)), 2, axis=-1)
        return self.out(layer_norm(x) * (1 + scale) + shift)


STREAMS = {
    "image": ("img", ("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.norm_q", "attn.norm_k")),
    "text": ("txt", ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out",
                     "attn.norm_added_q", "attn.norm_added_k")),
}  # fmt: skip
OUTSIDE = {
    "image_in": "img_in", "text_norm": "txt_norm", "text_in": "txt_in", "modulation": "norm_out.linear", "out": "proj_out",
    "time_in": "time_text_embed.timestep_embedder.linear_1", "time_out": "time_text_embed.timestep_embedder.linear_2",
}  # fmt: skip


def checkpoint_names(layers):
    """This port's names of modules, with the checkpoint's."""
    yield from OUTSIDE.items()
    for i in range(layers):
        for stream, (short, attention) in STREAMS.items():
            mine, theirs = f"layers.{i}.{stream}", f"transformer_blocks.{i}"
            yield f"{mine}.modulation", f"{theirs}.{short}_mod.1"
            yield f"{mine}.mlp.fc1", f"{theirs}.{short}_mlp.net.0.proj"
            yield f"{mine}.mlp.fc2", f"{theirs}.{short}_mlp.net.2"
            for name, official in zip(("q", "k", "v", "o", "q_norm", "k_norm"), attention):
                yield f"{mine}.attention.{name}", f"{theirs}.{official}"


def load_transformer(folder):
    config = json.loads((folder / "config.json").read_text())
    given = {}
    for file in sorted(folder.glob("*.safetensors")):
        given |= mx.load(str(file))
    model = Transformer(config)
    weights = []
    for mine, theirs in checkpoint_names(config["num_layers"]):
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in given:
                weights.append((f"{mine}.{part}", given[f"{theirs}.{part}"].astype(mx.float32)))
    model.load_weights(weights)
    return model


def sigma_schedule(config):
    """The times of the steps, shifted by the size of the picture."""
    sigmas = np.linspace(1.0, 1 / STEPS, STEPS)
    slope = (config["max_shift"] - config["base_shift"]) / (config["max_image_seq_len"] - config["base_image_seq_len"])
    mu = config["base_shift"] + slope * (GRID * GRID - config["base_image_seq_len"])
    sigmas = math.exp(mu) / (math.exp(mu) + (1 / sigmas - 1))
    return np.append(sigmas, 0.0)


def guided(conditional, unconditional):
    return unconditional + GUIDANCE * (conditional - unconditional)


def unpack(latents):
    """[patches, 64] to [channels, height, width]"""
    latents = latents.reshape(GRID, GRID, 16, 2, 2).transpose(2, 0, 3, 1, 4)
    return latents.reshape(16, 2 * GRID, 2 * GRID)


def decoder_input(latents, config):
    mean, std = (mx.array(config[name])[:, None, None] for name in ("latents_mean", "latents_std"))
    return (unpack(latents) - mean) / std


def draw(model, given):
    read = lambda *path: json.loads(model.joinpath(*path).read_text())  # noqa: E731
    transformer = load_transformer(model / "transformer")
    sigmas = sigma_schedule(read("scheduler", "scheduler_config.json"))
    latents = lockstep.checkpoint("noise", mx.array(given["noise"]))
    for step in range(STEPS):
        conditional = transformer(latents, mx.array(given["prompt"]), sigmas[step])
        unconditional = transformer(latents, mx.array(given["negative"]), sigmas[step])
        velocity = lockstep.checkpoint("guided", guided(conditional, unconditional), step=step)
        latents = latents + float(sigmas[step + 1] - sigmas[step]) * velocity
        latents = lockstep.checkpoint("latents", latents, step=step)
    return lockstep.checkpoint("decoder_input", decoder_input(latents, read("vae", "config.json")))


def save_picture(model, latents, file):
    import torch
    from diffusers import AutoencoderKLQwenImage
    from PIL import Image

    decoder = AutoencoderKLQwenImage.from_pretrained(model / "vae", torch_dtype=torch.float32)
    with torch.no_grad():
        picture = decoder.decode(torch.tensor(np.array(latents))[None, :, None]).sample[0, :, 0]
    pixels = (picture * 127.5 + 127.5).clamp(0, 255).round().byte()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file)


if __name__ == "__main__":
    model, given = pathlib.Path(sys.argv[1]), np.load(sys.argv[2])
    result = draw(model, given)
    mx.eval(result)
    if len(sys.argv) > 3:
        save_picture(model, result, sys.argv[3])
