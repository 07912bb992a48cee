"""How far tensors of two programs are apart: their values as float32, a digest of their bits, the difference, and what is rounding."""

import sys

from . import native, tensors
from .picture import _bytes
from .plain_tensors import buffer_of_mlx

FLOOR_FACTOR = 6.0  # as src/compare/noise_floor.h has it: an error this many floors high is no rounding
UNITS = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}


def unit_of(*dtypes):
    return max(UNITS.get(dtype, 2.0**-24) for dtype in dtypes)


def rounding_floor(unit, length):
    return 2 * unit + 0.5 * min(unit, 2.0**-24) * max(1, length) ** 0.5


def is_beyond(relative, floor, unit):
    return relative != relative or relative > FLOOR_FACTOR * floor or relative > max(1e-3, unit * 2e4)


def reduction(module, shape):
    """How many products a number of the output is the sum of, as far as the module's weight tells."""
    weight = getattr(module, "weight", None)
    sizes = getattr(weight, "shape", None)
    length = 1
    if sizes is not None and len(sizes) >= 2:
        for size in tuple(sizes)[1:]:
            length *= int(size)
        return length
    return int(shape[-1]) if shape else 1


def _laid_out(there, here):
    """Axes of the reference in the candidate's order, or None: the same, or channels at the other end."""
    if there == here:
        return tuple(range(len(there)))
    count = len(there)
    if count == len(here) and count in (3, 4, 5):
        for axes in ((0, *range(2, count), 1), (0, count - 1, *range(1, count - 1))):
            if [there[axis] for axis in axes] == here:
                return axes
    return None


def has_values(value, framework):
    return framework in ("mlx", "numpy") or (framework == "torch" and value.device.type != "meta")


def digest_of(value, framework):
    """The bits of a tensor in 128, as text that names how they were made; None where they cannot be read in place."""
    try:
        address, size, kept = _in_memory(value, framework)
    except Exception:  # a kind of tensor that has no memory of its own: its values are compared
        return None
    if native.module is not None:
        return "x" + native.module.digest(address, size).hex()
    import ctypes
    import hashlib

    return "b" + hashlib.blake2b(ctypes.string_at(address, size) if size else b"", digest_size=16).hexdigest()


def _in_memory(value, framework):
    """(address, bytes, what must live as long): row major, in the tensor's own dtype."""
    if framework == "torch":
        held = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        return held.data_ptr(), held.numel() * held.element_size(), held
    import numpy

    if framework == "mlx":
        value = buffer_of_mlx(value)
        value = numpy.asarray(memoryview(value if value.ndim else value.reshape((1,))))
    held = numpy.ascontiguousarray(value)
    return held.__array_interface__["data"][0], held.nbytes, held


def floats_of(value, framework):
    """The values as an array of float32, row major; not copied where they lie like that."""
    import numpy

    if framework == "torch" and not value.is_complex():
        try:
            return value.detach().to(device="cpu", dtype=sys.modules["torch"].float32).contiguous().numpy()
        except (RuntimeError, TypeError):  # a torch without NumPy, or a tensor that has no memory of its own
            pass
    if framework == "numpy" and value.dtype.kind != "c":
        return numpy.ascontiguousarray(value, dtype="<f4")
    return numpy.frombuffer(_bytes(framework, value), "<f4")


IDENTICAL = {"relative": 0.0, "max_abs": 0.0, "identical": True, "where": None}


def difference(theirs, their_shape, ours, our_shape):
    """{relative, max_abs, identical, where}, or None where the shapes cannot be laid over each other."""
    import numpy

    one, other = (
        numpy.frombuffer(values, "<f4").reshape(shape) for values, shape in ((theirs, their_shape), (ours, our_shape))
    )
    squeezed = [[size for size in shape if size != 1] for shape in (their_shape, our_shape)]
    axes = _laid_out(list(their_shape), list(our_shape))
    if axes is not None:
        one = one.transpose(axes)
    elif squeezed[0] == squeezed[1]:
        one = one.reshape(our_shape)
    else:
        return None
    sums = (_sums if native.module is None else _native_sums)(numpy, numpy.ascontiguousarray(one), other)
    identical, errors, squares, largest, at, not_finite = sums
    if identical:
        return dict(IDENTICAL)
    count = max(1, other.size)
    size, error = (squares / count) ** 0.5, (errors / count) ** 0.5
    if not_finite >= 0:
        relative, largest, at = float("nan"), float("inf"), not_finite
    else:
        relative = error / size if size else (0.0 if error == 0 else float("inf"))
    return {
        "relative": relative,
        "max_abs": largest,
        "identical": False,
        "where": [int(i) for i in numpy.unravel_index(max(0, at), other.shape)],
    }


def _native_sums(numpy, one, other):
    return native.module.apart(one.reshape(-1).view("u1"), other.reshape(-1).view("u1"))


def _sums(numpy, one, other):
    """What the extension's apart() gives, without it."""
    if numpy.array_equal(one.view("<u4"), other.view("<u4")):  # bit for bit: a NaN equals itself
        return True, 0.0, 0.0, 0.0, -1, -1
    with numpy.errstate(all="ignore"):
        apart = other - one
        apart[(other == one) | (numpy.isnan(other) & numpy.isnan(one))] = 0
        finite = numpy.isfinite(apart)
        not_finite = -1 if finite.all() else int(numpy.argmin(finite))
        apart[~finite] = 0
        squares = float(numpy.sum(numpy.square(numpy.where(numpy.isfinite(one), one, 0), dtype="f8")))
        errors = float(numpy.sum(numpy.square(apart, dtype="f8")))
        absolute = numpy.abs(apart)
    return False, errors, squares, float(absolute.max()), int(absolute.argmax()), not_finite


def restored(like, framework, data, shape):
    """The reference's values as a tensor like this one."""
    import numpy

    array = numpy.frombuffer(data, "<f4").reshape(shape)
    axes = _laid_out(list(shape), [int(size) for size in like.shape])
    array = numpy.ascontiguousarray(
        array.transpose(axes) if axes is not None else array.reshape([int(size) for size in like.shape])
    )
    if framework == "torch":
        return sys.modules["torch"].from_numpy(array.copy()).to(device=like.device, dtype=like.dtype)
    if framework == "mlx":
        return sys.modules["mlx.core"].array(array).astype(like.dtype)
    return array.astype(like.dtype)


def about(value, framework):
    known = tensors.brief(value, framework)
    return {"shape": known["shape"], "dtype": known["dtype"]}
