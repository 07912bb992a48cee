"""Time and memory of a program by module and stage: started by sitecustomize for `lockstep profile`, written when the process ends."""

import functools
import json
import os
import re
import sys
import threading

from .agent.imports import after_import
from ._packed import opened
from .written_at_exit import WrittenAtExit

_EVALUATION = "lazy evaluation"
_METHODS = ("__call__", "encode_prompt", "prepare_latents", "check_inputs")
_PARTS = (("scheduler", "step"), ("vae", "decode"), ("vae", "encode"))


class Profiler(WrittenAtExit):
    """Stands where the recorder stands: the wrappers of torch and MLX modules hand it every call."""

    inputs = False
    operations = None
    pipeline = None
    step, tags = None, {}

    def __init__(self, native, folder, evaluate):
        super().__init__(folder, "the profile is not written")
        self.native, self.evaluate = native, evaluate
        self.started = native.profile_clock()
        self.memory = native.begin_profile()
        self._numbers = {}  # name → number
        self._local = threading.local()
        self._enter, self._leave = native.enter_call, native.leave_call
        self._evaluations = 0

    def stack(self):
        stack = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def announce_aliases(self, aliases):
        pass

    def is_traced(self):
        check = getattr(self, "traced", None)
        return check is not None and check()

    def number(self, name):
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers)
        return number

    def call(self, names, function, module, args, kwargs):
        stack = self.stack()
        border = False
        try:
            name = names.full_name_of(module, stack[-1] if stack else None)
            border = self._is_border(module, name)
        except Exception:  # a module that cannot be named is still timed
            name = type(module).__name__
        return self._timed(name, names.framework if border else None, function, (module, *args), kwargs, module)

    def call_function(self, function, args, kwargs, skip, with_inputs=True):
        return self._timed(function.__qualname__.replace("<locals>.", ""), None, function, args, kwargs)

    def _timed(self, name, framework, function, args, kwargs, module=None):
        stack = self.stack()
        if module is not None:
            stack.append(module)
        self._enter(self.number(name))
        try:
            output = function(*args, **kwargs)
            if framework == "mlx" and self.evaluate != "none":
                self._evaluate(output)
            elif framework == "torch":
                self._wait_for_device()
            return output
        finally:
            self._leave(False)
            if module is not None:
                stack.pop()

    def _is_border(self, module, name):
        """Where a stage ends: a whole model, or one of the blocks in its lists."""
        if self.evaluate == "modules":
            return True
        return not self.stack() or "." not in name or re.search(r"\.\d+$", name) is not None

    def _evaluate(self, output):
        found = []
        opened("", output, lambda _, tensor: found.append(tensor) or tensor)
        mlx = sys.modules.get("mlx.core")
        found = [one for one in found if isinstance(one, mlx.array)]
        if not found:
            return
        self._enter(self.number(_EVALUATION))
        try:
            self._evaluations += 1
            self.mlx_eval(*found)
        except Exception:  # inside mx.compile and mx.grad there is nothing to evaluate yet
            self._evaluations -= 1
        finally:
            self._leave(True)

    @staticmethod
    def _wait_for_device():
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def timed_method(self, name, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            return self._timed(name, None, original, args, kwargs)

        call._lockstep = True
        return call

    # What starts and ends it.

    def start(self):
        from .recorder import functions, mlx_modules, torch_modules

        functions.install(self)
        after_import("torch.nn.modules.module", lambda module: torch_modules.patch(module, self))
        after_import("mlx.nn.layers.base", lambda module: mlx_modules.patch(module, self))
        after_import("mlx.core", self._watch_mlx)
        after_import("diffusers.pipelines.pipeline_utils", self._watch_pipelines)
        self.watch_the_end()

    def _watch_mlx(self, mlx):
        self.mlx_eval = original = mlx.eval

        @functools.wraps(original)
        def evaluate(*args, **kwargs):
            self._enter(self.number(_EVALUATION))
            try:
                return original(*args, **kwargs)
            finally:
                self._leave(True)

        mlx.eval = evaluate

    def _watch_pipelines(self, module):
        from .recorder.pipelines import _name_components

        kind = module.DiffusionPipeline
        register = kind.register_modules
        kind.from_pretrained = classmethod(self.timed_method("from_pretrained", kind.from_pretrained.__func__))

        @functools.wraps(register)
        def register_modules(pipeline, **modules):
            result = register(pipeline, **modules)
            try:
                _name_components(pipeline, self, modules)
                self._wrap_pipeline(pipeline)
            except Exception as error:
                sys.stderr.write(f"lockstep: the pipeline's stages are not timed: {error}\n")
            return result

        kind.register_modules = register_modules

    def _wrap_pipeline(self, pipeline):
        cls = type(pipeline)
        for method in _METHODS:
            original = getattr(cls, method, None)
            if original is not None and not getattr(original, "_lockstep", False):
                setattr(cls, method, self.timed_method("pipeline" if method == "__call__" else method, original))
        for part, method in _PARTS:
            holder = type(getattr(pipeline, part, None))
            original = getattr(holder, method, None)
            if original is not None and not getattr(original, "_lockstep", False):
                setattr(holder, method, self.timed_method(f"{part}.{method}", original))

    def forget(self):
        self.started = self.native.profile_clock()
        self.native.forget_profile()

    def write_into(self, file):
        file.write(json.dumps(self._head(self.native.profile_clock())) + "\n")
        file.flush()
        left_out = self.native.write_profile(file.fileno())
        file.seek(0, os.SEEK_END)
        file.write(json.dumps({"left_out": left_out}) + "\n")

    def _head(self, ended):
        frameworks = [name for name in ("torch", "mlx", "jax", "tinygrad") if name in sys.modules]
        return {
            "schema": "lockstep-profile-1",
            "pid": os.getpid(),
            "program": sys.argv[:1],
            "frameworks": frameworks,
            "memory": self.memory,
            "begin_ns": self.started[0],
            "end_ns": ended[0],
            "cpu_ns": ended[1] - self.started[1],
            "evaluations": self._evaluations,
            "names": list(self._numbers),
        }


def start(folder, evaluate):
    from .agent import native

    native.load(os.environ.get("LOCKSTEP_AGENT_NATIVE"))
    if native.module is None:
        raise RuntimeError(native.reason)
    Profiler(native.module, folder, evaluate).start()
