"""The official pipeline of a folder with its own arguments: `lockstep reference generate` and `edit` record this."""

import argparse
import os
import pathlib

try:
    from . import official
except ImportError:  # run as a program: it lies beside this file
    import official


def pictures(options, pipeline) -> dict:
    """Pictures as `lockstep edit` reads them, under the names the class has for them."""
    name = type(pipeline).__name__
    opened = [official.open_picture(path, alpha=name == "QwenImageLayeredPipeline") for path in options.input_image]
    arguments = {}
    if opened:
        arguments["image"] = opened if name == "QwenImageEditPlusPipeline" else opened[0]
    if options.mask:
        arguments["mask_image"] = official.open_mask(options.mask)
    if options.strength is not None:
        arguments["strength"] = options.strength
    if options.layers:
        arguments["layers"] = options.layers
    return arguments


def with_start(pipeline, options):
    """A text-to-image folder with a picture to start from is run by the class for that, with the same components."""
    import diffusers

    name = type(pipeline).__name__
    other = None
    if name == "QwenImagePipeline" and options.input_image:
        other = "QwenImageInpaintPipeline" if options.mask else "QwenImageImg2ImgPipeline"
    if name == "QwenImageEditPipeline" and options.mask:
        other = "QwenImageEditInpaintPipeline"
    return getattr(diffusers, other)(**pipeline.components) if other else pipeline


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt")
    parser.add_argument("--negative-prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--width", type=int)
    parser.add_argument("--height", type=int)
    parser.add_argument("--dtype", choices=("f32", "bf16", "f16"), default="bf16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--input-image", action="append", default=[])
    parser.add_argument("--mask")
    parser.add_argument("--strength", type=float)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--resolution", type=int)
    parser.add_argument("--condition-resolution", type=int)
    options = parser.parse_args()

    import torch

    if options.device != "cpu":
        # An f32 reference is one of f32: torch would let a GPU's convolutions round their operands to 10 bits.
        torch.backends.cudnn.allow_tf32 = False
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[options.dtype]
    pipeline = with_start(official.load(options.model, dtype), options).to(options.device)
    if options.resolution or options.condition_resolution:
        official.set_resolution(pipeline, options.resolution, options.condition_resolution)
    sizes = {"width": options.width, "height": options.height}
    if type(pipeline).__name__ in ("QwenImageLayeredPipeline", "QwenImageEditInpaintPipeline"):
        sizes = {}  # these take the picture's own
    images = pipeline(
        prompt=options.prompt,
        negative_prompt=options.negative_prompt,
        true_cfg_scale=options.guidance,
        num_inference_steps=options.steps,
        # Always on the CPU: the same seed then gives the same noise on every device, and in the C++ engine.
        generator=torch.Generator("cpu").manual_seed(options.seed),
        **sizes,
        **pictures(options, pipeline),
    ).images
    folder = pathlib.Path(os.environ.get("LOCKSTEP_RUN") or ".") / "images"
    folder.mkdir(exist_ok=True)
    if isinstance(images[0], list):
        for number, layer in enumerate(images[0], start=1):
            layer.save(folder / f"layer{number}.png")
        images = images[0]
    images[0].save(folder / "image.png")


if __name__ == "__main__":
    main()
