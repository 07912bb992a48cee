"""Plain functions of chosen modules: `record --functions 'mflux.models.qwen.*'` records the glue that is no module of a framework.

What is wrapped is what the chosen modules define: functions, and the methods of classes, static ones and class methods too. The calls
of framework modules are recorded anyway and are left alone. Inside a recorded module a function bears that module's name and its
own (`transformer.blocks.0.attn.apply_rope`); elsewhere its qualified name.
"""

import fnmatch
import functools
import inspect
import os
import sys
import types

from .. import _session
from ..agent.imports import after_each_import
from .._packed import is_packed
from .._views import is_tensor

_FORWARDS = ("__call__", "forward")


def chosen():
    return [glob for glob in os.environ.get("LOCKSTEP_FUNCTIONS", "").split(",") if glob]


def install(recorder):
    globs = chosen()
    if not globs:
        return

    def wanted(name, file=None):
        return any(fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name, f"{glob}.*") for glob in globs) or (
            file is not None and any(fnmatch.fnmatchcase(file, glob) or os.path.abspath(glob) == file for glob in globs)
        )

    def file_of(module):
        file = getattr(module, "__file__", None)
        return os.path.abspath(file) if isinstance(file, str) else None

    after_each_import(
        lambda name: wanted(name) or _may_be_files(globs), lambda module: wrap_module(module, recorder, wanted, file_of)
    )
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and wanted(module.__name__, file_of(module)):
            wrap_module(module, recorder, wanted, file_of)


def _may_be_files(globs):
    return any(os.sep in glob or glob.endswith(".py") for glob in globs)


def wrap_module(module, recorder, wanted, file_of):
    name = module.__name__
    if not wanted(name, file_of(module)):
        return
    for attribute, value in list(vars(module).items()):
        try:
            if isinstance(value, types.FunctionType) and value.__module__ == name:
                setattr(module, attribute, _wrapped(value, recorder))
            elif isinstance(value, type) and value.__module__ == name:
                _wrap_class(value, recorder)
        except Exception as error:  # a class that does not let itself be changed
            _session.warn_once(("function", name, attribute), f"{name}.{attribute} is not recorded: {error}")


def _wrap_class(cls, recorder):
    for attribute, value in list(vars(cls).items()):
        if attribute.startswith("__") and (attribute not in _FORWARDS or _is_framework_module(cls)):
            continue
        if attribute in _FORWARDS and _is_framework_module(cls):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            inner = value.__func__
            if isinstance(inner, types.FunctionType):
                setattr(cls, attribute, type(value)(_wrapped(inner, recorder, skip=isinstance(value, classmethod))))
        elif isinstance(value, types.FunctionType):
            setattr(cls, attribute, _wrapped(value, recorder, skip=True))


def _is_framework_module(cls):
    return any(base.__module__.startswith(("torch.nn", "mlx.nn", "flax")) for base in cls.__mro__)


def _wrapped(function, recorder, skip=False):
    """`skip`: the first argument is the object or the class."""
    if (
        getattr(function, "_lockstep", False)
        or inspect.isgeneratorfunction(function)
        or inspect.iscoroutinefunction(function)
    ):
        return function

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not any(is_tensor(one) or is_packed(one) for one in (*args[skip:], *kwargs.values())):
            if recorder.is_traced():
                return function(*args, **kwargs)
            return recorder.call_function(function, args, kwargs, skip, with_inputs=False)
        return (
            function(*args, **kwargs) if recorder.is_traced() else recorder.call_function(function, args, kwargs, skip)
        )

    call._lockstep = True
    return call
