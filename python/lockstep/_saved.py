"""Tensors kept by name outside any run: save() in one program, load() in another."""

import ctypes
import fnmatch
import json
import os
import pathlib
import sys
import urllib.parse

from . import _library, _views
from ._library import LockstepError, encode


def _home():
    return pathlib.Path(os.environ.get("LOCKSTEP_HOME") or ".lockstep")


def save(tensor, name):
    """Keeps a copy of the tensor under this name, replacing an older one; returns the tensor."""
    try:
        view = _views.view_of(tensor)
    except _views.Unreadable as error:
        raise LockstepError(f"[save] '{name}' cannot be read: {error}") from None
    c_view, keep = _library.c_view(view)
    _library.check(_library.library().lockstep_save(None, encode(name), ctypes.byref(c_view)))
    del keep
    return tensor


def load(name, like=None, *, to=None, device=None, dtype=None):
    """The tensor saved under this name; LockstepError when there is none.

    like: a tensor whose framework, device and dtype the result takes. to: "torch" ("pytorch"), "mlx" or "numpy" instead.
    """
    handle = ctypes.c_void_p()
    _library.check(_library.library().lockstep_load(None, encode(name), ctypes.byref(handle)))
    kind, shape, data = _library.tensor_parts(handle)
    if like is not None:
        return _views.restored(like, kind, shape, data)
    framework = {"pytorch": "torch", None: "numpy"}.get(to, to)
    if framework == "torch":
        import torch

        values = torch.frombuffer(data, dtype=getattr(torch, kind)) if data else torch.empty(0, dtype=getattr(torch, kind))
        return values.reshape(shape).to(device=device, dtype=dtype)
    if framework == "mlx":
        import mlx.core as mx

        values = _views.restored(mx.array(0), kind, shape, data)
        return values if dtype is None else values.astype(dtype)
    if framework == "numpy":
        import numpy

        array = _views.numpy_from(numpy, kind, shape, data)
        return array if dtype is None else array.astype(dtype)
    raise LockstepError(f"[load] unknown framework; expected torch, mlx or numpy, got {to!r}")


def debug_save(tensor, name, exit_after=False, skip=False):
    if not skip:
        save(tensor, name)
    if exit_after and not skip:
        sys.exit(0)


def debug_load(name, exact_version=False, to="mlx", device=None, dtype=None):
    del exact_version
    return load(name, to=to, device=device, dtype=dtype)


def _files():
    found = {}
    for file in sorted((_home() / "saved").glob("*.npy")):
        name = urllib.parse.unquote(file.stem)
        try:
            name = json.loads(file.with_suffix(".json").read_text("utf-8"))["name"]
        except (OSError, ValueError, KeyError):
            pass
        found[name] = file
    return found


def debug_list(pattern="*"):
    """Names of the saved tensors that match the glob."""
    return [name for name in _files() if fnmatch.fnmatchcase(name, pattern)]


def debug_info(name):
    """What is known of a saved tensor, without reading its values."""
    file = _files().get(name)
    if file is None:
        raise LockstepError(f"[info] no tensor '{name}' in {_home() / 'saved'}")
    about = {"name": name, "file": str(file), "bytes": file.stat().st_size}
    try:
        about.update(json.loads(file.with_suffix(".json").read_text("utf-8")))
    except (OSError, ValueError):
        pass
    return about


def debug_clear(name=None, confirm=True):
    """Removes exactly the tensor of this name, or all of them with name=None and confirm=False."""
    files = _files()
    if name is None and confirm:
        raise LockstepError("[clear] would remove every saved tensor; try confirm=False")
    chosen = files if name is None else {name: files[name]} if name in files else {}
    for file in chosen.values():
        file.unlink(missing_ok=True)
        file.with_suffix(".json").unlink(missing_ok=True)
    return len(chosen)


def debug_show_all():
    for name in _files():
        about = debug_info(name)
        print(f"{name}  {about.get('dtype', '?')} {about.get('shape', '?')}  {about['bytes']} bytes")


