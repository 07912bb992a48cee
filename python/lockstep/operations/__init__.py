"""Every operation inside one call of a module, with its values and its line: what `lockstep zoom` compares."""

import contextlib
import fnmatch
import os

from .. import _session
from . import numpy_border
from .fed_inputs import FedInputs, named
from .tape import Tape


class Operations:
    """Decides which calls are traced, and traces them. Off unless LOCKSTEP_OPERATIONS names a call.

    LOCKSTEP_OPERATIONS is a comma-separated list of globs of module names; LOCKSTEP_OPERATIONS_AT narrows them to one call,
    as "step:hit:pass" where each part may be empty. LOCKSTEP_OPERATIONS_FEED is a folder with inputs that the call is given in
    the place of its own.
    """

    def __init__(self):
        self._globs = [glob for glob in os.environ.get("LOCKSTEP_OPERATIONS", "").split(",") if glob]
        step, hit, pass_name = (os.environ.get("LOCKSTEP_OPERATIONS_AT", "").split(":") + ["", "", ""])[:3]
        self._step = int(step) if step else None
        self._hit = int(hit) if hit else None
        self._pass = pass_name or None
        self._feed = FedInputs.from_environment()
        self._tape = None
        self.uncompiled = False  # something of torch.compile's was met, and is run as it was written
        self._open = False  # a call is being traced: those inside it belong to it

    @property
    def wanted(self):
        return bool(self._globs)

    def wants(self, name, call):
        if self._open or call is None or not any(fnmatch.fnmatchcase(name, glob) for glob in self._globs):
            return False
        if self._step is not None and call.step != self._step:
            return False
        if self._hit is not None and call.hit != self._hit:
            return False
        return self._pass is None or (call.tags or {}).get("pass") == self._pass

    def run(self, name, call, framework, function, module, args, kwargs, parameters=()):
        """function(module, ...) with its operations on the tape. The call happens whatever becomes of the tape.

        `parameters`: names of its positional parameters.
        """
        args, kwargs = self._feed.given(args, kwargs, parameters)
        with contextlib.ExitStack() as scope:
            try:
                traced = self._begin(name, call, framework, module, args, kwargs, parameters, scope)
            except Exception as error:
                scope.close()
                traced = False
                _session.warn_once(("operations", type(error)), f"the operations of {name} are not recorded: {error}")
            self._open = traced
            try:
                output = function(module, *args, **kwargs)
            finally:
                self._open = False
        try:
            if traced:
                self._tape.end_call(output, self.uncompiled)
        except Exception as error:
            _session.warn_once(("operations", type(error)), f"the operations of {name} are not complete: {error}")
        return output

    def _begin(self, name, call, framework, module, args, kwargs, parameters, scope):
        session = _session.current()
        if session is None or not session.path:
            return False
        if framework == "torch":
            from . import torch_operations as frontend
        elif framework == "mlx":
            from . import mlx_operations as frontend
        elif framework == "flax":
            from . import jax_operations as frontend
        else:
            raise ValueError(f"operations of {framework} are not traced; expected torch, MLX or JAX")
        if self._tape is None:
            self._tape = Tape(session.path)
        self._tape.begin_call(name, call, framework, frontend.Values(), self._feed.taken)
        frontend.name_parameters(self._tape, module)
        for path, value in named(args, kwargs, parameters):
            self._tape.name_input(path, value)
        scope.enter_context(frontend.scope(self._tape))
        scope.enter_context(numpy_border.scope(self._tape))
        return True
