"""Every operation inside one call of a module, with its values and its line: what `lockstep zoom` compares."""

import contextlib
import fnmatch
import os
import sys

from .. import _session
from .._packed import opened
from .._views import is_tensor
from . import numpy_border
from .fed_inputs import FedInputs, named
from .tape import Tape


class Operations:
    """Decides which calls are traced, and traces them. Off unless LOCKSTEP_OPERATIONS names a call.

    LOCKSTEP_OPERATIONS is a comma-separated list of globs of module names; LOCKSTEP_OPERATIONS_AT narrows them to one call,
    as "step:hit:pass" where each part may be empty. LOCKSTEP_OPERATIONS_FEED is a folder with inputs that the call is given in
    the place of its own. With LOCKSTEP_OPERATIONS_END the program ends after the call: nothing that follows is looked at.
    """

    def __init__(self):
        self._globs = [glob for glob in os.environ.get("LOCKSTEP_OPERATIONS", "").split(",") if glob]
        step, hit, pass_name = (os.environ.get("LOCKSTEP_OPERATIONS_AT", "").split(":") + ["", "", ""])[:3]
        self._step = int(step) if step else None
        self._hit = int(hit) if hit else None
        self._pass = pass_name or None
        self._feed = FedInputs.from_environment()
        # One process of several would leave the others waiting.
        self._ends = os.environ.get("LOCKSTEP_OPERATIONS_END") == "1" and os.environ.get("WORLD_SIZE", "1") == "1"
        self._tape = None
        self.uncompiled = False  # something of torch.compile's was met, and is run as it was written
        self._open = False  # a call is being traced: those inside it belong to it
        self._glue = False  # and of it only its own code: each module that it calls is one operation

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

    @property
    def in_glue(self):
        """Whether a module that is called now is one operation of what is traced."""
        return self._glue and not self._tape.paused

    def run(self, name, call, framework, function, module, args, kwargs, parameters=(), glue=False):
        """function(module, ...) with its operations on the tape. The call happens whatever becomes of the tape.

        `parameters`: names of its positional parameters. `glue`: its own code alone, see `whole`; then what is offered as a
        stage is what comes out of it.
        """
        args, kwargs = self._feed.given(args, kwargs, parameters)
        with contextlib.ExitStack() as scope:
            try:
                traced = self._begin(name, call, framework, module, args, kwargs, parameters, scope, glue)
            except Exception as error:
                scope.close()
                traced = False
                _session.warn_once(("operations", type(error)), f"the operations of {name} are not recorded: {error}")
            self._open, self._glue = traced, traced and glue
            try:
                output = function(module, *args, **kwargs)
            finally:
                self._open = self._glue = False
        try:
            if traced:
                self._tape.end_call(None if glue else output, self.uncompiled)
        except Exception as error:
            _session.warn_once(("operations", type(error)), f"the operations of {name} are not complete: {error}")
        if traced and self._ends:
            self._end_program()
        return output

    def _end_program(self):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def whole(self, name, function, module, args, kwargs, parameters, step, tags):
        """A module that the traced code calls, as one operation: nothing inside it is seen."""
        tape = self._tape
        for path, value in named(args, kwargs, parameters):
            opened(f"{name}.{path}", value, lambda one, array: self._stage(one, array, step, tags))
        with tape.pause():
            output = function(module, *args, **kwargs)
        try:
            given = dict(named(args, kwargs, parameters))
            tape.operation(f"call {name}", (), (), given, output)
        except Exception as error:
            tape.truncated = True
            _session.warn_once(("operation", type(error)), f"a call of {name} is missing from the tape: {error}")
        return output

    def stage(self, name, value, step, tags):
        """A tensor that the traced code passes on: one of its results."""
        if self.in_glue and is_tensor(value):
            self._stage(name, value, step, tags)

    def _stage(self, name, value, step, tags):
        tags = tags or {}
        try:
            at = "" if step is None else f" @step {step}"
            self._tape.passed_on(f"{name}{at}{''.join(f' {key}={tags[key]}' for key in sorted(tags))}", value)
        except Exception as error:
            _session.warn_once(("operation", type(error)), f"{name} is missing from the tape: {error}")
        return value

    def _begin(self, name, call, framework, module, args, kwargs, parameters, scope, glue):
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
        self._tape.begin_call(name, call, framework, frontend.Values(), self._feed.taken, glue)
        if not glue:
            frontend.name_parameters(self._tape, module)
        for path, value in named(args, kwargs, parameters):
            self._tape.name_input(path, value)
        scope.enter_context(frontend.scope(self._tape))
        scope.enter_context(numpy_border.scope(self._tape))
        return True
