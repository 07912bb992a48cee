"""Operations of torch, seen by a TorchFunctionMode: at the level of the program's own calls, with their arguments."""

import contextlib
import sys

from ..agent.dtypes import BYTES, NAMES
from .._views import view_of
from .kinds import described
from .sums import sums_of

_READS = frozenset("size dim stride numel is_contiguous element_size storage_offset item tolist data_ptr is_floating_point is_complex "
                   "nelement ndimension get_device requires_grad_ is_conj is_neg untyped_storage _version".split())  # fmt: skip


class Values:
    """Which value a tensor is now, and where in operations.bin its memory lies."""

    def __init__(self):
        self._known = {}  # id → (tensor, value, generation of its memory); the reference keeps the id from being used again
        self._memory = {}  # address of a storage → [offset in the file, generation]
        self._sums_of_memory = {}  # address of a storage → (generation, dtype, its sums)
        self._last_write = {}  # address of a storage → the value that the last write left

    @staticmethod
    def _address(tensor):
        try:
            return tensor.untyped_storage().data_ptr()
        except Exception:  # sparse, meta, functional tensors
            return id(tensor)

    def known(self, tensor):
        entry = self._known.get(id(tensor))
        if entry is None:
            return None
        memory = self._memory.get(self._address(tensor))
        return entry[1] if memory is None or entry[2] == memory[1] else None

    def found_by_content(self, tensor):
        return None

    def written_through(self, tensor):
        """(the value it was, the value that was written) where another view of its memory was written since; else None."""
        entry = self._known.get(id(tensor))
        writer = self._last_write.get(self._address(tensor))
        return (entry[1], writer) if entry is not None and writer is not None and self.known(tensor) is None else None

    def remember(self, tensor, value):
        memory = self._memory.get(self._address(tensor))
        self._known[id(tensor)] = (tensor, value, memory[1] if memory else 0)

    def stored(self, tensor, value):
        pass

    def changed(self, tensor):
        """Written in place: every view of this memory is another value from now on."""
        memory = self._memory.setdefault(self._address(tensor), [None, 0])
        memory[0] = None
        memory[1] += 1

    def wrote(self, tensor, value):
        self._last_write[self._address(tensor)] = value

    def _sums(self, view, kept, storage, own):
        """A view of all elements of a memory has their sums, however it turns them. A copy's memory (not `own`) is gone soon."""
        if not own or kept.numel() * kept.element_size() != storage.nbytes() or 0 in kept.stride():
            return sums_of(view)
        address = storage.data_ptr()
        generation = self._memory.get(address, [None, 0])[1]
        known = self._sums_of_memory.get(address)
        if known is None or known[:2] != (generation, view.dtype):
            known = self._sums_of_memory[address] = (generation, view.dtype, sums_of(view))
        return known[2]

    def store(self, tensor, tape):
        view = view_of(tensor)
        if not isinstance(tensor, sys.modules["torch"].Tensor):  # NumPy's, at the border
            return store_packed(view, tensor, tape)
        kept = view.keep  # on the CPU, real, not negated: what the view points into
        size = BYTES[view.dtype]
        storage = kept.untyped_storage()
        line = {
            "dtype": NAMES[view.dtype],
            "shape": list(view.shape),
            **({"complex": True} if tensor.is_complex() else {}),
        }
        line.update(self._sums(view, kept, storage, storage.data_ptr() == self._address(tensor)))
        whole = storage.nbytes() <= 4 * size * max(kept.numel(), 1)
        if storage.data_ptr() == self._address(tensor) and (
            whole or self._memory.get(storage.data_ptr(), [None])[0] is not None
        ):
            memory = self._memory.setdefault(storage.data_ptr(), [None, 0])
            if memory[0] is None:
                memory[0] = tape.append(storage.data_ptr(), storage.nbytes())
            if memory[0] is not None:
                return {**line, "strides": list(view.strides), "offset": memory[0] + view.pointer - storage.data_ptr()}
            return line
        packed = kept.contiguous()
        offset = tape.append(packed.data_ptr(), size * packed.numel())
        return {**line, "offset": offset} if offset is not None else line


def store_packed(view, array, tape):
    """An array of NumPy, whole."""
    numpy = sys.modules["numpy"]
    packed = numpy.ascontiguousarray(view.keep)
    offset = tape.append(packed.__array_interface__["data"][0], packed.nbytes)
    line = {
        "dtype": NAMES[view.dtype],
        "shape": list(view.shape),
        **({"complex": True} if numpy.iscomplexobj(array) else {}),
        **sums_of(view),
    }
    return {**line, "offset": offset} if offset is not None else line


def name_parameters(tape, module):
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        tape.values.remember(tensor, tape._store(tensor, "parameter", name))


@contextlib.contextmanager
def scope(tape):
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            output = function(*args, **kwargs)
            if tape.paused:
                return output
            if (sys._getframe(1).f_globals.get("__name__") or "").startswith(
                "lockstep."
            ):  # reading what is recorded is no operation
                return output
            try:
                _note(tape, function, args, kwargs, output)
            except Exception as error:
                tape.truncated = True
                from .. import _session

                _session.warn_once(("operation", type(error)), f"an operation is missing from the tape: {error}")
            return output

    with Mode():
        yield


def _note(tape, function, args, kwargs, output):
    name = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", "")
        if name not in ("T", "mT", "real", "imag", "H", "mH"):
            return
    if name in _READS or name == "__set__":
        return
    tensor = sys.modules["torch"].Tensor
    written = None
    if name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")):
        written = args[0]
    elif name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], tensor):
        written = args[0]
    elif isinstance(kwargs.get("out"), tensor):
        written = kwargs["out"]
        kwargs = {key: value for key, value in kwargs.items() if key != "out"}
    kind, names, args, kwargs = described(
        "torch", name.rstrip("_") if written is not None and not name.startswith("__") else name, args, kwargs
    )
    tape.operation(kind, names, args, kwargs, output, written)
