"""Stages of a diffusers pipeline: what passes between its modules, by the names of the C++ engine."""

import functools
import inspect
import os
import sys

from .. import _session
from . import core


_DENOISERS = ("transformer", "unet", "prior")  # how pipelines call what they run once or twice a step


def patch(module, recorder):
    """`module` is diffusers.pipelines.pipeline_utils, just imported."""
    kind = module.DiffusionPipeline
    if getattr(kind.register_modules, "_lockstep", False):
        return
    original = kind.register_modules

    @functools.wraps(original)
    def register_modules(self, **modules):
        result = original(self, **modules)
        try:
            _name_components(self, recorder, modules)
            _wrap_methods(type(self), recorder)
        except Exception as error:
            _session.warn_once("pipeline", f"the pipeline's stages are not recorded: {error}")
        return result

    register_modules._lockstep = True
    kind.register_modules = register_modules


def _name_components(owner, recorder, parts):
    torch = core.loaded("torch")
    for name, part in parts.items():
        if torch is not None and isinstance(part, torch.nn.Module) and not recorder.torch_names.known(part):
            recorder.torch_names.add_root(name, part, record_root=False, owner=owner)


def _whole_path(name):
    """A folder by its whole path, so that a comparison finds it from anywhere; a name of the hub as it is."""
    return os.path.abspath(name) if isinstance(name, str) and os.path.isdir(name) else name


def _wrap_methods(cls, recorder):
    for name, wrapper in (
        ("__call__", _wrap_call),
        ("encode_prompt", _wrap_encode_prompt),
        ("prepare_latents", _wrap_prepare_latents),
    ):
        original = getattr(cls, name, None)
        if original is None or getattr(original, "_lockstep", False):
            continue
        wrapped = functools.wraps(original)(wrapper(original, recorder))
        wrapped._lockstep = True
        setattr(cls, name, wrapped)


def _wrap_call(original, recorder):
    def __call__(self, *args, **kwargs):
        if recorder.pipeline is not None:  # one pipeline inside another: the outer one's stages count
            return original(self, *args, **kwargs)
        stages = Stages(self, recorder, inspect.signature(original), args, kwargs)
        recorder.pipeline = stages
        try:
            result = stages.run(original, args, kwargs)
        finally:
            recorder.pipeline = None
            stages.leave()
        stages.record_images(result)
        return result

    return __call__


def _wrap_encode_prompt(original, recorder):
    def encode_prompt(self, *args, **kwargs):
        stages = recorder.pipeline
        if stages is None or stages.owner is not self:
            return original(self, *args, **kwargs)
        return stages.encode_prompt(original, self, args, kwargs)

    return encode_prompt


def _wrap_prepare_latents(original, recorder):
    def prepare_latents(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        stages = recorder.pipeline
        if stages is not None and stages.owner is self:
            result = stages.prepared_latents(result)
        return result

    return prepare_latents


class Stages:
    """One call of a pipeline. The conditional pass comes first in each step, as in the official code."""

    def __init__(self, owner, recorder, signature, args, kwargs):
        self.owner = owner
        self._recorder = recorder
        parts = {name: getattr(owner, name, None) for name in getattr(owner, "config", ())}
        _name_components(owner, recorder, parts)  # what the program has put in a component's place since
        # One may be for the first steps and another for the rest.
        self._denoisers = [part for name, part in parts.items() if name.startswith(_DENOISERS) and part is not None]
        self._is_qwen = type(owner).__name__.startswith("QwenImage")
        self._true_guidance = (
            self._is_qwen or "true_cfg_scale" in signature.parameters
        )  # two passes a step, not one batch
        self._text_calls = 0
        self._target_tokens = None  # behind them stand those of condition pictures, whose predictions are left
        self._restore = []
        recorder.step, recorder.tags = None, {}
        self._describe(signature, args, kwargs)
        self._wrap(getattr(owner, "scheduler", None), "step", self._scheduler_step)
        self._wrap(getattr(owner, "vae", None), "decode", self._vae_decode)

    def run(self, original, args, kwargs):
        """The pipeline's call; its own code, between its modules, is a call that can be traced, named "pipeline"."""
        operations, call = self._recorder.operations, core.Call(None, None, {}, 0)
        if operations is None or not operations.wants("pipeline", call):
            return original(self.owner, *args, **kwargs)
        return operations.run("pipeline", call, "torch", original, self.owner, args, kwargs, glue=True)

    def leave(self):
        for part, name in self._restore:
            part.__dict__.pop(name, None)
        self._recorder.step, self._recorder.tags = None, {}

    def _wrap(self, part, name, replacement):
        original = getattr(part, name, None)
        if original is None:
            return
        # An attribute of the instance hides the method of its class; leave() takes it away again.
        object.__setattr__(part, name, functools.wraps(original)(lambda *a, **k: replacement(original, *a, **k)))
        self._restore.append((part, name))

    def _stage(self, name, value, *, step=None, tags=None):
        return self._recorder.offer_stage(name, value, step, tags or {})

    def _describe(self, signature, args, kwargs):
        try:
            given = signature.bind(self.owner, *args, **kwargs).arguments
            generator = given.get("generator")
            generator = generator[0] if isinstance(generator, (list, tuple)) and generator else generator
            parts = self._denoisers[0] if self._denoisers else None
            settings = {
                "prompt": given.get("prompt"),
                "negative_prompt": given.get("negative_prompt"),
                "width": given.get("width"),
                "height": given.get("height"),
                "steps": given.get("num_inference_steps"),
                "guidance": given.get("true_cfg_scale", given.get("guidance_scale")),
                "seed": generator.initial_seed() if generator is not None else None,
                "sigmas": given.get("sigmas"),
                "dtype": str(getattr(parts, "dtype", "")).removeprefix("torch.") or None,
            }
            session = _session.current()
            if session is not None:
                session.describe(
                    {
                        "producer": {
                            "name": f"diffusers.{type(self.owner).__name__}",
                            "version": getattr(sys.modules.get("diffusers"), "__version__", None),
                            "framework": "torch",
                            "device": str(getattr(parts, "device", "cpu")),
                        },
                        "model": _whole_path(getattr(self.owner, "name_or_path", None)),
                        "settings": {key: value for key, value in settings.items() if value is not None},
                    }
                )
        except Exception as error:
            _session.warn_once("settings", f"the pipeline's settings are not recorded: {error}")

    def _is_denoiser(self, module):
        return any(module is one for one in self._denoisers)

    def before_module(self, module):
        if not self._is_denoiser(module):
            return
        recorder = self._recorder
        if recorder.step is None:
            recorder.step = 0
        if self._true_guidance:
            recorder.tags = {"pass": "uncond" if recorder.tags.get("pass") == "cond" else "cond"}

    def after_module(self, module, output):
        if not self._is_denoiser(module):
            return output
        recorder = self._recorder
        bare = core.is_tensor(output)
        first = output if bare else output[0]
        target = first
        if self._is_qwen and self._target_tokens and self._target_tokens < first.shape[1]:
            target = first[:, : self._target_tokens]
        new = self._stage("noise_pred", target, step=recorder.step, tags=dict(recorder.tags))
        if new is target:
            return output
        if target is not first:
            whole = first.clone()
            whole[:, : self._target_tokens] = new
            new = whole
        if bare:
            return new
        if isinstance(output, tuple):
            return (new, *output[1:])
        output[next(iter(output))] = new
        return output

    def encode_prompt(self, original, owner, args, kwargs):
        recorder = self._recorder
        uncond = self._text_calls > 0
        if not uncond:
            self._condition_images(kwargs.get("image"))
        recorder.tags = {"pass": "uncond" if uncond else "cond"} if self._true_guidance else {}
        try:
            result = original(owner, *args, **kwargs)
        finally:
            recorder.tags = {}
            self._text_calls += 1
        prefix = "negative_" if uncond and self._true_guidance else ""
        if not isinstance(result, tuple):
            return result
        labels = ["prompt_embeds", "prompt_embeds_mask"] if self._is_qwen else []
        labels += [f"encode_prompt.{index}" for index in range(len(labels), len(result))]
        return tuple(
            self._stage(f"{prefix}{label}", value) if core.is_tensor(value) else value
            for label, value in zip(labels, result)
        )

    def _condition_images(self, images):
        """What an editing pipeline shows to the text encoder: PIL pictures, already in their final size."""
        numpy = sys.modules.get("numpy")
        for image in images if isinstance(images, (list, tuple)) else [images]:
            if numpy is not None and hasattr(image, "__array_interface__"):
                self._stage("condition_images", numpy.asarray(image))

    def prepared_latents(self, result):
        several = isinstance(result, tuple) and result and core.is_tensor(result[0])
        latents = result[0] if several else result
        if not core.is_tensor(latents):
            return result
        if len(latents.shape) == 3:
            self._target_tokens = latents.shape[1]
        if not several:
            return self._stage("initial_latents_packed", latents)
        # Editing also packs the input pictures, and comes back with them last; between them may stand the noise.
        rest = list(result[1:])
        if rest and core.is_tensor(rest[-1]):
            rest[-1] = self._stage("image_latents", rest[-1])
        return (self._stage("initial_latents_packed", latents), *rest)

    def _scheduler_step(self, original, model_output, *args, **kwargs):
        recorder = self._recorder
        step = 0 if recorder.step is None else recorder.step
        if recorder.tags.get("pass") == "uncond":
            model_output = self._stage("noise_pred", model_output, step=step, tags={"pass": "combined"})
        result = original(model_output, *args, **kwargs)
        if isinstance(result, tuple) and result and core.is_tensor(result[0]):
            result = (self._stage("latents", result[0], step=step), *result[1:])
        elif core.is_tensor(getattr(result, "prev_sample", None)):
            result.prev_sample = self._stage("latents", result.prev_sample, step=step)
        recorder.tags = {}
        recorder.step = step + 1
        return result

    def _vae_decode(self, original, latents, *args, **kwargs):
        self._recorder.step, self._recorder.tags = None, {}
        return original(self._stage("latents_denormalized", latents), *args, **kwargs)

    def record_images(self, result):
        try:
            images = getattr(result, "images", None)
            if images is None and isinstance(result, tuple) and result:
                images = result[0]
            numpy = sys.modules.get("numpy")
            layers = isinstance(images, list) and images and isinstance(images[0], list)
            if layers and numpy is not None:  # of each picture, [layers, height, width, 4]
                for picture in images:
                    self._stage("images", numpy.stack([numpy.asarray(layer) for layer in picture]))
                return
            for image in images if isinstance(images, (list, tuple)) else [images]:
                if core.is_tensor(image):
                    self._stage("image", image)
                elif numpy is not None and hasattr(image, "__array_interface__"):
                    self._stage("image", numpy.asarray(image))  # PIL: [height, width, 3] u8
        except Exception as error:
            _session.warn_once("image", f"the image is not recorded: {error}")
