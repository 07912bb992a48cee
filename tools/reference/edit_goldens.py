"""Goldens of the pipelines that take pictures: called by make_goldens.py."""

from __future__ import annotations

import random
from pathlib import Path

import picture_cases
import tiny_pipeline
from golden_store import GoldenWriter
from record_official import run_official

DROPPED = ("text_encoder.*.act_fn", "vae.*.nonlinearity", "vae.*.resample.0", "vae.*.norm1", "vae.*.norm2")
SMALL = {
    "layers": 2,
    "heads": 2,
    "head_dim": 16,
    "axes": [4, 6, 6],
    "text_hidden": 32,
    "text_layers": 2,
    "text_heads": 4,
    "text_kv_heads": 2,
    "text_intermediate": 48,
    "mrope_section": [1, 1, 2],
    "vae_base": 4,
    "vae_res_blocks": 1,
    "merges": 300,
}
VISION = {
    "depth": 3,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 24,
    "fullatt_block_indexes": [1],
    "window_size": 32,
    "patch_size": 8,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
# Of the two layers of each model the second stands on the first.
WITHOUT_FIRST = (*DROPPED, "text_encoder.model.layers.0.*", "transformer.transformer_blocks.0.*", "*.visual.blocks.0.*")
STAGES = ("noise_pred", "latents", "latents_kept")


def keep(name: str, step: int | None) -> bool:
    return step in (None, 0) or name in STAGES


def stages_only(name: str, step: int | None) -> bool:
    del step
    return not name.startswith(("text_encoder.", "transformer.", "vae."))


def record(model: Path, directory: Path, stem: str, kept=keep, drop=DROPPED, **settings) -> None:
    writer, _ = run_official(model, lambda header: GoldenWriter(header, keep=kept, drop=drop), **settings)
    writer.save(directory, stem)


def make_edit(root: Path) -> None:
    """Editing with two pictures and zero_cond_t, every module; with the true positions; with a mask; one picture."""
    directory = root / "edit"
    model = directory / "model"
    tiny_pipeline.make_pipeline(
        model,
        5,
        **SMALL,
        pipeline="QwenImageEditPlusPipeline",
        zero_cond_t=True,
        vision_config=VISION,
        processor={"size": {"shortest_edge": 256, "longest_edge": 4096}},
    )
    rng = random.Random(5)
    pictures = [
        picture_cases.random_picture(rng, directory / "wide.png", 61, 40, mode="RGBA"),
        picture_cases.random_picture(rng, directory / "tall.png", 33, 52, mode="RGB"),
    ]
    mask = picture_cases.random_mask(rng, directory / "mask.png", (61, 40))
    common = {
        "negative_prompt": " ",
        "steps": 3,
        "guidance": 4.0,
        "seed": 42,
        "resolution": 32,
        "width": None,
        "height": None,
        "condition_resolution": 64,
        "prompt": "make it blue, 你好",
    }
    record(model, directory, "two", drop=WITHOUT_FIRST, pictures=pictures, **common)
    record(model, directory, "mrope", stages_only, pictures=pictures, mrope=True, **common)
    one = {"pictures": pictures[:1], **common}
    record(model, directory, "one", stages_only, as_class="QwenImageEditPipeline", **one)
    masked = one | {"steps": 5, "strength": 0.7, "mask": mask}
    record(model, directory, "masked", stages_only, as_class="QwenImageEditInpaintPipeline", **masked)


def make_start(root: Path) -> None:
    """Generating from a picture, with and without a mask, on the model of t2i_f32."""
    directory, model = root / "start", root / "t2i_f32" / "model"
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(6)
    picture = picture_cases.random_picture(rng, directory / "picture.png", 70, 45, mode="RGB")
    mask = picture_cases.random_mask(rng, directory / "mask.png", (70, 45))
    common = {
        "prompt": "A red fox",
        "negative_prompt": " ",
        "steps": 5,
        "guidance": 4.0,
        "seed": 42,
        "width": 48,
        "height": 32,
        "strength": 0.6,
        "pictures": [picture],
    }
    record(model, directory, "image", stages_only, as_class="QwenImageImg2ImgPipeline", **common)
    record(model, directory, "masked", stages_only, as_class="QwenImageInpaintPipeline", mask=mask, **common)


def make_layered(root: Path) -> None:
    """A picture with alpha taken apart, and the caption that the model writes of it."""
    directory = root / "layered"
    model = directory / "model"
    tiny_pipeline.make_pipeline(
        model,
        7,
        **SMALL,
        pipeline="QwenImageLayeredPipeline",
        vision_config=VISION,
        processor={"size": {"shortest_edge": 256, "longest_edge": 4096}},
    )
    picture = picture_cases.random_picture(random.Random(7), directory / "picture.png", 50, 41, mode="RGBA")
    common = {
        "negative_prompt": " ",
        "steps": 3,
        "guidance": 4.0,
        "seed": 42,
        "resolution": 32,
        "width": None,
        "height": None,
        "layers": 2,
        "pictures": [picture],
    }
    record(model, directory, "described", stages_only, prompt="a poster", **common)
    record(model, directory, "captioned", stages_only, prompt="", options={"use_en_prompt": True}, **common)
