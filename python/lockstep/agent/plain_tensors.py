"""Tensors in the form their numbers are read in: dense, dequantised, a complex number as two. Imports nothing: a tensor
can only exist when its framework does."""

import sys


def type_of(module, name):
    """A class, if its module is loaded; else (), which nothing is an instance of."""
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None) if loaded is not None else None
    return kind if isinstance(kind, type) else ()


def dense_torch(tensor):
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor if tensor.layout == sys.modules["torch"].strided else tensor.to_dense()


def real_torch(tensor):
    """[...] → [..., 2] for complex numbers. What torch only marks as conjugated or negated is computed."""
    if tensor.is_complex():
        return sys.modules["torch"].view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def real_numpy(array):
    """[...] → [..., 2] for complex numbers."""
    if array.dtype.kind != "c":
        return array
    array = sys.modules["numpy"].ascontiguousarray(array)
    return array.view(array.real.dtype).reshape(array.shape + (2,))


def real_mlx(array):
    """[...] → [..., 2] for complex numbers."""
    mx = sys.modules["mlx.core"]
    return mx.stack([mx.real(array), mx.imag(array)], axis=-1) if array.dtype == mx.complex64 else array


def buffer_of_mlx(array):
    """What the buffer protocol can hand out, evaluated. It has no bfloat16: the same bits as integers."""
    mx = sys.modules["mlx.core"]
    if array.dtype == mx.bfloat16:
        # An array without axes cannot be viewed.
        array = array.reshape((1,)).view(mx.uint16).reshape(()) if array.ndim == 0 else array.view(mx.uint16)
    mx.eval(array)
    return array
