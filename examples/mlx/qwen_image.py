"""Qwen-Image's transformer in MLX: the port of docs/porting_to_mlx.md. Names are those of the checkpoint."""

import json
import pathlib

import mlx.core as mx
import mlx.nn as nn


def rotary_table(config, height, width, text):
    """cos and sin of the image's and of the text's tokens, each [tokens, head width / 2]. A token has three positions."""
    longer = max(height // 2, width // 2)
    rows = mx.arange(height) - (height - height // 2)
    columns = mx.arange(width) - (width - width // 2)
    image = [
        mx.zeros(height * width),
        mx.broadcast_to(rows[:, None], (height, width)).flatten(),
        mx.broadcast_to(columns[None], (height, width)).flatten(),
    ]
    words = [mx.arange(text) + longer] * 3
    tables = []
    for positions in (image, words):
        angles = []
        for axis, size in zip(positions, config["axes_dims_rope"]):
            frequencies = 1.0 / mx.power(10000.0, mx.arange(0, size, 2) / size)
            angles.append(axis.astype(mx.float32)[:, None] * frequencies)
        angle = mx.concatenate(angles, axis=-1)
        tables.append((mx.cos(angle), mx.sin(angle)))
    return tables


def rotate(x, table, mistake=""):
    """x: [batch, tokens, heads, width]; neighbours are one pair."""
    cos, sin = (part[None, :, None] for part in table)
    whole = x.astype(mx.float32)
    if mistake == "rope":  # what mx.fast.rope does unless it is told traditional=True
        first, second = mx.split(whole, 2, axis=-1)
        return mx.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1).astype(x.dtype)
    first, second = whole[..., 0::2], whole[..., 1::2]
    turned = mx.stack([first * cos - second * sin, first * sin + second * cos], axis=-1)
    return turned.reshape(x.shape).astype(x.dtype)


class Gelu(nn.Module):
    def __init__(self, width, hidden, mistake):
        super().__init__()
        self.proj = nn.Linear(width, hidden)
        self.activation = nn.gelu if mistake == "gelu" else nn.gelu_approx  # with erf, or with tanh

    def __call__(self, x):
        return self.activation(self.proj(x))


class FeedForward(nn.Module):
    def __init__(self, width, mistake):
        super().__init__()
        self.net = [Gelu(width, 4 * width, mistake), nn.Identity(), nn.Linear(4 * width, width)]

    def __call__(self, x):
        return self.net[2](self.net[0](x))


class Attention(nn.Module):
    def __init__(self, config, mistake):
        super().__init__()
        self.heads, self.width, self.mistake = config["num_attention_heads"], config["attention_head_dim"], mistake
        whole = self.heads * self.width
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            setattr(self, name, nn.Linear(whole, whole))
        self.to_out = [nn.Linear(whole, whole)]
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            setattr(self, name, nn.RMSNorm(self.width, eps=1e-6))

    def __call__(self, image, text, tables):
        def apart(x):
            return x.reshape(*x.shape[:2], self.heads, self.width)

        def joint(text_part, image_part):  # text first; [batch, heads, tokens, width]
            return mx.concatenate([text_part, image_part], axis=1).transpose(0, 2, 1, 3)

        of_image, of_text = tables
        q = joint(
            rotate(self.norm_added_q(apart(self.add_q_proj(text))), of_text, self.mistake),
            rotate(self.norm_q(apart(self.to_q(image))), of_image, self.mistake),
        )
        k = joint(
            rotate(self.norm_added_k(apart(self.add_k_proj(text))), of_text, self.mistake),
            rotate(self.norm_k(apart(self.to_k(image))), of_image, self.mistake),
        )
        v = joint(apart(self.add_v_proj(text)), apart(self.to_v(image)))
        mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=self.width**-0.5)
        mixed = mixed.transpose(0, 2, 1, 3).flatten(2)
        words = text.shape[1]
        return self.to_out[0](mixed[:, words:]), self.to_add_out(mixed[:, :words])


def normal(x, scale, shift):
    return mx.fast.layer_norm(x, None, None, 1e-6) * (1 + scale) + shift


class Block(nn.Module):
    def __init__(self, config, mistake):
        super().__init__()
        width = config["num_attention_heads"] * config["attention_head_dim"]
        self.img_mod = [nn.Identity(), nn.Linear(width, 6 * width)]
        self.txt_mod = [nn.Identity(), nn.Linear(width, 6 * width)]
        self.attn = Attention(config, mistake)
        self.img_mlp, self.txt_mlp = FeedForward(width, mistake), FeedForward(width, mistake)

    def __call__(self, image, text, time, tables):
        def six(modulation):  # shift, scale, gate for attention, then for the feed-forward
            return mx.split(modulation[1](nn.silu(time))[:, None], 6, axis=-1)

        i, t = six(self.img_mod), six(self.txt_mod)
        of_image, of_text = self.attn(normal(image, i[1], i[0]), normal(text, t[1], t[0]), tables)
        image, text = image + i[2] * of_image, text + t[2] * of_text
        image = image + i[5] * self.img_mlp(normal(image, i[4], i[3]))
        return image, text + t[5] * self.txt_mlp(normal(text, t[4], t[3]))


class TimestepEmbedder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(256, width), nn.Linear(width, width)

    def __call__(self, features):
        return self.linear_2(nn.silu(self.linear_1(features)))


class TimeTextEmbed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.timestep_embedder = TimestepEmbedder(width)

    def __call__(self, sigma, dtype):
        frequencies = mx.exp(-mx.log(mx.array(10000.0)) * mx.arange(128) / 128)
        angle = 1000 * (sigma.astype(mx.float32)[:, None] * frequencies)
        return self.timestep_embedder(mx.concatenate([mx.cos(angle), mx.sin(angle)], axis=-1).astype(dtype))


class NormOut(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)

    def __call__(self, x, time):
        scale, shift = mx.split(self.linear(nn.silu(time))[:, None], 2, axis=-1)
        return normal(x, scale, shift)


class QwenImageTransformer(nn.Module):
    def __init__(self, config, mistake=""):
        super().__init__()
        self.config = config
        width = config["num_attention_heads"] * config["attention_head_dim"]
        self.img_in = nn.Linear(config["in_channels"], width)
        self.txt_norm = nn.RMSNorm(config["joint_attention_dim"], eps=1e-6)
        self.txt_in = nn.Linear(config["joint_attention_dim"], width)
        self.time_text_embed = TimeTextEmbed(width)
        self.transformer_blocks = [Block(config, mistake) for _ in range(config["num_layers"])]
        self.norm_out = NormOut(width)
        self.proj_out = nn.Linear(width, config["patch_size"] ** 2 * config["out_channels"])

    def __call__(self, latents, text, sigma, tables):
        """latents [B, N, C], text [B, T, W], sigma [B]"""
        image, text = self.img_in(latents), self.txt_in(self.txt_norm(text))
        time = self.time_text_embed(sigma, latents.dtype)
        for block in self.transformer_blocks:
            image, text = block(image, text, time, tables)
        return self.proj_out(self.norm_out(image, time))


def load(folder, dtype=mx.float32, mistake=""):
    """A folder in diffusers' layout: config.json and safetensors."""
    folder = pathlib.Path(folder)
    model = QwenImageTransformer(json.loads((folder / "config.json").read_text()), mistake)
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= mx.load(str(file))
    model.load_weights([(name, value.astype(dtype)) for name, value in weights.items()])
    return model
