"""The official QwenImagePipeline with its own arguments: `lockstep reference generate` records this program."""

import argparse
import os
import pathlib


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--negative-prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--height", type=int, default=1024)
    parser.add_argument("--dtype", choices=("f32", "bf16", "f16"), default="bf16")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    import torch
    from diffusers import QwenImagePipeline

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[options.dtype]
    pipeline = QwenImagePipeline.from_pretrained(options.model, dtype=dtype, local_files_only=True).to(options.device)
    image = pipeline(
        prompt=options.prompt,
        negative_prompt=options.negative_prompt,
        true_cfg_scale=options.guidance,
        width=options.width,
        height=options.height,
        num_inference_steps=options.steps,
        # Always on the CPU: the same seed then gives the same noise on every device, and in the C++ engine.
        generator=torch.Generator("cpu").manual_seed(options.seed),
    ).images[0]
    folder = pathlib.Path(os.environ.get("LOCKSTEP_RUN") or ".") / "images"
    folder.mkdir(exist_ok=True)
    image.save(folder / "image.png")


if __name__ == "__main__":
    main()
