"""tinygrad: its layers are plain classes with a __call__ and no base class. Those of tinygrad.nn are recorded; a program's own
classes are, too, with `--functions`. Its jit is turned off while a program is recorded: what it replays never comes back to Python.
"""

import functools

from .. import _session
from . import core
from .names import Framework, modules_below


class _LayerLike(type):
    """Any object that is called and holds others may be what a layer sits in."""

    def __subclasscheck__(cls, other):
        call = getattr(other, "__call__", None)
        return hasattr(call, "__code__") and not other.__module__.startswith(
            ("builtins", "functools", "typing", "lockstep")
        )

    def __instancecheck__(cls, value):
        return cls.__subclasscheck__(type(value)) and hasattr(value, "__dict__")


class Layer(metaclass=_LayerLike):
    pass


def install(after_import, recorder):
    after_import("tinygrad.helpers", _turn_off_jit)
    after_import("tinygrad.nn", lambda module: patch(module, recorder))


def _turn_off_jit(helpers):
    try:
        helpers.JIT.value = 0
    except Exception as error:
        _session.warn_once("jit", f"tinygrad's jit stays on, and what it replays is not recorded: {error}")


def patch(module, recorder):
    """`module` is tinygrad.nn, just imported."""
    names = recorder.tinygrad_names = core.names_for(Framework("tinygrad", Layer, _children, _weights), recorder)
    for kind in list(vars(module).values()):
        original = vars(kind).get("__call__") if isinstance(kind, type) and kind.__module__ == module.__name__ else None
        if original is None or getattr(original, "_lockstep", False):
            continue
        kind.__call__ = _recorded(original, names, recorder)


def _recorded(original, names, recorder):
    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        stack = recorder.stack()
        if stack and stack[-1] is self:
            return original(self, *args, **kwargs)
        return recorder.call(names, original, self, args, kwargs)

    __call__._lockstep = True
    return __call__


def _children(layer):
    no_layer = (type, list, tuple, dict, core.loaded("tinygrad.tensor").Tensor)
    attributes = list(getattr(layer, "__dict__", {}).items())
    return modules_below(attributes, lambda value: not isinstance(value, no_layer) and isinstance(value, Layer))


def _weights(layer):
    tensor = core.loaded("tinygrad.tensor").Tensor
    return [(key, value) for key, value in vars(layer).items() if isinstance(value, tensor)]
