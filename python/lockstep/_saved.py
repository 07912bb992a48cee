"""Tensors kept by name outside any run: save() in one program, load() in another."""

import ctypes
import fnmatch
import json
import os
import pathlib
import sys
import urllib.parse

from . import _library, _session, _views
from ._library import LockstepError, encode


def _home():
    return pathlib.Path(os.environ.get("LOCKSTEP_HOME") or ".lockstep")


def save(tensor, name):
    """Keeps a copy of the tensor under this name, replacing an older one; returns the tensor.

    What cannot be kept costs one warning: the program goes on, and load() will say that the tensor is not there.
    """
    try:
        c_view, keep = _library.c_view(_views.view_of(tensor))
        _library.check(_library.library().lockstep_save(None, encode(name), ctypes.byref(c_view)))
        del keep
    except _views.Unreadable as error:
        _session.warn_once(("save", str(error)), f"'{name}' is not saved: {error}")
    except Exception as error:
        _session.warn_once(("save", type(error)), f"'{name}' is not saved: {error}")
    return tensor


def load(name, like=None, *, to=None, device=None, dtype=None):
    """The tensor saved under this name; NotFound, a FileNotFoundError, when there is none.

    like: a tensor whose framework, device and dtype the result takes. to: "torch" ("pytorch"), "mlx" or "numpy" instead.
    dtype: of that framework, or its name.
    """
    handle = ctypes.c_void_p()
    _library.check(_library.library().lockstep_load(None, encode(name), ctypes.byref(handle)))
    kind, shape, data = _library.tensor_parts(handle)
    framework = {"pytorch": "torch", None: "numpy"}.get(to, to)
    try:
        if like is not None:
            return _views.restored(like, kind, shape, data)
        if framework in ("torch", "mlx", "numpy"):
            return _views.made(framework, kind, shape, data, device, dtype)
    except _views.Unreadable as error:
        raise LockstepError(f"[load] '{name}': {error}") from None
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
        raise _library.NotFound(f"[info] no tensor '{name}' in {_home() / 'saved'}; expected one of debug_list()")
    about = {"name": name, "file": str(file), "bytes": file.stat().st_size}
    try:
        about.update(json.loads(file.with_suffix(".json").read_text("utf-8")))
    except (OSError, ValueError):
        pass
    return about


def debug_clear(name=None, confirm=True):
    """Removes exactly the tensor of this name; without a name all of them, once that is confirmed. Returns how many."""
    files = _files()
    chosen = files if name is None else {name: files[name]} if name in files else {}
    if name is None and confirm and chosen and not _is_confirmed(len(chosen)):
        return 0
    for file in chosen.values():
        file.unlink(missing_ok=True)
        file.with_suffix(".json").unlink(missing_ok=True)
    return len(chosen)


def _is_confirmed(count):
    if not (sys.stdin and sys.stdin.isatty()):
        raise LockstepError(
            f"[clear] would remove all {count} saved tensors, and nobody can be asked; try confirm=False"
        )
    return input(f"remove all {count} saved tensors? [y/N] ").strip().lower() in ("y", "yes")


def debug_show_all():
    """Prints the saved tensors and what they take together."""
    total = 0
    names = debug_list()
    for name in names:
        about = debug_info(name)
        total += about["bytes"]
        print(f"{name}  {about.get('dtype', '?')} {about.get('shape', '?')}  {about['bytes']} bytes")
    print(f"{len(names)} tensors, {total / 1e6:.1f} MB in {_home() / 'saved'}")
