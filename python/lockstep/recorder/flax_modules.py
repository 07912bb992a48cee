"""Flax: linen modules through the one method all their calls go through, nnx modules as MLX's are.

Inside jax.jit there are no values to record: jit is turned off while a program is recorded (LOCKSTEP_JIT=1 leaves it on, and then
what lies inside is left out).
"""

import functools
import os

from .. import _session
from . import core
from .class_calls import call_wrapper, for_each_class
from .names import Framework, modules_below


def install(after_import, recorder):
    after_import("jax", lambda module: _turn_off_jit(module))
    after_import("flax.linen.module", lambda module: patch_linen(module, recorder))
    after_import("flax.nnx.module", lambda module: patch_nnx(module, recorder))


def _turn_off_jit(jax):
    if os.environ.get("LOCKSTEP_JIT", "") in ("", "0"):
        try:
            jax.config.update("jax_disable_jit", True)
        except Exception as error:
            _session.warn_once("jit", f"jax.jit stays on, and what it compiles is not recorded: {error}")


class _LinenNames:
    """A bound linen module knows its path; the class of the outermost one goes before it."""

    framework = "flax"

    def __init__(self, recorder):
        self._recorder = recorder

    def known(self, module):
        return hasattr(module, "scope")

    def name_of(self, module, parent=None):
        stack = self._recorder.stack()
        root = next((one for one in stack if self.known(one)), module)
        path = ".".join(str(part) for part in (module.path if module.scope is not None else ()))
        return f"{type(root).__name__}.{path}" if path else type(root).__name__

    def input_name_of(self, module):
        return None

    def weights_of(self, module):
        held = module.variables.get("params", {}) if module.scope is not None else {}
        return [(name, value) for name, value in held.items() if hasattr(value, "__dlpack__")]


def patch_linen(module, recorder):
    """`module` is flax.linen.module, just imported."""
    kind = module.Module
    original = getattr(kind, "_call_wrapped_method", None)
    if original is None:
        _session.warn_once("flax", "this version of Flax is not known: its modules are not recorded; try --functions")
        return
    if getattr(original, "_lockstep", False):
        return
    names = recorder.flax_names = _LinenNames(recorder)

    @functools.wraps(original)
    def _call_wrapped_method(self, function, args, kwargs):
        stack = recorder.stack()
        # Initialising runs the model on made-up input to learn its shapes: no stage of a computation.
        if getattr(function, "__name__", "") != "__call__" or (stack and stack[-1] is self) or self.is_initializing():
            return original(self, function, args, kwargs)

        def call(_, *given, **named):
            return original(self, function, given, named)

        return recorder.call(names, call, self, args, kwargs)

    _call_wrapped_method._lockstep = True
    kind._call_wrapped_method = _call_wrapped_method


def patch_nnx(module, recorder):
    """`module` is flax.nnx.module, just imported."""
    kind = module.Module
    if getattr(kind, "_lockstep", False):
        return
    names = recorder.nnx_names = core.names_for(Framework("flax", kind, _children, _weights), recorder)

    wrap = call_wrapper(recorder, names)

    before = kind.__init_subclass__.__func__

    def __init_subclass__(cls, **kwargs):
        before(cls, **kwargs)
        wrap(cls)

    kind.__init_subclass__ = classmethod(__init_subclass__)
    kind._lockstep = True
    for_each_class(kind, wrap)


def _children(module):
    kind = core.loaded("flax.nnx.module").Module
    attributes = [(key, value) for key, value in vars(module).items() if not key.startswith("_")]
    return modules_below(attributes, lambda value: isinstance(value, kind))


def _weights(module):
    found = []
    for key, value in vars(module).items():
        held = getattr(value, "value", None) if type(value).__module__.startswith("flax") else value
        if held is not None and hasattr(held, "__dlpack__"):
            found.append((key, held))
    return found
