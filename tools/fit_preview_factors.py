"""Fit the linear map of latents to colors that previews use, and write it into a model folder's lockstep.json.

    python tools/fit_preview_factors.py models/tiny PICTURE...

Each picture is encoded with the folder's VAE. Least squares then finds 16 x 3 factors and 3 offsets that bring a
normalised latent nearest to the mean color of the 8 x 8 pixels it stands for.
"""

import argparse
import json
import pathlib

import numpy as np


def latents_and_colors(vae, path):
    """[n, 16] normalised latents and [n, 3] colors from 0 to 255."""
    import torch
    from PIL import Image

    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    height, width = (side // 16 * 16 for side in pixels.shape[:2])
    pixels = pixels[:height, :width]
    x = torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(2, 0, 1)[None, :, None]
    with torch.no_grad():
        latents = vae.encode(x).latent_dist.mode()[0, :, 0].numpy()  # [16, h, w]
    channels = len(latents)
    mean = np.asarray(vae.config.latents_mean).reshape(channels, 1, 1)
    std = np.asarray(vae.config.latents_std).reshape(channels, 1, 1)
    latents = (latents - mean) / std
    colors = pixels.reshape(height // 8, 8, width // 8, 8, 3).mean(axis=(1, 3))  # [h, w, 3]
    return latents.reshape(channels, -1).T, colors.reshape(-1, 3)


def fitted(latents, colors):
    """Factors [16, 3] and offsets [3]."""
    with_one = np.hstack([latents, np.ones((len(latents), 1))])
    solution, *_ = np.linalg.lstsq(with_one, colors, rcond=None)
    return solution[:-1], solution[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("pictures", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    from diffusers import AutoencoderKLQwenImage

    vae = AutoencoderKLQwenImage.from_pretrained(arguments.model / "vae").eval()
    pairs = [latents_and_colors(vae, path) for path in arguments.pictures]
    latents, colors = (np.concatenate(part) for part in zip(*pairs, strict=True))
    factors, bias = fitted(latents, colors)
    error = np.abs(latents @ factors + bias - colors)
    print(f"{len(latents)} latents, mean error {error.mean():.1f} of 255, 99 % below {np.quantile(error, 0.99):.1f}")
    path = arguments.model / "lockstep.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    settings["preview_factors"] = [round(float(value), 3) for value in factors.reshape(-1)]
    settings["preview_bias"] = [round(float(value), 3) for value in bias]
    path.write_text(json.dumps(settings) + "\n")


if __name__ == "__main__":
    main()
