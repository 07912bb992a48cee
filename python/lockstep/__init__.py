"""Lockstep for Python: name the tensors of your program, record them, and go on with the reference's values.

    from lockstep import checkpoint, save, load, run
    x = checkpoint("latents", x)            # records; returns x, or the reference's value when substituting

Off unless asked for (LOCKSTEP_RECORD=1, `lockstep record`, or `with run("name"):`), and then it costs one branch.
"""

import contextlib
import importlib.machinery
import importlib.util
import inspect
import sys

from . import _session, _traced
from ._library import LockstepError
from ._packed import is_collection, is_packed, opened
from ._saved import (
    debug_clear,
    debug_info,
    debug_list,
    debug_load,
    debug_save,
    debug_show_all,
    load,
    save,
)
from ._views import is_tensor
from .agent import library_files

__version__ = "0.1.0"
__all__ = [
    "LockstepError",
    "checkpoint",
    "debug_checkpoint",
    "debug_clear",
    "debug_info",
    "debug_list",
    "debug_load",
    "debug_save",
    "debug_show_all",
    "load",
    "run",
    "save",
]

_off = not _session.asked_for()
_debugger = None  # set by a live debugger: called with each checkpoint, whether it is recorded or not


class _Absent:
    """Stands where no tensor was given: None is a value that programs pass."""

    def __repr__(self):
        return "no tensor"


_ABSENT = _Absent()


# What is off must cost next to nothing: no keyword-only argument (each default would be looked up in a dictionary at every
# call), no call of another function, and the last value taken from the dictionary without a copy of it.
def checkpoint(name=None, tensor=None, /, step=None, tags=None, **named):
    """checkpoint(name=None, tensor=None, /, *, step=None, tags=None, **named)

    Records a tensor and returns it, or the reference's value where that is to be substituted.

    checkpoint("latents", x)                       one tensor
    checkpoint("states", [x, y])                   those in a list, tuple, dictionary or dataclass: states.0, states.1
    checkpoint("block", hidden=h, temb=t, step=i)  several: block.hidden, block.temb; returns them in that order
    checkpoint() or checkpoint("block")            all tensors among the caller's local variables

    Inside torch.compile it leaves no trace in the graph while nothing is recorded; what is recorded ends the graph there,
    which fullgraph=True refuses.
    """
    if named:
        if tensor is None:
            tensor = named.popitem()[1]
            return (*named.values(), tensor) if named else tensor
        return (tensor, *named.values())
    return tensor


def _record_call(name=None, tensor=_ABSENT, /, step=None, tags=None, **named):
    # Called from C, which has no Python frame, or in checkpoint's place: one up is the program.
    return _record(name, tensor, step, tags, named, sys._getframe(1))


def debug_checkpoint(
    checkpoint_name=None,
    stream=None,
    context=None,
    metadata=None,
    skip=False,
    verified=False,
    terminate_after=False,
    **variables,
):
    """checkpoint() under the name and with the arguments that mflux ports use. Under `lockstep debug` it may stop, unless skip."""
    tags = {key: str(value) for key, value in {**(context or {}), **(metadata or {})}.items()}
    if verified:
        tags["verified"] = "true"
    if stream is not None:
        tags["stream"] = str(stream)
    step = tags.pop("timestep", None)
    step = int(step) if isinstance(step, str) and step.isdigit() else None
    _record(checkpoint_name, _ABSENT, step, tags, variables, sys._getframe(1), skip)
    if terminate_after:
        sys.exit(0)


# The same arguments by position alone: a variable's name is then compared with no argument's.
def _debug_off(
    checkpoint_name=None,
    stream=None,
    context=None,
    metadata=None,
    skip=False,
    verified=False,
    terminate_after=False,
    /,
    **named,
):
    if terminate_after or ("terminate_after" in named and named["terminate_after"]):
        sys.exit(0)


# The name is asked for, though both forms could do without.
debug_checkpoint.__signature__ = (lambda own: own.replace(parameters=[
    one.replace(default=one.empty) if one.name == "checkpoint_name" else one for one in own.parameters.values()
]))(inspect.signature(debug_checkpoint))  # fmt: skip


def _load_fast():
    """The C form of checkpoint(), where it was built beside the capture library."""
    for candidate in library_files.library_places("lockstep_fast.abi3.so"):
        try:
            loader = importlib.machinery.ExtensionFileLoader("lockstep._fast", candidate)
            module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lockstep._fast", loader))
            loader.exec_module(module)
        except (ImportError, OSError):
            continue
        module.set_slow_path(_record_call)
        module.set_off(_off)
        return module if hasattr(module, "debug_checkpoint") else None  # one of an older build
    return None


_python_checkpoint = checkpoint
_forms = {off: (form.__code__, form.__defaults__) for off, form in ((True, checkpoint), (False, _record_call))}
_python_debug_checkpoint = debug_checkpoint
_debug_forms = {True: _debug_off.__code__, False: debug_checkpoint.__code__}  # their defaults are alike
_fast = _load_fast()
if _fast is not None:
    checkpoint = _fast.checkpoint
    _fast.set_debug_path(debug_checkpoint)
    debug_checkpoint = _fast.debug_checkpoint
    _traced.arrange(checkpoint, debug_checkpoint)


def _set_off(value):
    global _off
    _off = bool(value)
    # The function that programs have imported changes what it does: while nothing is recorded it has not even a branch.
    # Both forms bear each other's defaults for the moment that another thread may see them.
    _python_checkpoint.__code__, _python_checkpoint.__defaults__ = _forms[_off]
    _python_debug_checkpoint.__code__ = _debug_forms[_off]
    if _fast is not None:
        _fast.set_off(_off)


_set_off(_off)


def _given(tensor, named):
    """What a checkpoint that records nothing returns: the tensor, or the named ones in order."""
    if "step" in named:
        del named["step"]
    if "tags" in named:
        del named["tags"]
    if tensor is not None and tensor is not _ABSENT:
        return (tensor, *named.values()) if named else tensor
    if len(named) == 1:
        (tensor,) = named.values()
        return tensor
    return tuple(named.values()) or None


def _place(frame):
    code = frame.f_code
    return code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)


def _record(name, tensor, step, tags, named, frame, skip=False):
    if _debugger is not None:
        _debugger(name, None if tensor is _ABSENT else tensor, step, tags, named, frame, skip)
    session = _session.current()
    if session is None:
        return _given(tensor, named)
    where = _place(frame)
    if tensor is _ABSENT and not named:
        _record_locals(session, name, step, tags, frame, where)
        return None
    name = where[2] if name is None else name

    def offer(full_name, value):
        if value is None:  # a mask or an embedding that is absent in this call is no mistake
            return value
        return _offer(session, full_name, value, step=step, tags=tags, where=where)

    if tensor is not None and tensor is not _ABSENT:
        tensor = offer(name, tensor)
    return _given(tensor, {key: offer(f"{name}.{key}", value) for key, value in named.items()})


def _offer(session, name, value, **circumstances):
    """Records a tensor, or those that are packed in the value; returns it, or a copy with the reference's in their place."""
    if is_tensor(value) or not is_packed(value):
        return session.offer(name, value, **circumstances)
    names = []

    def offer(one, tensor):
        names.append(one)
        return session.offer(one, tensor, **circumstances)

    try:
        result = opened(name, value, offer)
    except Exception as error:  # a container of a kind of its own, or changed meanwhile
        _session.warn_once(("packed", type(error)), f"{name} is not recorded: {error}")
        return value
    # That a variable holds no tensor is no mistake; what was named by hand should.
    return result if names or circumstances.get("role") == "variable" else session.offer(name, value, **circumstances)


def _record_locals(session, name, step, tags, frame, where):
    prefix = where[2] if name is None else name
    for key, value in list(frame.f_locals.items()):
        # Dataclasses are left alone: some frameworks' modules are such, and `self` would be all of its weights.
        if is_tensor(value) or is_collection(value):
            _offer(session, f"{prefix}.{key}", value, role="variable", step=step, tags=tags, where=where)


@contextlib.contextmanager
def run(name=None, **settings):
    """Records what happens inside, whatever the environment says.

    settings: home, details_json, tap, no_tap, steps, full, stats_only, budget_bytes, reference, substitute, no_record.
    """
    session, previous = _session.open_run(name or _session.program_name(), **settings)
    was_off = _off
    _set_off(False)
    status = "failed"
    try:
        yield session
        status = "finished"
    finally:
        _set_off(was_off)
        _session.restore(previous)
        session.close(status)


# Under `lockstep debug` the debugger is there before us.
if "_lockstep_debugger" in sys.modules:
    sys.modules["_lockstep_debugger"].package_imported(sys.modules[__name__])
