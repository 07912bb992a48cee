"""Qwen-Image's transformer and sampler, ported to MLX under names of its own. It has bugs: see docs/from_noise_to_a_picture.md.

    python port.py MODEL REFERENCE_RUN [PICTURE.png]

The reference's run gives the port its first noise and the embedded prompts. The picture is decoded by diffusers.
"""

import json
import math
import pathlib
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import lockstep

GRID, STEPS, GUIDANCE = 8, 4, 3.5  # 8 x 8 patches of 16 x 16 pixels


def modulate(x, parts):
    scale, shift = parts
    return x * (1 + scale) + shift


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


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x):
        return self.fc2(nn.gelu(self.fc1(x)))


class Attention(nn.Module):
    """Image and text attend to each other, each with its own projections."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        for name in ("q", "k", "v", "o", "text_q", "text_k", "text_v", "text_o"):
            self[name] = nn.Linear(width, width)
        for name in ("q_norm", "k_norm", "text_q_norm", "text_k_norm"):
            self[name] = nn.RMSNorm(width // heads, eps=1e-6)

    def project(self, x, stream, angles):
        q, k, v = (self[stream + name](x).reshape(len(x), self.heads, -1) for name in "qkv")
        return rope(self[stream + "q_norm"](q), angles), rope(self[stream + "k_norm"](k), angles), v

    def __call__(self, x, y, angles):
        both = zip(self.project(y, "text_", angles[1]), self.project(x, "", angles[0]))
        q, k, v = (mx.concatenate(pair).transpose(1, 0, 2)[None] for pair in both)
        mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5)
        mixed = mixed[0].transpose(1, 0, 2).reshape(len(x) + len(y), -1)
        return self.o(mixed[len(y) :]), self.text_o(mixed[: len(y)])


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.modulation, self.text_modulation = nn.Linear(width, 6 * width), nn.Linear(width, 6 * width)
        for name in ("norm1", "norm2", "text_norm1", "text_norm2"):
            self[name] = nn.LayerNorm(width, eps=1e-6, affine=False)
        self.attention = Attention(width, heads)
        self.mlp, self.text_mlp = FeedForward(width), FeedForward(width)

    def __call__(self, x, y, time, angles):
        time = nn.silu(time)
        image, text = mx.split(self.modulation(time), 6, axis=-1), mx.split(self.text_modulation(time), 6, axis=-1)
        a, b = self.attention(modulate(self.norm1(x), image[:2]), modulate(self.text_norm1(y), text[:2]), angles)
        x, y = x + image[2] * a, y + text[2] * b
        x = x + image[5] * self.mlp(modulate(self.norm2(x), image[3:5]))
        return x, y + text[5] * self.text_mlp(modulate(self.text_norm2(y), text[3:5]))


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
        return self.out(mx.fast.layer_norm(x, None, None, 1e-6) * (1 + scale) + shift)


OUTSIDE = {
    "image_in": "img_in", "text_norm": "txt_norm", "text_in": "txt_in", "modulation": "norm_out.linear", "out": "proj_out",
    "time_in": "time_text_embed.timestep_embedder.linear_1", "time_out": "time_text_embed.timestep_embedder.linear_2",
}  # fmt: skip
INSIDE = {
    "modulation": "img_mod.1", "mlp.fc1": "img_mlp.net.0.proj", "mlp.fc2": "img_mlp.net.2",
    "text_modulation": "txt_mod.1", "text_mlp.fc1": "txt_mlp.net.0.proj", "text_mlp.fc2": "txt_mlp.net.2",
    "attention.q": "attn.to_q", "attention.k": "attn.to_k", "attention.v": "attn.to_v", "attention.o": "attn.to_out.0",
    "attention.q_norm": "attn.norm_q", "attention.k_norm": "attn.norm_k",
    "attention.text_q": "attn.add_q_proj", "attention.text_k": "attn.add_k_proj", "attention.text_v": "attn.add_v_proj",
    "attention.text_o": "attn.to_add_out",
    "attention.text_q_norm": "attn.norm_added_q", "attention.text_k_norm": "attn.norm_added_k",
}  # fmt: skip


def checkpoint_names(layers):
    """This port's names of modules, with the checkpoint's."""
    yield from OUTSIDE.items()
    for i in range(layers):
        yield from ((f"layers.{i}.{mine}", f"transformer_blocks.{i}.{theirs}") for mine, theirs in INSIDE.items())


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


def denormalized(latents, config):
    mean, std = (mx.array(config[name])[:, None, None] for name in ("latents_mean", "latents_std"))
    return (unpack(latents) - mean) / std


def recorded(run, name):
    """A tensor of the reference's run, without its batch axis."""
    return mx.array(np.load(run / "tensors" / f"{name}.npy")[0])


def draw(model, run):
    read = lambda *path: json.loads(model.joinpath(*path).read_text())  # noqa: E731
    transformer = load_transformer(model / "transformer")
    sigmas = sigma_schedule(read("scheduler", "scheduler_config.json"))
    prompt, negative = recorded(run, "prompt_embeds"), recorded(run, "negative_prompt_embeds")
    latents = lockstep.checkpoint("initial_latents_packed", recorded(run, "initial_latents_packed"))
    for step in range(STEPS):
        conditional = transformer(latents, prompt, sigmas[step])
        unconditional = transformer(latents, negative, sigmas[step])
        lockstep.checkpoint("noise_pred", conditional, step=step, tags={"pass": "cond"})
        lockstep.checkpoint("noise_pred", unconditional, step=step, tags={"pass": "uncond"})
        velocity = guided(conditional, unconditional)
        lockstep.checkpoint("noise_pred", velocity, step=step, tags={"pass": "combined"})
        latents = latents + float(sigmas[step + 1] - sigmas[step]) * velocity
        lockstep.checkpoint("latents", latents, step=step)
    return lockstep.checkpoint("latents_denormalized", denormalized(latents, read("vae", "config.json")))


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
    model, run = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    result = draw(model, run)
    mx.eval(result)
    if len(sys.argv) > 3:
        save_picture(model, result, sys.argv[3])
