"""Resizing and picture modes, bit for bit: Pillow and torch (which torchvision calls) are the judges."""

import random

import numpy as np
import pytest
import torch
from io_probe import Probe
from PIL import Image

SIZES = [
    ((1, 1), (5, 7)),
    ((37, 53), (37, 20)),
    ((37, 53), (90, 53)),
    ((200, 3), (28, 28)),
    ((3, 200), (64, 33)),
    ((128, 96), (384, 384)),
    ((301, 207), (64, 96)),
    ((500, 700), (11, 13)),
    ((16, 16), (16, 16)),
]


@pytest.fixture(scope="module")
def probe():
    with Probe() as p:
        yield p


def picture(height, width, channels, seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    pixels[: height // 2] = (
        rng.integers(0, 2, (height // 2, width, channels), dtype=np.uint8) * 255
    )  # hard edges overshoot
    return pixels


def ours(probe, pixels, size, how, folder):
    np.save(folder / "in.npy", pixels)
    reply = probe.ask("resize", folder / "in.npy", folder / "out.npy", *size, how)
    assert "error" not in reply, reply
    return np.load(folder / "out.npy")


def pillow(pixels, size, filter_):
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(image.resize(size[::-1], filter_)).reshape(*size, pixels.shape[2])


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("how,filter_", [("lanczos", Image.LANCZOS), ("bicubic", Image.BICUBIC)])
def test_every_bit_is_pillows(probe, tmp_path, how, filter_, channels):
    rng = random.Random(channels)
    sizes = SIZES + [tuple((rng.randint(1, 150), rng.randint(1, 150)) for _ in range(2)) for _ in range(12)]
    for seed, (before, after) in enumerate(sizes):
        pixels = picture(*before, channels, seed)
        expected = pillow(pixels, after, filter_)
        np.testing.assert_array_equal(ours(probe, pixels, after, how, tmp_path), expected, err_msg=f"{before} {after}")


def test_every_bit_is_torchs(probe, tmp_path):
    rng = random.Random(5)
    sizes = SIZES + [tuple((rng.randint(1, 150), rng.randint(1, 150)) for _ in range(2)) for _ in range(12)]
    for seed, (before, after) in enumerate(sizes):
        pixels = picture(*before, 3, seed)
        tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None]
        expected = torch.nn.functional.interpolate(tensor, size=after, mode="bicubic", antialias=True)
        got = ours(probe, pixels, after, "torch", tmp_path)
        np.testing.assert_array_equal(got, expected[0].permute(1, 2, 0).numpy(), err_msg=f"{before} {after}")


def test_a_large_picture_is_shared_among_threads_without_a_seam(probe, tmp_path):
    pixels = picture(1500, 1100, 3, 9)
    np.testing.assert_array_equal(
        ours(probe, pixels, (384, 512), "lanczos", tmp_path), pillow(pixels, (384, 512), Image.LANCZOS)
    )


def test_alpha_goes_over_white_as_pillow_composites(probe, tmp_path):
    alpha, value = np.meshgrid(np.arange(256), np.arange(256))
    pixels = np.stack([value, 255 - value, (value * 7) % 256, alpha], -1).astype(np.uint8)
    np.save(tmp_path / "in.npy", pixels)
    probe.ask("mode", tmp_path / "in.npy", tmp_path / "out.npy", "rgb")
    image = Image.fromarray(pixels)
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    np.testing.assert_array_equal(
        np.load(tmp_path / "out.npy"), np.asarray(Image.alpha_composite(white, image).convert("RGB"))
    )


def test_a_mask_is_white_or_transparent(probe, tmp_path):
    rng = np.random.default_rng(1)
    rgb = rng.integers(0, 256, (9, 8, 3), dtype=np.uint8)
    opaque = np.concatenate([rgb, np.full((9, 8, 1), 255, np.uint8)], -1)
    holes = opaque.copy()
    holes[2:4, 3:5, 3] = [[0, 100], [255, 7]]
    for pixels, expected in [
        (rgb, np.asarray(Image.fromarray(rgb).convert("L"))),
        (opaque, np.asarray(Image.fromarray(rgb).convert("L"))),
        (holes, 255 - holes[..., 3]),
        (rgb[..., :1], rgb[..., 0]),
    ]:
        np.save(tmp_path / "in.npy", pixels)
        probe.ask("mode", tmp_path / "in.npy", tmp_path / "out.npy", "mask")
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[..., 0], expected)
