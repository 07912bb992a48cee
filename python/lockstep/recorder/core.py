"""The recorder: module calls come in, tensors go to the session, with step and pass."""

import fnmatch
import os
import sys
import threading

from .. import _model_files, _session
from ..agent.imports import after_import
from .._packed import opened
from .._traceback import install as install_traceback
from .._traceback import without_our_frames
from .._views import is_tensor
from .names import ModuleNames

_FRAMEWORKS = ("torch.", "mlx.", "jax.", "flax.", "tinygrad.")
_MOST_FRAMES = 24
_MOST_PACKED = 16  # tensors in one argument of a plain function


def _calling_line(frame):
    """File, line and function of the nearest frame that is neither the framework's nor ours."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__") or ""
        if not module.startswith((*_FRAMEWORKS, "lockstep.")):
            code = frame.f_code
            return (code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name))
        frame = frame.f_back
    return None


def _is_heap(value):
    """A checkpoint or a batch that a plain function is handed: its tensors are no stages of a computation."""
    return isinstance(value, (dict, list, tuple)) and len(value) > _MOST_PACKED


class Call:
    """What all that goes into a call and comes out of it shares."""

    __slots__ = ("place", "step", "tags", "hit")

    def __init__(self, place, step, tags, hit):
        self.place = place  # file, line, function
        self.step = step
        self.tags = tags
        self.hit = hit


class Recorder:
    def __init__(self):
        self.inputs = os.environ.get("LOCKSTEP_INPUTS", "") not in ("", "0")
        self._modules = [glob for glob in os.environ.get("LOCKSTEP_MODULES", "").split(",") if glob]
        self._weights = os.environ.get("LOCKSTEP_WEIGHTS", "1") not in ("", "0")
        self._weighed = set()  # modules whose weights were noted
        self._wanted = {}  # module name → whether to record it
        self._places = {}  # module class → file, line, function of its forward
        self._parameters = {}  # module class → names of its forward's parameters
        self._local = threading.local()
        self.step = None
        self.tags = {}
        self.operations = _operations()
        self.pipeline = None  # stages of the diffusers pipeline that is running

    def stack(self):
        stack = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def announce_aliases(self, aliases):
        session = _session.current()
        if session is not None:
            session.describe({"aliases": aliases})

    def call(self, names, function, module, args, kwargs):
        """Runs function(module, ...) and records what went in and out. Whatever fails here, the call itself happens."""
        stack = self.stack()
        name = call = inputs_of = None
        parameters = ()
        try:
            name = names.name_of(module, stack[-1] if stack else None)
            if name is not None and not self._is_wanted(name):
                name = None
            if self.pipeline is not None:
                self.pipeline.before_module(module)
            inputs_of = name
            if name is None and (self.inputs or self.operations is not None):
                inputs_of = names.input_name_of(module)
            if inputs_of is not None:
                call = self._begin_call(inputs_of, module, sys._getframe(1))
                if self.operations is not None:
                    parameters = self._parameters_of(type(module))
                if self._weights and inputs_of not in self._weighed:
                    self._note_weights(names, inputs_of, module)
                if self.inputs and (name is not None or self._is_wanted(inputs_of)):
                    args, kwargs = self._offer_inputs(inputs_of, type(module), args, kwargs, call)
        except Exception as error:
            _session.warn_once(("module", type(error)), f"a {type(module).__name__} is not recorded: {error}")
            name = None
        stack.append(module)
        try:
            if self.operations is not None and self.operations.in_glue:
                whole = names.name_of(module) or names.input_name_of(module) or type(module).__name__
                known = self._parameters_of(type(module))
                output = self.operations.whole(whole, function, module, args, kwargs, known, self.step, self.tags)
            elif self.operations is not None and inputs_of is not None and self.operations.wants(inputs_of, call):
                framework = getattr(names, "framework", "this framework")
                output = self.operations.run(inputs_of, call, framework, function, module, args, kwargs, parameters)
            else:
                output = function(module, *args, **kwargs)
        except BaseException as error:
            raise error.with_traceback(without_our_frames(error.__traceback__))
        finally:
            stack.pop()
        try:
            if name is not None:
                output = self.open(name, output, "output", call)
            if self.pipeline is not None:
                output = self.pipeline.after_module(module, output)
        except Exception as error:
            _session.warn_once(("module", type(error)), f"{name or type(module).__name__} is not recorded: {error}")
        return output

    def _note_weights(self, names, name, module):
        """Which weights a module holds itself, noted at its first call: by then they are loaded."""
        self._weighed.add(name)
        session = _session.current()
        if session is not None:
            for key, value in names.weights_of(module):
                session.weight(name, key, value)

    def is_traced(self):
        check = getattr(self, "traced", None)  # torch's, once it is there
        return check is not None and check()

    def call_function(self, function, args, kwargs, skip, with_inputs=True):
        """Runs a plain function; `skip`: how many of its arguments come before those that count (self)."""
        name = call = None
        stack = self.stack()
        try:
            name = self._function_name(function, stack)
            if self._is_wanted(name):
                code = function.__code__
                session = _session.current()
                hit = -1 if session is None else session.begin_call(name, self.step, self.tags)
                place = (code.co_filename, code.co_firstlineno, function.__qualname__)
                call = Call(place, self.step, self.tags, hit)
                if self.inputs and with_inputs:
                    given = {**dict(zip(code.co_varnames[skip : code.co_argcount], args[skip:])), **kwargs}
                    for key, value in given.items():
                        if not _is_heap(value):
                            self.open(f"{name}.{key}", value, "input", call)
        except Exception as error:
            _session.warn_once(("function", type(error)), f"{function.__qualname__} is not recorded: {error}")
            call = None
        output = function(*args, **kwargs)
        try:
            if call is not None and not _is_heap(output):
                output = self.open(name, output, "output", call)
        except Exception as error:
            _session.warn_once(("function", type(error)), f"{name} is not recorded: {error}")
        return output

    def _function_name(self, function, stack):
        if stack:
            for framework in ("torch", "mlx", "nnx", "tinygrad", "flax"):
                names = getattr(self, f"{framework}_names", None)
                if names is not None and names.known(stack[-1]):
                    holder = names.name_of(stack[-1])
                    if holder is not None:
                        return f"{holder}.{function.__name__}"
        return function.__qualname__.replace("<locals>.", "")

    def _begin_call(self, name, module, frame):
        session = _session.current()
        hit = -1 if session is None else session.begin_call(name, self.step, self.tags)
        return Call(self._place_of(module, frame), self.step, self.tags, hit)

    def _is_wanted(self, name):
        wanted = self._wanted.get(name)
        if wanted is None:
            names = (name, name.partition(".")[2] or name)  # transformer.blocks.0 is also blocks.0
            wanted = not self._modules or any(fnmatch.fnmatchcase(one, glob) for glob in self._modules for one in names)
            self._wanted[name] = wanted
        return wanted

    def _place_of(self, module, frame):
        """Where to look: the module's own code, or, where that is the framework's, the line that calls it."""
        kind = type(module)
        place = self._places.get(kind)
        if place is None:
            forward = getattr(kind, "forward", None) or getattr(kind, "__call__")
            while hasattr(forward, "__wrapped__"):
                forward = forward.__wrapped__
            code = getattr(forward, "__code__", None)
            place = (None, 0, kind.__qualname__)
            if code is not None:
                place = (code.co_filename, code.co_firstlineno, getattr(forward, "__qualname__", code.co_name))
            self._places[kind] = place
        if kind.__module__.startswith(_FRAMEWORKS):
            return _calling_line(frame) or place
        return place

    def _parameters_of(self, kind):
        """Names of the positional parameters of its forward, self left out."""
        names = self._parameters.get(kind)
        if names is None:
            forward = getattr(kind, "forward", None) or getattr(kind, "__call__")
            while hasattr(forward, "__wrapped__"):
                forward = forward.__wrapped__
            code = getattr(forward, "__code__", None)
            names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
            self._parameters[kind] = names
        return names

    def _offer_inputs(self, name, kind, args, kwargs, call):
        """One tensor alone carries the module's name; of several each carries its parameter's behind it."""
        count = sum(
            1 for value in (*args, *kwargs.values()) if is_tensor(value) or isinstance(value, (tuple, list, dict))
        )
        if count == 1:
            args = tuple(self.open(name, value, "input", call) for value in args)
            return args, {key: self.open(name, value, "input", call) for key, value in kwargs.items()}
        known = self._parameters_of(kind)
        args = tuple(
            self.open(f"{name}.{known[index] if index < len(known) else index}", value, "input", call)
            for index, value in enumerate(args)
        )
        return args, {key: self.open(f"{name}.{key}", value, "input", call) for key, value in kwargs.items()}

    def open(self, name, value, role, call):
        """Records the tensors in a value, however they are packed; returns it, or a copy with replaced tensors."""
        return opened(
            name, value, lambda one, tensor: self._offer(one, tensor, role, call.step, call.tags, call.place, call.hit)
        )

    def offer_stage(self, name, value, step, tags):
        if self.operations is not None:
            self.operations.stage(name, value, step, tags)
        return self._offer(name, value, "checkpoint", step, tags)

    @staticmethod
    def _offer(name, value, role, step, tags, place=None, hit=-1):
        session = _session.current()
        if session is None:
            return value
        return session.offer(name, value, role=role, step=step, tags=tags, where=place, hit=hit)


def _operations():
    """Traces the operations of the calls that LOCKSTEP_OPERATIONS names; None where none are named."""
    if not os.environ.get("LOCKSTEP_OPERATIONS"):
        return None
    from ..operations import Operations

    return Operations()


def install():
    """Arranges for torch, MLX, Flax, tinygrad and diffusers to be recorded as soon as the program imports them."""
    from . import flax_modules, functions, mlx_modules, pipelines, tinygrad_modules, torch_modules

    recorder = Recorder()
    install_traceback()
    _model_files.install()
    functions.install(recorder)
    flax_modules.install(after_import, recorder)
    tinygrad_modules.install(after_import, recorder)
    after_import("torch.nn.modules.module", lambda module: torch_modules.patch(module, recorder))
    after_import("mlx.nn.layers.base", lambda module: mlx_modules.patch(module, recorder))
    after_import("diffusers.pipelines.pipeline_utils", lambda module: pipelines.patch(module, recorder))
    return recorder


def names_for(framework, recorder):
    return ModuleNames(framework, recorder.announce_aliases)


def loaded(module):
    return sys.modules.get(module)
