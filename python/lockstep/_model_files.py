"""Which weight files the program has read: what a comparison needs to find the checkpoint by itself.

The readers of safetensors, torch and MLX are watched as soon as the program imports them; nothing is imported, and a file is never
opened here.
"""

import functools
import os

from .agent.imports import after_import

_MOST_FILES = 4096
_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".npz")
_MARKS = ("model_index.json", "config.json")
_files = {}  # in order, each once


def note(path):
    try:
        path = os.path.abspath(os.fsdecode(path))
        if path.endswith(_ENDINGS) and len(_files) < _MOST_FILES:
            _files[path] = None
    except (TypeError, ValueError):  # a file object, bytes
        pass


def details():
    """For run.json: the files, and the folder that holds the model."""
    if not _files:
        return {}
    return {"weight_files": list(_files), "model": model_folder(list(_files))}


def model_folder(files):
    """The nearest folder above all files that is marked as a model's, else the nearest; a lone file without a mark is its own."""
    folder = os.path.commonpath([os.path.dirname(file) for file in files])
    for candidate in (folder, os.path.dirname(folder)):
        if os.path.exists(os.path.join(candidate, _MARKS[0])):
            return candidate
    if os.path.exists(os.path.join(folder, _MARKS[1])) or len(files) > 1:
        return folder
    return files[0]


def install():
    after_import("safetensors", _watch_safetensors)
    after_import("safetensors.torch", lambda module: _watch(module, "load_file"))
    after_import("safetensors.numpy", lambda module: _watch(module, "load_file"))
    after_import("safetensors.flax", lambda module: _watch(module, "load_file"))
    after_import("torch.serialization", lambda module: _watch(module, "load"))
    after_import("mlx.core", lambda module: _watch(module, "load"))
    after_import("tinygrad.nn.state", lambda module: _watch(module, "safe_load"))


def _watch(module, name):
    original = getattr(module, name, None)
    if original is None or getattr(original, "_lockstep", False):
        return

    @functools.wraps(original)
    def load(file, *args, **kwargs):
        note(file)
        return original(file, *args, **kwargs)

    load._lockstep = True
    setattr(module, name, load)


def _watch_safetensors(module):
    original = getattr(module, "safe_open", None)
    if original is None or getattr(original, "_lockstep", False):
        return

    class safe_open(original if isinstance(original, type) and _may_be_base(original) else object):  # noqa: N801
        _lockstep = True

        def __new__(cls, filename, *args, **kwargs):
            note(filename)
            return original(filename, *args, **kwargs)

    safe_open.__name__ = safe_open.__qualname__ = "safe_open"
    module.safe_open = safe_open


def _may_be_base(kind):
    try:
        type("probe", (kind,), {})
    except TypeError:
        return False
    return True
