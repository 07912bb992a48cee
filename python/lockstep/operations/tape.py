"""The operations of traced calls on disk: operations.jsonl beside the run's records, values in operations.bin."""

import contextlib
import json
import os
import re
import sys

from .._packed import opened
from .._views import is_tensor
from .spool import Spool

MOST_OPERATIONS = 50_000
_MOST_FRAMES = 12
_MOST_TEXT = 200
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of an object: another one in every program
_budget = int(os.environ.get("LOCKSTEP_OPERATIONS_BUDGET", str(8 << 30)))
_package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


_MACHINERY = tuple(
    f"/{folder}/{name}/"
    for folder in ("site-packages", "dist-packages")
    for name in ("torch", "mlx", "jax", "jaxlib", "flax")
)


def is_machinery(filename):
    """Frames of the framework and of ours: a line of the program is what is looked for."""
    return filename.startswith((_package, "<frozen")) or any(part in filename for part in _MACHINERY)


def chain_of(frame):
    """[file, line, function] of the program's frames, the innermost first, up to the call that is traced.

    A module of the framework has no line of the program inside it: then it is the line that called it.
    """
    chain = []
    outside = False
    while frame is not None and len(chain) < _MOST_FRAMES:
        code = frame.f_code
        if code.co_name == "run" and code.co_filename == _scope_file:
            if chain:
                break
            outside = True
        if not is_machinery(code.co_filename):
            chain.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
            if outside:
                break
        frame = frame.f_back
    return chain


_scope_file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__init__.py")


class Tape:
    def __init__(self, folder):
        self._spool = Spool(os.path.join(folder, "operations.bin"), os.path.join(folder, "operations.jsonl"))
        self._next_value = 0
        self.values = None
        self.truncated = False
        self.paused = False  # what happens now is one operation, noted when it is over
        self._passed_on = []

    @contextlib.contextmanager
    def pause(self):
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    # A call

    def begin_call(self, name, call, framework, values, fed=(), glue=False):
        self.values = values  # the frontend's table: which value an array is now
        self._operations = 0
        self._passed_on = []
        self.truncated = False
        self._write({"call": name, "step": call.step, "hit": call.hit, "tags": call.tags or {}, "framework": framework,
                     **({"fed": list(fed)} if fed else {}), **({"glue": True} if glue else {})})  # fmt: skip

    def name_input(self, path, value):
        opened(path, value, lambda one, array: self.leaf(array, "input", one))

    def end_call(self, output, uncompiled=False):
        outputs = self._passed_on
        opened("", output, lambda path, array: (outputs.append([path.lstrip("."), self.value_of(array)]), array)[1])
        self._write(
            {
                "end": True,
                "outputs": outputs,
                "truncated": self.truncated,
                **({"uncompiled": True} if uncompiled else {}),
            }
        )
        self.values = None
        self._spool.flush()

    def passed_on(self, name, array):
        """A result of the call that it does not return; of one name, the later ones are numbered."""
        number = sum(path.partition(" #")[0] == name for path, _ in self._passed_on)
        self._passed_on.append([f"{name} #{number}" if number else name, self.value_of(array)])

    # Values

    def leaf(self, array, kind, name):
        if self.values.known(array) is None:
            self.values.remember(array, self._store(array, kind, name))
        return array

    def value_of(self, array):
        known = self.values.known(array)
        if known is None:
            known = self.values.found_by_content(array)
        if known is None:
            known = self._read_after_write(array)
        if known is None:
            known = self._store(array, "constant", None)
        self.values.remember(array, known)
        return known

    def _read_after_write(self, array):
        """A view whose memory was written through another one: a new value, made of both."""
        made_of = self.values.written_through(array)
        if made_of is None:
            return None
        number = self._store(array, "result", None)
        self._write({"op": "read", "inputs": [["input", made_of[0]], ["written", made_of[1]]], "arguments": {}, "outputs": [number],
                     "where": chain_of(sys._getframe(3))})  # fmt: skip
        return number

    def _store(self, array, kind, name):
        number = self._next_value
        self._next_value += 1
        line = {"value": number, "kind": kind, **({"name": name} if name else {})}
        try:
            line.update(self.values.store(array, self))
        except Exception as error:  # meta tensors, devices out of reach: the operation stays, its value does not
            line.update({"shape": [int(size) for size in array.shape], "unreadable": str(error)[:_MOST_TEXT]})
        self._write(line)
        self.values.stored(array, number)
        return number

    def append(self, pointer, size):
        """The offset at which these bytes now lie in operations.bin; None when the budget is spent."""
        start = self._spool.position
        if start + size > _budget:
            self.truncated = True
            return None
        self._spool.append(pointer, size)
        self._spool.pad(-size % 64)
        return start

    # Operations

    def operation(self, kind, names, args, kwargs, output, written=None, level=2):
        """One operation: the arrays that went in by parameter, other arguments in words, what came out.

        `written`: the array that the operation changed in place. `level`: how many frames up the program's own may begin.
        """
        if self.paused:
            return
        if self._operations >= MOST_OPERATIONS:
            self.truncated = True
            return
        inputs, arguments = [], {}
        for index, value in enumerate(args):
            self._argument(names[index] if index < len(names) else str(index), value, inputs, arguments)
        for key, value in kwargs.items():
            self._argument(key, value, inputs, arguments)
        outputs = []
        if written is not None:
            self.values.changed(written)
            outputs.append(self._made(written))
            self.values.wrote(written, outputs[0])
        else:
            arrays = []
            opened("", output, lambda path, array: (arrays.append(array), array)[1])
            outputs = [self._made(array) for array in arrays]
        if not outputs:
            return
        self._operations += 1
        self._write({"op": kind, "inputs": inputs, "arguments": arguments, "outputs": outputs, "where": chain_of(sys._getframe(level)),
                     **({"in_place": True} if written is not None else {})})  # fmt: skip

    def _made(self, array):
        number = self._store(array, "result", None)
        self.values.remember(array, number)
        return number

    def _argument(self, path, value, inputs, arguments):
        if is_tensor(value):
            inputs.append([path, self.value_of(value)])
        elif isinstance(value, (tuple, list)) and any(is_tensor(item) for item in value):
            for index, item in enumerate(value):
                self._argument(f"{path}.{index}", item, inputs, arguments)
        elif value is not None:
            arguments[path] = _plain(value)

    def _write(self, line):
        self._spool.line(json.dumps(line, separators=(",", ":"), allow_nan=True) + "\n")


def _plain(value):
    """An argument as JSON: numbers, words and lists of them as they are, everything else in its own words."""
    if isinstance(value, bool) or isinstance(value, str) or isinstance(value, int):
        return value if not isinstance(value, int) or abs(value) < 2**53 else repr(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, (tuple, list)) and len(value) <= 64:
        return [_plain(item) for item in value]
    if isinstance(value, slice):
        return ":".join("" if part is None else str(part) for part in (value.start, value.stop, value.step))
    if value is Ellipsis:
        return "..."
    if value is None:
        return "None"
    return _ADDRESS.sub("", repr(value))[:_MOST_TEXT]
