"""Operations of MLX. It has no dispatch mode: its functions and its arrays' methods are wrapped for one call, then put back."""

import contextlib
import sys

from ..agent.dtypes import BYTES, NAMES
from .._views import view_of
from .kinds import described
from .sums import sums_of

_NO_OPERATION = frozenset("eval async_eval save savez save_safetensors load compile disable_compile enable_compile grad value_and_grad vmap "
                          "checkpoint custom_function export_function import_function synchronize".split())  # fmt: skip
_METHODS_LEFT = frozenset("__init__ __new__ __repr__ __str__ __len__ __bool__ __int__ __float__ __hash__ __array__ __dlpack__ __dlpack_device__ "
                          "__class__ __getattribute__ __setattr__ __delattr__ __format__ __reduce__ __reduce_ex__ __getstate__ __setstate__ "
                          "__copy__ __deepcopy__ __init_subclass__ __subclasshook__ __dir__ __sizeof__ __doc__ __index__ __array_namespace__ "
                          "__buffer__ __release_buffer__ item tolist".split())  # fmt: skip


class Values:
    """Which value an array is now. Arrays are values: only += and indexed assignment give an object another one."""

    def __init__(self):
        self._known = {}
        self._by_content = {}

    def known(self, array):
        entry = self._known.get(id(array))
        return None if entry is None else entry[1]

    def found_by_content(self, array):
        """What a compiled function returns is a new object: the same numbers are the same value."""
        return self._by_content.get(_fingerprint(array))

    def remember(self, array, value):
        self._known[id(array)] = (array, value)

    def stored(self, array, value):
        self._by_content.setdefault(_fingerprint(array), value)

    def changed(self, array):
        self._known.pop(id(array), None)

    def wrote(self, array, value):
        pass

    def written_through(self, array):
        return None

    def store(self, array, tape):
        import mlx.core as mx

        if not isinstance(array, mx.array):  # NumPy's, at the border
            from .torch_operations import store_packed

            return store_packed(view_of(array), array, tape)
        view = view_of(array)
        if view.strides is not None and tuple(view.strides) != _packed_strides(view.shape):
            view = view_of(mx.contiguous(array))
        size = BYTES[view.dtype]
        for extent in view.shape:
            size *= extent
        offset = tape.append(view.pointer, size)
        line = {
            "dtype": NAMES[view.dtype],
            "shape": list(view.shape),
            **({"complex": True} if array.dtype == mx.complex64 else {}),
            **sums_of(view),
        }
        return {**line, "offset": offset} if offset is not None else line


def _packed_strides(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _fingerprint(array):
    import ctypes

    view = view_of(array)
    if view.strides is not None and tuple(view.strides) != _packed_strides(view.shape):
        return id(array)
    size = BYTES[view.dtype]
    for extent in view.shape:
        size *= extent
    return (view.dtype, view.shape, hash(ctypes.string_at(view.pointer, size)))


def name_parameters(tape, module):
    from mlx.utils import tree_flatten

    for name, array in tree_flatten(module.parameters()):
        tape.leaf(array, "parameter", name)


@contextlib.contextmanager
def scope(tape):
    import mlx.core as mx

    undo = []
    state = {"inside": False}

    def wrapped(name, original, method):
        def traced(*args, **kwargs):
            if state["inside"]:
                return original(*args, **kwargs)
            state["inside"] = True
            try:
                output = original(*args, **kwargs)
                if output is not NotImplemented:
                    _note(tape, name, args, kwargs, output, method)
            finally:
                state["inside"] = False
            return output

        return traced

    def replace(owner, name, new):
        old = vars(owner)[name]
        undo.append((owner, name, old))
        setattr(owner, name, new)

    def install():
        replaced = {}
        for module in (mx, *(getattr(mx, part, None) for part in ("fast", "linalg", "random", "fft"))):
            for name, original in list(vars(module).items()) if module is not None else ():
                if (
                    callable(original)
                    and not isinstance(original, type)
                    and not name.startswith("_")
                    and name not in _NO_OPERATION
                ):
                    replaced[id(original)] = (original, wrapped(name, original, False))
                    replace(module, name, replaced[id(original)][1])
        for name, original in list(vars(mx.array).items()):
            if name in _METHODS_LEFT or name == "__iter__":
                continue
            if callable(original):
                replace(mx.array, name, wrapped(name, original, True))
            elif isinstance(original, property) and name in ("T", "real", "imag"):
                replace(mx.array, name, property(wrapped(name, original.fget, True)))
        if "__iter__" in vars(mx.array):
            replace(mx.array, "__iter__", lambda self: (self[index] for index in range(self.shape[0])))
        _rebind(replaced, undo)

    mx.disable_compile()
    try:
        install()
        yield
    finally:
        for owner, name, old in reversed(undo):
            if isinstance(owner, dict):
                owner[name] = old
            else:
                setattr(owner, name, old)
        mx.enable_compile()


def _rebind(replaced, undo):
    """Functions that a module of the program has imported by name."""
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.startswith(("mlx.core", "lockstep")) or module_name == "mlx":
            continue
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for name, value in list(names.items()):
            entry = replaced.get(id(value))
            if entry is not None and entry[0] is value:
                undo.append((names, name, value))
                names[name] = entry[1]


def _note(tape, name, args, kwargs, output, method):
    import mlx.core as mx

    try:
        written = None
        if (
            method
            and args
            and isinstance(args[0], mx.array)
            and (name == "__setitem__" or (name.startswith("__i") and name != "__invert__"))
        ):
            written = args[0]
        kind, names, args, kwargs = described("mlx", name, args, kwargs)
        tape.operation(kind, names, args, kwargs, output, written)
    except Exception as error:
        tape.truncated = True
        from .. import _session

        _session.warn_once(("operation", type(error)), f"an operation is missing from the tape: {error}")
