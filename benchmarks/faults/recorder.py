"""Records an official pipeline run with the inputs and outputs of every module: by `lockstep record`'s own recorder, in this
process, so that thousands of runs need no thousands of program starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools" / "reference")]
os.environ["LOCKSTEP_INPUTS"] = "1"

import lockstep  # noqa: E402
from lockstep import _session  # noqa: E402
from lockstep.recorder import install, pipelines  # noqa: E402

RECORDER = install()  # before diffusers is imported: pipelines are told apart when they are loaded

import torch  # noqa: E402


def load(model, dtype):
    """A pipeline whose parts have the names they would have in a program of their own."""
    from record_official import load_pipeline

    if hasattr(RECORDER, "torch_names"):
        RECORDER.torch_names._taken.clear()
    return load_pipeline(model, dtype)


@contextlib.contextmanager
def changed_captures(change):
    """Plants faults of capture: (name, role, step, tags, tensor) → tensor, or None for no record at all."""
    if change is None:
        yield
        return
    original = _session.Session.offer

    def offer(self, name, value, *, role="checkpoint", step=None, tags=None, where=None, hit=-1):
        shown = value
        if isinstance(value, torch.Tensor) and value.is_complex():
            shown = torch.view_as_real(value)
        changed = change(name, role, step, tags or {}, shown)
        if changed is not None:
            original(self, name, changed, role=role, step=step, tags=tags, where=where, hit=hit)
        return value

    _session.Session.offer = offer
    try:
        yield
    finally:
        _session.Session.offer = original


def run_pipeline(pipeline, *, prompt="a red fox in the snow, painted", negative=" ", width=64, height=96, steps=3, guidance=4.0,
                 seed=7):  # fmt: skip
    return pipeline(
        prompt=prompt, negative_prompt=negative, true_cfg_scale=guidance, width=width, height=height,
        num_inference_steps=steps, generator=torch.Generator("cpu").manual_seed(seed),
    )  # fmt: skip


def record(pipeline, directory, *, change=None, **settings) -> Path:
    directory = Path(directory)
    if directory.exists():
        shutil.rmtree(directory)
    home = directory.with_name(directory.name + ".home")
    pipelines._wrap_methods(type(pipeline), RECORDER)  # a planted method has taken the recorded one's place
    try:
        with (
            changed_captures(change),
            torch.no_grad(),
            lockstep.run("run", home=str(home), budget_bytes=1 << 40) as session,
        ):
            run_pipeline(pipeline, **settings)
            path = session.path
        Path(path).rename(directory)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return directory
