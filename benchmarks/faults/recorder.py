"""Records an official pipeline run with the inputs and outputs of every module, in Lockstep's run format."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "reference"))
from record_official import checkpoint_name, module_location  # noqa: E402
from run_writer import checksum, dtype_name, escape, key_string, to_numpy  # noqa: E402


class Writer:
    """Records without statistics: the comparison reads the tensors. Hits are counted by name, step, tags and role."""

    def __init__(self, directory: Path, header: dict, change=None):
        self.directory = Path(directory)
        if self.directory.exists():
            shutil.rmtree(self.directory)
        (self.directory / "tensors").mkdir(parents=True)
        (self.directory / "run.json").write_text(
            json.dumps({"format": "lockstep-run", "version": 1, "id": self.directory.name, "status": "finished"} | header)
        )
        self.lines = open(self.directory / "records.jsonl", "w", encoding="utf-8")
        self.hits: dict = {}
        self.sequence = 0
        self.change = change  # plants faults of capture: (name, role, step, tensor) → tensor or None

    def record(self, name, value, *, step=None, tags=None, role="output", where=None):
        tags = tags or {}
        if isinstance(value, torch.Tensor) and value.is_complex():
            value = torch.view_as_real(value)
        if self.change is not None:
            value = self.change(name, role, step, tags, value)
            if value is None:
                return
        counter = (name, step, tuple(sorted(tags.items())), role)
        hit = self.hits.get(counter, 0)
        self.hits[counter] = hit + 1
        array = to_numpy(value)
        suffix = "" if role in ("output", "checkpoint") else f"@{role}"
        file = f"tensors/{escape(key_string(name, step, hit, tags) + suffix)}.npy"
        np.save(self.directory / file, array, allow_pickle=False)
        line = {
            "seq": self.sequence, "name": name, "step": step, "hit": hit, "tags": tags, "role": role,
            "dtype": dtype_name(array), "shape": list(array.shape), "stats": None, "preview": [],
            "checksum": checksum(array), "file": file, "where": where, "secs": 0,
        }  # fmt: skip
        self.sequence += 1
        self.lines.write(json.dumps(line) + "\n")

    def close(self):
        self.lines.close()


class Recorder:
    """Hooks all modules of a pipeline, before and after their calls, and the places where its stages pass."""

    def __init__(self, pipeline, writer):
        self.pipeline, self.writer = pipeline, writer
        self.step, self.tags = None, {}
        self.text_calls = 0
        self.handles, self.restored = [], []

    def __enter__(self):
        for component in ("text_encoder", "transformer", "vae"):
            model = getattr(self.pipeline, component)
            if component == "transformer":
                self.handles.append(model.register_forward_pre_hook(self._before_transformer))
            for path, module in model.named_modules():
                if not path and component != "transformer":
                    continue  # its logits are not used; the VAE is called by its methods
                name = checkpoint_name(component, path) if path else component
                if name is None or ".visual" in name:
                    continue
                where = module_location(module)
                self.handles.append(module.register_forward_pre_hook(self._input_hook(name, where), with_kwargs=True))
                self.handles.append(module.register_forward_hook(self._output_hook(name, where)))
            if component == "transformer":
                self.handles.append(model.register_forward_hook(self._after_transformer))
        self._wrap(self.pipeline, "encode_prompt", self._encode_prompt)
        self._wrap(self.pipeline, "prepare_latents", self._prepare_latents)
        self._wrap(self.pipeline.scheduler, "step", self._scheduler_step)
        self._wrap(self.pipeline.vae, "decode", self._vae_decode)
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()
        for owner, name in self.restored:
            delattr(owner, name)

    def _wrap(self, owner, name, replacement):
        original = getattr(owner, name)
        object.__setattr__(owner, name, lambda *args, **kwargs: replacement(original, *args, **kwargs))
        self.restored.append((owner, name))

    def _stage(self, name, value, step=None, tags=None):
        self.writer.record(name, value, step=step, tags=tags, role="checkpoint")

    def _input_hook(self, name, where):
        def hook(module, args, kwargs):
            try:
                bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
            except TypeError:
                bound = dict(enumerate(args)) | kwargs
            tensors = []
            for key, value in bound.items():
                self._flatten(str(key), value, tensors)
            for key, value in tensors:
                label = name if len(tensors) == 1 else f"{name}.{key}"
                self.writer.record(label, value, step=self.step, tags=dict(self.tags), role="input", where=where)

        return hook

    def _output_hook(self, name, where):
        def hook(_module, _inputs, output):
            tensors = []
            self._flatten("", output, tensors)
            for key, value in tensors:
                label = f"{name}.{key}" if key else name
                self.writer.record(label, value, step=self.step, tags=dict(self.tags), where=where)

        return hook

    def _flatten(self, key, value, out):
        if isinstance(value, torch.Tensor):
            if value.numel():
                out.append((key, value))
        elif isinstance(value, dict):
            if "hidden_states" in value or "past_key_values" in value:
                return  # a model's summary of what its layers have shown already
            for name, item in value.items():
                self._flatten(f"{key}.{name}" if key else str(name), item, out)
        elif isinstance(value, (tuple, list)) and len(value) <= 4:
            single = len([v for v in value if isinstance(v, torch.Tensor)]) == 1 and len(value) <= 2
            for index, item in enumerate(value):
                part = key if single else (f"{key}.{index}" if key else str(index))
                self._flatten(part, item, out)

    def _before_transformer(self, _module, _inputs):
        self.step = 0 if self.step is None else self.step
        self.tags = {"pass": "uncond" if self.tags.get("pass") == "cond" else "cond"}

    def _after_transformer(self, _module, _inputs, output):
        self._stage("noise_pred", output[0], self.step, dict(self.tags))

    def _encode_prompt(self, original, *args, **kwargs):
        self.tags = {"pass": ("cond", "uncond")[self.text_calls]}
        embeds, mask = original(*args, **kwargs)
        self.tags = {}
        self._stage(("", "negative_")[self.text_calls] + "prompt_embeds", embeds)
        self.text_calls += 1
        return embeds, mask

    def _prepare_latents(self, original, *args, **kwargs):
        latents = original(*args, **kwargs)
        self._stage("initial_latents_packed", latents)
        return latents

    def _scheduler_step(self, original, model_output, *args, **kwargs):
        self._stage("noise_pred", model_output, self.step, {"pass": "combined"})
        result = original(model_output, *args, **kwargs)
        self._stage("latents", result[0], self.step)
        self.tags = {}
        self.step += 1
        return result

    def _vae_decode(self, original, latents, *args, **kwargs):
        self.step = None
        self._stage("latents_denormalized", latents)
        return original(latents, *args, **kwargs)


def record(pipeline, directory, *, prompt="a red fox in the snow, painted", negative=" ", width=64, height=96, steps=3,
           guidance=4.0, seed=7, change=None) -> Path:  # fmt: skip
    writer = Writer(Path(directory), {"settings": {"steps": steps, "guidance": guidance, "seed": seed}}, change)
    try:
        with Recorder(pipeline, writer), torch.no_grad():
            image = pipeline(
                prompt=prompt, negative_prompt=negative, true_cfg_scale=guidance, width=width, height=height,
                num_inference_steps=steps, generator=torch.Generator("cpu").manual_seed(seed),
            ).images[0]  # fmt: skip
        writer.record("image", np.asarray(image), role="checkpoint")
    finally:
        writer.close()
    return Path(directory)
