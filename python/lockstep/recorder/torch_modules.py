"""Every call of a torch.nn.Module, seen from the one method they all go through."""

import functools
import os

from .. import _session
from . import core
from .names import Framework


def patch(module, recorder):
    """Wraps torch.nn.Module.__call__. `module` is torch.nn.modules.module, just imported."""
    kind = module.Module
    if getattr(kind.__call__, "_lockstep", False):
        return
    names = recorder.torch_names = core.names_for(Framework("torch", kind, _children, _weights), recorder)
    recorder.traced = _is_traced
    original = kind.__call__

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if _is_traced():
            return original(self, *args, **kwargs)
        if type(self).__name__ == "OptimizedModule" or getattr(self, "_compiled_call_impl", None) is not None:
            if recorder.operations is not None and os.environ.get("TORCH_COMPILE_DISABLE") == "1":
                recorder.operations.uncompiled = True
                return recorder.call(names, original, self, args, kwargs)
            _session.warn_once(
                "compiled", "modules inside what torch.compile made are not recorded; try TORCH_COMPILE_DISABLE=1"
            )
        return recorder.call(names, original, self, args, kwargs)

    __call__._lockstep = True
    kind.__call__ = __call__


def _children(module):
    return [(name, child) for name, child in module._modules.items() if child is not None]


def _weights(module):
    return [
        (name, weight) for name, weight in (*module._parameters.items(), *module._buffers.items()) if weight is not None
    ]


def _is_traced():
    """A call that builds a graph has no values to record, and our code must not become part of the graph."""
    torch = core.loaded("torch")
    compiler = getattr(torch, "compiler", None)
    if compiler is not None and compiler.is_compiling():
        return True
    jit = getattr(torch, "jit", None)
    return jit is not None and hasattr(jit, "is_tracing") and jit.is_tracing()
