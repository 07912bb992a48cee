"""Runs the official pipeline of a folder, whatever its class, and records every module's output and every pipeline stage.

    python tools/reference/record_official.py MODEL RUN --prompt "a cat" --negative-prompt " " --width 64 --height 64 \
        --steps 4 --guidance 4 --seed 42 --dtype f32

Pictures go in with --picture (editing, layers, and what generating starts from) and --mask. The pipeline's own code
runs untouched: modules are hooked, four of its methods are wrapped.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from lockstep import official  # noqa: E402
from run_writer import RunWriter  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def quiet_libraries() -> None:
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    for logging in (diffusers_logging, transformers_logging):
        logging.set_verbosity_error()
        logging.disable_progress_bar()


def load_pipeline(model: str | Path, dtype: str):
    quiet_libraries()
    pipeline = official.load(model, DTYPES[dtype])
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def checkpoint_name(component: str, module_path: str) -> str | None:
    """Module path in memory to the name in the checkpoint. None: not recorded."""
    if component == "text_encoder":
        # "model" repeats what the language model returns. The logits are thrown away by the pipeline, and their
        # weights may be missing from the files.
        if module_path in ("model", "lm_head"):
            return None
        module_path = re.sub(r"^model\.language_model(?=\.|$)", "model", module_path)
        module_path = re.sub(r"^model\.visual(?=\.|$)", "visual", module_path)
    return f"{component}.{module_path}"


def module_location(module: torch.nn.Module) -> dict:
    """File below site-packages, line and name of the module's forward."""
    forward = inspect.unwrap(type(module).forward)
    code = forward.__code__
    file = code.co_filename.replace("\\", "/").rsplit("site-packages/", 1)[-1]
    return {"file": file, "line": code.co_firstlineno, "function": forward.__qualname__}


class OfficialRecorder:
    """Hooks on all modules of a pipeline plus wrappers around the places where its stages pass."""

    def __init__(self, pipeline, writer):
        self.pipeline = pipeline
        self.writer = writer
        self.step: int | None = None
        self.tags: dict = {}
        self.text_calls = 0
        self.target_tokens: int | None = None
        self.paused = False
        self.caption: str | None = None
        self.handles = []
        self.restored = []

    def __enter__(self):
        pipeline = self.pipeline
        for component in ("text_encoder", "transformer", "vae"):
            model = getattr(pipeline, component)
            for path, module in model.named_modules():
                name = checkpoint_name(component, path) if path else None
                if name is not None:
                    where = module_location(module)
                    self.handles.append(module.register_forward_hook(self._module_hook(name, where)))
        self.handles.append(pipeline.transformer.register_forward_pre_hook(self._before_transformer))
        self.handles.append(pipeline.transformer.register_forward_hook(self._after_transformer))
        self._wrap(pipeline, "encode_prompt", self._encode_prompt)
        self._wrap(pipeline, "prepare_latents", self._prepare_latents)
        self._wrap(pipeline.scheduler, "step", self._scheduler_step)
        self._wrap(pipeline.vae, "decode", self._vae_decode)
        if hasattr(pipeline, "prepare_mask_latents"):
            self._wrap(pipeline, "prepare_mask_latents", self._prepare_mask)
        if hasattr(pipeline, "get_image_caption"):
            self._wrap(pipeline, "get_image_caption", self._get_caption)
        if hasattr(pipeline, "processor"):
            self._wrap(pipeline.processor, "pictures", self._pictures)
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()
        for owner, name, original in self.restored:
            # Deleting the instance's attribute brings the class's method back.
            if original is None:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, original)

    def _wrap(self, owner, name, replacement) -> None:
        original = getattr(owner, name)
        self.restored.append((owner, name, vars(owner).get(name)))
        object.__setattr__(owner, name, lambda *args, **kwargs: replacement(original, *args, **kwargs))

    def _stage(self, name, value, *, step=None, tags=None) -> None:
        self.writer.record(name, value, step=step, tags=tags, role="checkpoint")

    def _module_hook(self, name, where):
        def hook(_module, _inputs, output):
            if not self.paused:
                self._open(name, output, where)

        return hook

    def _open(self, name, value, where) -> None:
        if isinstance(value, torch.Tensor):
            self.writer.record(name, value, step=self.step, tags=dict(self.tags), where=where)
        elif isinstance(value, dict):
            for key, item in value.items():
                # Not the tuple of all hidden states: each is already recorded under its layer's name.
                if isinstance(item, torch.Tensor):
                    self._open(f"{name}.{key}", item, where)
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                self._open(f"{name}.{index}", item, where)

    def _before_transformer(self, _module, _inputs):
        # In each step the conditional call comes first.
        if self.step is None:
            self.step = 0
        self.tags = {"pass": "uncond" if self.tags.get("pass") == "cond" else "cond"}

    def _after_transformer(self, _module, _inputs, output):
        # Behind the target's tokens come those of condition pictures, which the pipeline leaves.
        self._stage("noise_pred", output[0][:, : self.target_tokens], step=self.step, tags=dict(self.tags))

    def _encode_prompt(self, original, *args, **kwargs):
        passes = ("cond", "uncond")
        images = kwargs.get("image")
        if images is not None and self.text_calls == 0:
            for image in images if isinstance(images, list) else [images]:
                self._stage("condition_images", np.asarray(image))
        self.tags = {"pass": passes[self.text_calls]}
        embeds, mask = original(*args, **kwargs)
        self.tags = {}
        prefix = ("", "negative_")[self.text_calls]
        self._stage(f"{prefix}prompt_embeds", embeds)
        if mask is not None:
            self._stage(f"{prefix}prompt_embeds_mask", mask)
        self.text_calls += 1
        return embeds, mask

    def _prepare_latents(self, original, *args, **kwargs):
        result = original(*args, **kwargs)
        latents = result[0] if isinstance(result, tuple) else result
        if isinstance(result, tuple):
            self._stage("image_latents", result[-1])
        self._stage("initial_latents_packed", latents)
        self.target_tokens = latents.shape[1]
        return result

    def _prepare_mask(self, original, *args, **kwargs):
        self.paused = True  # the masked picture is encoded too, and not used
        result = original(*args, **kwargs)
        self.paused = False
        self._stage("mask", result[0])
        return result

    def _get_caption(self, original, *args, **kwargs):
        self.paused = True  # a pass for every token
        self.caption = original(*args, **kwargs)
        self.paused = False
        return self.caption

    def _pictures(self, original, *args, **kwargs):
        result = original(*args, **kwargs)
        if self.text_calls == 0 and not self.paused:
            self._stage("pixel_values", result["pixel_values"])
        return result

    def step_end(self, _pipeline, index, _timestep, tensors):
        self._stage("latents_kept", tensors["latents"], step=index)
        return {}

    def _scheduler_step(self, original, model_output, *args, **kwargs):
        if self.tags.get("pass") == "uncond":
            self._stage("noise_pred", model_output, step=self.step, tags={"pass": "combined"})
        result = original(model_output, *args, **kwargs)
        self._stage("latents", result[0], step=self.step)
        self.tags = {}
        self.step += 1
        return result

    def _vae_decode(self, original, latents, *args, **kwargs):
        self.step = None
        self._stage("latents_denormalized", latents)
        return original(latents, *args, **kwargs)


class TruePositions:
    """Tells the text encoder where the pictures are, which diffusers 0.42.1 forgets: rows and columns as trained."""

    def __init__(self, pipeline):
        self.model = pipeline.text_encoder
        self.token = pipeline.tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def __enter__(self):
        def add_types(_module, args, kwargs):
            if kwargs.get("image_grid_thw") is not None:
                kwargs["mm_token_type_ids"] = (kwargs["input_ids"] == self.token).to(torch.int32)
            return args, kwargs

        self.handle = self.model.register_forward_pre_hook(add_types, with_kwargs=True)
        return self

    def __exit__(self, *_):
        self.handle.remove()


class Bf16Inputs:
    """Gives an f32 run the noise and timesteps of a bf16 run.

    A bf16 pipeline rounds 1000*sigma to 8 bits; the sine of a timestep that is off by 1.4 has nothing in common with
    the exact one, so against a plain f32 run every bf16 tensor after step 0 is 40 % wrong and hides all other errors.
    """

    def __init__(self, pipeline):
        self.pipeline = pipeline
        modules = ("diffusers.models.autoencoders.vae", type(pipeline).__module__)
        self.modules = [importlib.import_module(name) for name in modules]

    def __enter__(self):
        self.original = self.modules[0].randn_tensor

        def randn_tensor(shape, generator=None, device=None, dtype=None, layout=None):
            return self.original(shape, generator=generator, device=device, dtype=torch.bfloat16).to(dtype)

        def round_timestep(_module, args, kwargs):
            rounded = self.pipeline._current_timestep.to(torch.bfloat16) / 1000
            kwargs["timestep"] = rounded.to(kwargs["timestep"].dtype).expand_as(kwargs["timestep"])
            return args, kwargs

        for module in self.modules:
            module.randn_tensor = randn_tensor
        self.handle = self.pipeline.transformer.register_forward_pre_hook(round_timestep, with_kwargs=True)
        return self

    def __exit__(self, *_):
        for module in self.modules:
            module.randn_tensor = self.original
        self.handle.remove()


def picture_arguments(pipeline, pictures, mask, layered: bool) -> dict:
    opened = [official.open_picture(path, alpha=layered) for path in pictures or ()]
    arguments: dict = {}
    if opened:
        arguments["image"] = opened if type(pipeline).__name__ == "QwenImageEditPlusPipeline" else opened[0]
    if mask:
        arguments["mask_image"] = official.open_mask(mask)
    return arguments


def run_official(
    model: str | Path,
    writer_for,
    *,
    prompt: str,
    negative_prompt: str | None = None,
    width: int | None = 64,
    height: int | None = 64,
    steps: int = 4,
    guidance: float = 4.0,
    seed: int = 0,
    dtype: str = "f32",
    sigmas: list[float] | None = None,
    max_sequence_length: int = 512,
    bf16_inputs: bool = False,
    vae_tiling: bool = False,
    pictures: list | None = None,
    mask: str | Path | None = None,
    strength: float | None = None,
    resolution: int | None = None,
    condition_resolution: int | None = None,
    layers: int | None = None,
    as_class: str | None = None,
    options: dict | None = None,
    mrope: bool = False,
    pipeline=None,
):
    """Records one run. writer_for(header) gives the writer; returns it with the PIL image (or the list of layers).

    as_class: another class with the same components, such as QwenImageImg2ImgPipeline; options: its further arguments.
    """
    import diffusers
    import transformers

    settings = {
        "prompt": prompt,
        "negative_prompt": negative_prompt,
        "width": width,
        "height": height,
        "steps": steps,
        "guidance": guidance,
        "seed": seed,
        "dtype": dtype,
        "sigmas": sigmas,
        "max_sequence_length": max_sequence_length,
        "bf16_inputs": bf16_inputs,
    }
    further = {
        "strength": strength,
        "resolution": resolution,
        "condition_resolution": condition_resolution,
        "layers": layers,
        "as_class": as_class,
        "options": options,
        "mrope": mrope or None,
        "pictures": [Path(p).name for p in pictures or ()] or None,
        "mask": mask and Path(mask).name,
    }
    settings |= {key: value for key, value in further.items() if value is not None}
    header = {
        "name": "official",
        "program": {"argv": ["record_official.py"], "cwd": ".", "exit_code": None},
        "producer": {
            "name": f"diffusers.{as_class or official.pipeline_class(model)}",
            "version": diffusers.__version__,
            "framework": "torch",
            "language": "python",
            "device": "cpu",
        },
        "model": Path(model).name,
        "settings": settings,
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }
    pipeline = pipeline or load_pipeline(model, dtype)
    if as_class:
        pipeline = getattr(diffusers, as_class)(**pipeline.components)
        pipeline.set_progress_bar_config(disable=True)
    name = type(pipeline).__name__
    if resolution or condition_resolution:
        official.set_resolution(pipeline, resolution, condition_resolution)
    layered = name == "QwenImageLayeredPipeline"
    arguments = picture_arguments(pipeline, pictures, mask, layered) | (options or {})
    if not layered and name != "QwenImageEditInpaintPipeline":
        arguments |= {"width": width, "height": height}
    if strength is not None:
        arguments["strength"] = strength
    if layers is not None:
        arguments["layers"] = layers
    if vae_tiling:
        pipeline.vae.enable_tiling()
    writer = writer_for(header)
    status = "failed"
    try:
        inputs = Bf16Inputs(pipeline) if bf16_inputs else contextlib.nullcontext()
        positions = TruePositions(pipeline) if mrope else contextlib.nullcontext()
        with inputs, positions, OfficialRecorder(pipeline, writer) as recorder:
            if mask:
                arguments["callback_on_step_end"] = recorder.step_end
            images = pipeline(
                prompt=prompt,
                negative_prompt=negative_prompt,
                true_cfg_scale=guidance,
                num_inference_steps=steps,
                sigmas=sigmas,
                generator=torch.Generator("cpu").manual_seed(seed),
                max_sequence_length=max_sequence_length,
                **arguments,
            ).images
        image = images[0]
        if layered:
            writer.record("images", np.stack([np.asarray(layer) for layer in image]), role="checkpoint")
            if recorder.caption is not None:
                settings["caption"] = recorder.caption
        else:
            writer.record("image", np.asarray(image), role="checkpoint")
        status = "finished"
    finally:
        writer.close(status, 0 if status == "finished" else 1)
    return writer, image


def record_run(model, directory, *, only=None, stats_only=False, **settings) -> Path:
    """Records one run into a folder, replacing what was there."""
    directory = Path(directory)
    if directory.exists():
        shutil.rmtree(directory)
    _, image = run_official(
        model, lambda header: RunWriter(directory, header, only=only, stats_only=stats_only), **settings
    )
    for index, layer in enumerate(image if isinstance(image, list) else [image]):
        layer.save(directory / "images" / ("image.png" if not isinstance(image, list) else f"layer{index + 1}.png"))
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("run", metavar="RUN", help="folder to write; replaced when it exists")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--negative-prompt")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--height", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--guidance", type=float, default=4.0, help="true_cfg_scale; 1 turns it off")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    parser.add_argument("--sigmas", type=float, nargs="+")
    parser.add_argument("--max-sequence-length", type=int, default=512)
    parser.add_argument("--bf16-inputs", action="store_true", help="f32 run with a bf16 run's noise and timesteps")
    parser.add_argument("--only", metavar="GLOB", help="record only these names")
    parser.add_argument("--stats-only", action="store_true", help="keep no full tensors")
    settings = vars(parser.parse_args())
    started = time.monotonic()
    directory = record_run(settings.pop("model"), settings.pop("run"), **settings)
    count = sum(1 for _ in open(directory / "records.jsonl", encoding="utf-8"))
    print(json.dumps({"run": str(directory), "records": count, "secs": round(time.monotonic() - started, 2)}))


if __name__ == "__main__":
    main()
