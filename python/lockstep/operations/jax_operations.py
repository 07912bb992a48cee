"""Operations of JAX: every primitive that is bound while the call runs, with its arrays and the line that asked for it.

jax.jit is off while a program is recorded, so that primitives get arrays and not tracers.
"""

import contextlib
import sys
import threading

from ..agent.dtypes import NAMES
from .._views import view_of
from .sums import sums_of

# primitive → (kind, names of its operands)
_TWO = ("input", "other")
_KINDS = {
    "max": ("maximum", _TWO), "min": ("minimum", _TWO), "logistic": ("sigmoid", ("input",)), "not": ("logical_not", ("input",)),
    "convert_element_type": ("to", ("input",)), "copy_p": ("copy", ("input",)), "stop_gradient": ("copy", ("input",)), "rev": ("flip", ("input",)),
    "reduce_sum": ("sum", ("input",)), "reduce_max": ("amax", ("input",)), "reduce_min": ("amin", ("input",)), "slice": ("getitem", ("input",)),
    "dynamic_slice": ("getitem", ("input",)), "gather": ("getitem", ("input", "index")), "conv_general_dilated": ("conv", ("input", "weight")),
    "pow": ("pow", ("input", "exponent")),
}  # fmt: skip
_BINARY = frozenset("add sub mul div maximum minimum eq ne lt le gt ge and or xor rem atan2".split())
_UNTOLD = frozenset("sharding accuracy precision preferred_element_type out_sharding jvp_jaxpr_fun jvp_jaxpr_thunk fwd bwd jaxpr call_jaxpr weak_type "
                    "unique_indices indices_are_sorted mode fill_value out_trees new_dtype".split())  # fmt: skip


class Values:
    """Which value an array is. Arrays never change."""

    def __init__(self):
        self._known = {}
        self._numbers = {}  # id → (array, number): what the program wrote as a number

    def number(self, array):
        entry = self._numbers.get(id(array))
        return None if entry is None else entry[1]

    def is_number(self, array):
        self._numbers[id(array)] = (array, array.item())

    def known(self, array):
        entry = self._known.get(id(array))
        return None if entry is None else entry[1]

    def found_by_content(self, array):
        return None

    def remember(self, array, value):
        self._known[id(array)] = (array, value)

    def stored(self, array, value):
        pass

    def changed(self, array):
        self._known.pop(id(array), None)

    def wrote(self, array, value):
        pass

    def written_through(self, array):
        return None

    def store(self, array, tape):
        numpy = sys.modules["numpy"]
        held = numpy.asarray(array)
        view = view_of(held)
        packed = numpy.ascontiguousarray(view.keep)
        offset = tape.append(packed.__array_interface__["data"][0], packed.nbytes)
        line = {
            "dtype": NAMES[view.dtype],
            "shape": list(view.shape),
            **({"complex": True} if numpy.iscomplexobj(held) else {}),
            **sums_of(view),
        }
        return {**line, "offset": offset} if offset is not None else line


def name_parameters(tape, module):
    for name, array in _parameters(module):
        tape.leaf(array, "parameter", name)


def _parameters(module):
    """(path, array) of what a linen or an nnx module holds."""
    variables = getattr(module, "variables", None) if hasattr(module, "scope") else None
    if variables is not None:
        yield from _flattened("", variables.get("params", {}))
        return
    for key, value in vars(module).items():
        if not key.startswith("_"):
            yield from _flattened(key, value)


def _flattened(path, value, depth=0):
    if type(value).__module__.startswith("flax") and hasattr(value, "value") and not hasattr(value, "items"):
        value = value.value
    if hasattr(value, "__dlpack__"):
        yield path, value
        return
    if depth > 12:
        return
    if hasattr(value, "items"):
        inner = value.items()
    elif isinstance(value, (list, tuple)):
        inner = enumerate(value)
    elif type(value).__module__.startswith("flax") or any(
        base.__module__.startswith("flax") for base in type(value).__mro__
    ):
        inner = [(key, item) for key, item in vars(value).items() if not key.startswith("_")]
    else:
        return
    for key, item in inner:
        yield from _flattened(f"{path}.{key}" if path else str(key), item, depth + 1)


@contextlib.contextmanager
def scope(tape):
    core = sys.modules["jax._src.core"]
    jax = sys.modules["jax"]
    thread = threading.get_ident()
    depth = [0]  # of our own reading
    undo = []

    def wrapped(original):
        def bind(self, *args, **params):
            output = original(self, *args, **params)
            if depth[0] == 0 and threading.get_ident() == thread:
                depth[0] += 1
                try:
                    _note(tape, jax, self.name, args, params, output)
                except Exception as error:  # noqa: BLE001  the program goes on, the tape says that it is not whole
                    tape.truncated = True
                    from .. import _session

                    _session.warn_once(("operation", type(error)), f"an operation is missing from the tape: {error}")
                finally:
                    depth[0] -= 1
            return output

        return bind

    try:
        pending = [core.Primitive]
        while pending:
            kind = pending.pop()
            pending += kind.__subclasses__()
            if "bind" in vars(kind):
                undo.append((kind, vars(kind)["bind"]))
                kind.bind = wrapped(vars(kind)["bind"])
        yield
    finally:
        for kind, original in reversed(undo):
            kind.bind = original


def _is_array(jax, value):
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def _note(tape, jax, name, args, params, output):
    outputs = list(output) if isinstance(output, (list, tuple)) else [output]
    outputs = [one for one in outputs if _is_array(jax, one)]
    # A primitive that calls others returns what these have made: they are on the tape already.
    if not outputs or all(tape.values.known(one) is not None for one in outputs):
        return
    args = [_plain_scalar(tape, one) for one in args]
    if (
        len(outputs) == 1
        and outputs[0].ndim == 0
        and outputs[0].dtype.kind in "fiub"
        and args
        and all(map(_is_plain, args))
    ):
        tape.values.is_number(outputs[0])  # put on the device, or into another dtype
        return
    kind, names, args, arguments = _described(tape, name, args, params, outputs)
    tape.operation(kind, names, args, arguments, outputs if len(outputs) > 1 else outputs[0], level=4)


def _plain_scalar(tape, value):
    """A number that the program wrote is an array without axes here; it is told as the number it was."""
    if getattr(value, "ndim", None) != 0 or value.dtype.kind not in "fiub" or tape.values.known(value) is not None:
        return value
    number = tape.values.number(value)
    return value.item() if number is None else number


def _described(tape, name, args, params, outputs):
    kind, names = _KINDS.get(name, (name, _TWO if len(args) == 2 else ("input",)))
    told = {key: value for key, value in params.items() if key not in _UNTOLD and _is_plain(value)}
    if name == "integer_pow":
        return "pow", ("input",), args, {"exponent": params["y"]}
    if name == "square":
        return "square", ("input",), args, {}
    if name in ("reduce_sum", "reduce_max", "reduce_min"):
        return kind, names, args, {"dim": [int(axis) for axis in params["axes"]], "keepdim": False}
    if name == "transpose":
        return "permute", ("input",), args, {"dims": [int(axis) for axis in params["permutation"]]}
    if name in ("reshape", "squeeze", "expand_dims"):
        return "reshape", ("input",), args[:1], {"shape": [int(size) for size in outputs[0].shape]}
    if name == "broadcast_in_dim":
        shape = [int(size) for size in outputs[0].shape]
        given = args[0]
        if getattr(given, "size", 1) == outputs[0].size:
            return "reshape", ("input",), args[:1], {"shape": shape}
        rank = getattr(given, "ndim", 0)
        trailing = list(params["broadcast_dimensions"]) == list(range(len(shape) - rank, len(shape)))
        return ("expand" if trailing else name), ("input",), args[:1], {"shape": shape}
    if name == "concatenate":
        return "concatenate", ("tensors",), [list(args)], {"dim": int(params["dimension"])}
    if name == "select_n" and len(args) == 3:
        return "where", ("condition", "input", "other"), [args[0], args[2], args[1]], {}
    if name == "clamp":
        return "clamp", ("min", "input", "max"), args, {}
    if name == "dot_general":
        return _product(args, params)
    if name in ("cumsum", "cumprod", "cummax"):
        return name, ("input",), args, {"dim": int(params["axis"])}
    return kind, names, args, told


def _is_plain(value):
    if isinstance(value, (bool, int, float, str)):
        return True
    return isinstance(value, (tuple, list)) and all(isinstance(item, (bool, int, float, str)) for item in value)


def _product(args, params):
    """A product of matrices where the axes lie as one has them; else the sum over letters that it is."""
    (left_sum, right_sum), (left_batch, right_batch) = params["dimension_numbers"]
    left, right = args
    batch = len(left_batch)
    in_front = tuple(left_batch) == tuple(right_batch) == tuple(range(batch))
    one_sum = len(left_sum) == len(right_sum) == 1 and left_sum[0] == left.ndim - 1
    if (
        in_front
        and one_sum
        and right_sum[0] == batch
        and right.ndim == batch + 2
        and (left.ndim == right.ndim or batch == 0)
        and left.ndim >= 2
    ):
        return "matmul", _TWO, args, {}
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_left = [next(letters) for _ in range(left.ndim)]
    of_right = [None] * right.ndim
    for mine, theirs in (*zip(left_sum, right_sum), *zip(left_batch, right_batch)):
        of_right[theirs] = of_left[mine]
    of_right = [letter or next(letters) for letter in of_right]
    out = [of_left[axis] for axis in left_batch]
    out += [letter for axis, letter in enumerate(of_left) if axis not in left_batch and axis not in left_sum]
    out += [letter for axis, letter in enumerate(of_right) if axis not in right_batch and axis not in right_sum]
    return "einsum", _TWO, args, {"equation": f"{''.join(of_left)},{''.join(of_right)}->{''.join(out)}"}
