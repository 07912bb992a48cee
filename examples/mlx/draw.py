"""The official pipeline with its transformer replaced by the MLX port: the smallest program whose picture can be compared.

python draw.py models/tiny picture.png [--mistake rope|gelu]
"""

import argparse

import mlx.core as mx
import numpy as np
import torch
from diffusers import QwenImagePipeline
from qwen_image import load, rotary_table


class Ported(torch.nn.Module):
    """Called as diffusers calls its own, computed in MLX."""

    def __init__(self, official, folder, mistake):
        super().__init__()
        self.config, self.dtype, self.device = official.config, official.dtype, official.device
        self.cache_context = official.cache_context
        self.port = load(folder, mistake=mistake)

    def forward(self, hidden_states, encoder_hidden_states, timestep, img_shapes, **_):
        _, rows, columns = img_shapes[0][0]
        given = [mx.array(part.float().numpy()) for part in (hidden_states, encoder_hidden_states, timestep)]
        tables = rotary_table(self.config, rows, columns, given[1].shape[1])
        return (torch.from_numpy(np.array(self.port(*given, tables))).to(hidden_states.dtype),)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model")
    arguments.add_argument("picture")
    arguments.add_argument("--prompt", default="a red circle left of a blue square")
    arguments.add_argument("--seed", type=int, default=7)
    arguments.add_argument("--steps", type=int, default=4)
    arguments.add_argument("--size", type=int, default=64)
    arguments.add_argument("--mistake", default="", choices=["", "rope", "gelu"])
    given = arguments.parse_args()
    pipe = QwenImagePipeline.from_pretrained(given.model, torch_dtype=torch.float32)
    pipe.transformer = Ported(pipe.transformer, f"{given.model}/transformer", given.mistake)
    pipe.set_progress_bar_config(disable=True)
    picture = pipe(
        prompt=given.prompt,
        negative_prompt=" ",
        true_cfg_scale=4.0,
        width=given.size,
        height=given.size,
        num_inference_steps=given.steps,
        generator=torch.Generator("cpu").manual_seed(given.seed),  # the numbers that every seed of ours draws
    ).images[0]
    picture.save(given.picture)
