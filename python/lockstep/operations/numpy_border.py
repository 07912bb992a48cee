"""NumPy inside a traced call: its functions as the program calls them by name, and the way back into the framework.

Operators and methods of arrays cannot be seen. What they make is a value without a producer, which is recognised by its numbers.
"""

import contextlib
import sys
import threading

from .kinds import described

# They make or read no value, or are called in passing for anything.
_NO_OPERATION = frozenset("errstate seterr geterr printoptions set_printoptions array_repr array_str array2string save savez savez_compressed load "
                          "savetxt loadtxt fromfile frombuffer dtype result_type can_cast promote_types min_scalar_type issubdtype isscalar "
                          "shape ndim size iterable may_share_memory shares_memory".split())  # fmt: skip


class _Wrapped:
    """A function or a ufunc in its place: called it leaves an operation, in all else it is the original."""

    def __init__(self, original, note):
        self.__wrapped__ = original
        self._note = note

    def __call__(self, *args, **kwargs):
        output = self.__wrapped__(*args, **kwargs)
        self._note(self.__wrapped__, args, kwargs, output, sys._getframe(1))
        return output

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __repr__(self):
        return repr(self.__wrapped__)


@contextlib.contextmanager
def scope(tape):
    """Watches NumPy for one call of this thread, where the program has imported it; puts everything back afterwards."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        yield
        return
    thread = threading.get_ident()
    undo, inside = [], []

    def note(original, args, kwargs, output, caller):
        if inside or tape.paused or threading.get_ident() != thread or _is_library(caller):
            return
        inside.append(True)
        try:
            kind, names, args, kwargs = described("numpy", original.__name__, args, kwargs)
            kwargs = {key: value for key, value in kwargs.items() if key not in ("out", "dtype", "casting")}
            tape.operation(kind, names, args, kwargs, output)
        except Exception as error:  # noqa: BLE001  the program goes on, the tape says that it is not whole
            tape.truncated = True
            from .. import _session

            _session.warn_once(("numpy", type(error)), f"an operation of NumPy is missing from the tape: {error}")
        finally:
            inside.pop()

    replaced = {}
    for name, original in list(vars(numpy).items()):
        if (
            callable(original)
            and not isinstance(original, type)
            and not name.startswith("_")
            and name not in _NO_OPERATION
        ):
            replaced[id(original)] = (original, _Wrapped(original, note))
    torch = sys.modules.get("torch")
    if torch is not None:  # the one constructor that torch's own mode does not see
        replaced[id(torch.from_numpy)] = (torch.from_numpy, _Wrapped(torch.from_numpy, note))
    try:
        for module_name, module in list(sys.modules.items()):
            names = getattr(module, "__dict__", None)
            if not isinstance(names, dict) or _is_part_of(module_name):
                continue
            for name, value in list(names.items()):
                entry = replaced.get(id(value))
                if entry is not None and entry[0] is value:
                    undo.append((names, name, value))
                    names[name] = entry[1]
        yield
    finally:
        for names, name, value in reversed(undo):
            names[name] = value


def _is_part_of(module_name):
    """NumPy's own modules call each other: only what the program looks up is watched."""
    first = module_name.partition(".")[0]
    return first in ("lockstep", "mlx", "jax", "jaxlib", "scipy") or module_name.startswith(("numpy.", "torch."))


def _is_library(frame):
    name = frame.f_globals.get("__name__") or ""
    return name.partition(".")[0] in ("numpy", "torch", "mlx", "jax", "lockstep", "scipy")
