"""Random pictures and settings for the pipelines that take pictures: what `parity.py --pipeline` draws."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from PIL import Image

# Class → the folder's class it runs on when another one has the same components.
CLASSES = {
    "QwenImageImg2ImgPipeline": "QwenImagePipeline",
    "QwenImageInpaintPipeline": "QwenImagePipeline",
    "QwenImageEditPipeline": None,
    "QwenImageEditPlusPipeline": None,
    "QwenImageEditInpaintPipeline": None,
    "QwenImageLayeredPipeline": None,
}
PROMPTS = ["make the circle blue", "", "remove it", "把圆变成蓝色", "Picture 1 in the colour of Picture 2, please."]


def random_vision(rng: random.Random) -> tuple[dict, dict]:
    """A vision tower and the processor that fits it."""
    patch, merge = rng.choice([(14, 2), (14, 2), (16, 2), (8, 2), (7, 2), (10, 1), (8, 3)])
    depth, heads = rng.randint(1, 4), rng.choice([1, 2, 3])
    full = sorted(rng.sample(range(depth), rng.randint(0, depth)))
    vision = {
        "depth": depth,
        "hidden_size": heads * rng.choice([8, 16, 20]),
        "num_heads": heads,
        "intermediate_size": rng.choice([24, 40, 50]),
        "fullatt_block_indexes": full,
        "window_size": patch * merge * rng.choice([1, 2, 3, 4]) + rng.choice([0, 0, 5]),
        "patch_size": patch,
        "spatial_merge_size": merge,
        "temporal_patch_size": rng.choice([2, 2, 1]),
    }
    processor = {"image_processor_type": rng.choice(["Qwen2VLImageProcessorPil", "Qwen2VLImageProcessor"])}
    if rng.random() < 0.3:
        processor["size"] = {"shortest_edge": 20_000, "longest_edge": 40_000}
    return vision, processor


def random_picture(rng: random.Random, path: Path, width: int, height: int, *, mode: str | None = None) -> Path:
    """Smooth colours with edges and noise in one of the modes that files come in."""
    noise = np.random.default_rng(rng.getrandbits(32))
    y, x = np.mgrid[0:height, 0:width]
    phase = noise.uniform(0, 6, 4)
    base = [127 + 120 * np.sin(x / (5 + 20 * i) + y / (9 + 3 * i) + phase[i]) for i in range(4)]
    pixels = np.stack(base, -1) + noise.normal(0, 8, (height, width, 4))
    pixels[height // 4 : height // 2, width // 4 : width // 2] = noise.uniform(0, 255, 4)
    rgba = np.clip(pixels, 0, 255).astype(np.uint8)
    mode = mode or rng.choice(["RGB", "RGB", "RGB", "RGBA", "L", "P", "16", "CMYK", "EXIF", "LA"])
    if mode == "RGBA":
        image = Image.fromarray(rgba)
    elif mode == "LA":
        image = Image.fromarray(rgba).convert("LA")
    elif mode == "P":
        image = Image.fromarray(rgba[..., :3]).quantize(64)
    elif mode == "L":
        image = Image.fromarray(rgba[..., 0])
    elif mode == "16":
        image = Image.fromarray(rgba[..., 0].astype(np.uint16) * 257)
    else:
        image = Image.fromarray(rgba[..., :3])
    if mode == "CMYK":
        path = path.with_suffix(".jpg")
        image.convert("CMYK").save(path, quality=92)
    elif mode == "EXIF":
        path = path.with_suffix(".jpg")
        exif = Image.Exif()
        exif[0x0112] = rng.randint(2, 8)
        image.save(path, quality=95, exif=exif)
    else:
        image.save(path)
    return path


def random_mask(rng: random.Random, path: Path, size: tuple[int, int]) -> Path:
    width, height = size
    mask = np.zeros((height, width), np.uint8)
    left, top = rng.randrange(max(1, width // 2)), rng.randrange(max(1, height // 2))
    mask[top : top + max(1, height // 2), left : left + max(1, width // 2)] = 255
    if rng.random() < 0.3:  # soft edges
        mask = np.clip(mask.astype(int) - np.random.default_rng(1).integers(0, 200, mask.shape), 0, 255).astype(
            np.uint8
        )
    if rng.random() < 0.3:
        rgba = np.full((height, width, 4), 90, np.uint8)
        rgba[..., 3] = 255 - mask
        Image.fromarray(rgba).save(path)
    else:
        Image.fromarray(mask).save(path)
    return path


def draw(name: str, seed: int, base: dict, folder: Path) -> dict:
    """A case of class `name`: model (on top of base), settings for both sides, files written into folder."""
    rng = random.Random(f"pictures {name} {seed}")
    vision, processor = random_vision(rng)
    on = CLASSES[name] or name
    model = base | {"vision": True, "pipeline": on, "vision_config": vision, "processor": processor}
    if name == "QwenImageEditPlusPipeline":
        model["zero_cond_t"] = rng.random() < 0.5
    model["layers"] = min(model.get("layers", 2), 2)
    count = rng.randint(1, 4) if name == "QwenImageEditPlusPipeline" else 1
    pictures = []
    for index in range(count):
        ratio = rng.choice([1, 1, 1.5, 0.6, 3, 0.3, 8]) * rng.uniform(0.9, 1.1)
        height = rng.randint(9, 220)
        width = max(1, min(600, int(height * ratio)))
        mode = rng.choice(["RGBA", "RGB"]) if name == "QwenImageLayeredPipeline" else None
        pictures.append(str(random_picture(rng, folder / f"picture{index}.png", width, height, mode=mode)))
    settings = {
        "prompt": rng.choice(PROMPTS),
        "negative_prompt": rng.choice([None, " ", " ", "blurry"]),
        "steps": rng.randint(2, 4),
        "guidance": rng.choice([1.0, 2.5, 4.0]),
        "seed": rng.choice([0, 42, rng.getrandbits(31)]),
        "pictures": pictures,
    }
    generate = name in ("QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline")
    if generate:
        settings |= {"width": rng.randint(32, 140), "height": rng.randint(32, 140)}
    else:
        settings["resolution"] = rng.choice([48, 64, 96, 128])
    if name.startswith("QwenImageEdit"):
        settings["condition_resolution"] = rng.choice([48, 64, 96])
        settings["mrope"] = rng.random() < 0.25
    if name in ("QwenImageEditPipeline", "QwenImageEditPlusPipeline") and rng.random() < 0.3:
        settings |= {"width": rng.randint(32, 140), "height": rng.randint(32, 140)}
    if "Inpaint" in name:
        from lockstep import official

        size = official.open_picture(pictures[0]).size
        settings["mask"] = str(random_mask(rng, folder / "mask.png", size))
    if "Inpaint" in name or generate:
        settings |= {"strength": rng.choice([0.3, 0.6, 0.85, 1.0]), "steps": rng.randint(4, 6)}
    if name == "QwenImageLayeredPipeline":
        settings |= {"layers": rng.randint(1, 4), "rescale": rng.random() < 0.4}
        settings["prompt"] = rng.choice([*PROMPTS[:1], "a poster", ""])
        settings["english"] = rng.random() < 0.5
    if generate:
        settings["as_class"] = name
    return {"model": model, "settings": settings}


def official_settings(settings: dict) -> dict:
    """As record_official.run_official takes them."""
    theirs = {k: v for k, v in settings.items() if k not in ("rescale", "english")}
    theirs.setdefault("width", None)
    theirs.setdefault("height", None)
    if "layers" in settings:
        theirs["options"] = {"cfg_normalize": settings["rescale"], "use_en_prompt": settings["english"]}
    return theirs


def engine_options(settings: dict) -> list[str]:
    """As `lockstep generate` or `lockstep edit` takes them."""
    generate = "as_class" in settings
    out = []
    for picture in settings["pictures"]:
        out.append(f"--{'init' if generate else 'input'}-image={picture}")
    for key in (
        "prompt",
        "negative_prompt",
        "steps",
        "guidance",
        "seed",
        "width",
        "height",
        "strength",
        "mask",
        "resolution",
        "condition_resolution",
        "layers",
    ):
        if settings.get(key) is not None:
            out.append(f"--{key.replace('_', '-')}={settings[key]}")
    if settings.get("mrope"):
        out.append("--image-positions=mrope")
    out += ["--rescale-guidance"] if settings.get("rescale") else []
    out += ["--english-caption"] if settings.get("english") else []
    return out
