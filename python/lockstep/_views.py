"""Tensors of any framework as pointer, dtype, shape and strides, and back. Nothing is imported that the program has not
imported itself: a tensor can only exist when its framework does."""

import ctypes
import sys

from .agent.dtypes import BYTES, CODES, code_of, name_of
from .agent.plain_tensors import buffer_of_mlx, dense_torch, real_mlx, real_numpy, real_torch, type_of


class Unreadable(Exception):
    """A tensor without values to read: traced, on a device we cannot reach, or of an unknown dtype."""


class View:
    __slots__ = ("pointer", "dtype", "shape", "strides", "keep")

    def __init__(self, pointer, dtype, shape, strides, keep):
        self.pointer = pointer  # of the first element
        self.dtype = dtype  # a code of agent.dtypes
        self.shape = shape
        self.strides = strides  # in elements; None: contiguous
        self.keep = keep  # owns the memory


def _code(name):
    code = code_of(name)
    if code is None:
        raise Unreadable(f"dtype {name}")
    return code


def is_tensor(value):
    """Whether value is something whose numbers we record. Plain numbers, bytes and lists are not."""
    if isinstance(value, type_of("torch", "Tensor")) or isinstance(value, type_of("numpy", "ndarray")):
        return True
    if isinstance(value, type_of("mlx.core", "array")) or isinstance(value, type_of("numpy", "generic")):
        return True
    if isinstance(value, type_of("tinygrad.tensor", "Tensor")):
        return True
    return not isinstance(value, type) and hasattr(type(value), "__dlpack__")


def view_of(value):
    if isinstance(value, type_of("torch", "Tensor")):
        return _torch_view(value)
    if isinstance(value, type_of("numpy", "ndarray")):
        return _numpy_view(value)
    if isinstance(value, type_of("numpy", "generic")):
        return _numpy_view(sys.modules["numpy"].asarray(value))
    if isinstance(value, type_of("mlx.core", "array")):
        return _mlx_view(value)
    if isinstance(value, type_of("tinygrad.tensor", "Tensor")):
        return _tinygrad_view(value)
    if isinstance(value, bool):
        return _scalar_view(ctypes.c_bool(value), "bool")
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise Unreadable("an integer beyond 64 bits")
        return _scalar_view(ctypes.c_int64(value), "int64")
    if isinstance(value, float):
        return _scalar_view(ctypes.c_double(value), "float64")
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value)
    try:
        return _buffer_view(value)
    except TypeError:
        raise Unreadable(f"a {type(value).__name__} is no tensor") from None


def _scalar_view(number, dtype):
    return View(ctypes.addressof(number), CODES[dtype], (), None, number)


def _torch_view(tensor):
    tensor = dense_torch(tensor)
    if tensor.device.type == "meta":
        raise Unreadable("a meta tensor")
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = real_torch(tensor)
    dtype = _code(name_of(tensor.dtype))
    pointer = tensor.data_ptr()
    if pointer == 0 and tensor.numel() > 0:
        raise Unreadable("a tensor without memory")
    return View(pointer, dtype, tuple(tensor.shape), tensor.stride(), tensor)


def _numpy_view(array):
    array = real_numpy(array)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    dtype = _code(array.dtype.name)
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        array = sys.modules["numpy"].ascontiguousarray(array)
    strides = tuple(stride // size for stride in array.strides)
    return View(array.__array_interface__["data"][0], dtype, array.shape, strides, array)


def _mlx_view(array):
    array = real_mlx(array)
    dtype = _code(name_of(array.dtype))
    view = _buffer_view(buffer_of_mlx(array))
    view.dtype = dtype
    return view


def _tinygrad_view(tensor):
    dtypes = sys.modules["tinygrad.dtype"].dtypes
    if tensor.dtype != dtypes.bfloat16:
        return _numpy_view(tensor.numpy())
    view = _numpy_view(tensor.bitcast(dtypes.uint16).numpy())  # NumPy has no bfloat16: the same bits
    view.dtype = CODES["bfloat16"]
    return view


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


class _BufferOwner:
    """Holds an exported buffer until the view is done with."""

    def __init__(self, value):
        self.buffer = _PyBuffer()
        flags = 0x0010 | 0x0008 | 0x0004  # strides, shape, format
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
        get(value, ctypes.byref(self.buffer), flags)

    def __del__(self):
        if self.buffer.obj:
            release = ctypes.pythonapi.PyBuffer_Release
            release.argtypes = [ctypes.POINTER(_PyBuffer)]
            release(ctypes.byref(self.buffer))


_FORMATS = {"d": "float64", "f": "float32", "e": "float16", "?": "bool"}
_INTEGERS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def _buffer_view(value):
    try:
        owner = _BufferOwner(value)
    except BufferError as error:
        raise Unreadable(str(error)) from None
    buffer = owner.buffer
    form = (buffer.format or b"B").decode().lstrip("@=<")
    if form in _FORMATS:
        name = _FORMATS[form]
    elif len(form) == 1 and form in "bhilqn":
        name = _INTEGERS[buffer.itemsize]
    elif len(form) == 1 and form in "BHILQN":
        name = "u" + _INTEGERS[buffer.itemsize]
    else:
        raise Unreadable(f"buffer format {form!r}")
    shape = tuple(buffer.shape[axis] for axis in range(buffer.ndim))
    strides = None
    if buffer.strides:
        strides = tuple(buffer.strides[axis] for axis in range(buffer.ndim))
        if any(stride % buffer.itemsize for stride in strides):
            raise Unreadable("strides that are no multiple of the item size")
        strides = tuple(stride // buffer.itemsize for stride in strides)
    return View(buffer.buf, CODES[name], shape, strides, owner)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DLPACK_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}


def _dlpack_view(value):
    try:
        capsule = value.__dlpack__()
    except Exception as error:  # whatever the framework raises: a traced array, another device
        raise Unreadable(f"{type(value).__name__}: {error}") from None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.device_type not in (1, 3):  # CPU and pinned CPU memory
        raise Unreadable(f"device type {tensor.device_type}")
    kind = _DLPACK_CODES.get(tensor.code, f"DLPack code {tensor.code}")
    name = kind if kind.startswith("float8") or kind == "bool" else f"{kind}{tensor.bits}"
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    return View((tensor.data or 0) + tensor.byte_offset, _code(name), shape, strides, (capsule, value))


def restored(like, dtype, shape, data):
    """A tensor of the same framework, device and dtype as `like` from packed bytes."""
    if isinstance(like, type_of("torch", "Tensor")):
        return _torch_like(like, _torch_from(dtype, shape, data))
    if isinstance(like, type_of("mlx.core", "array")):
        mx = sys.modules["mlx.core"]
        values = _mlx_from(mx, dtype, shape, data)
        if like.dtype == mx.complex64 and values.dtype != mx.complex64:
            values = values[..., 0] + 1j * values[..., 1]  # [..., 2] → [...]
        return values if values.dtype == like.dtype else values.astype(like.dtype)
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise Unreadable(f"cannot make a {type(like).__name__} without NumPy")
    if isinstance(like, (numpy.ndarray, numpy.generic)):
        array = _numpy_like(numpy, like.dtype, dtype, shape, data)
        return array if isinstance(like, numpy.ndarray) else array[()]
    array = numpy_from(numpy, dtype, shape, data)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(like, jax.Array):
        return jax.numpy.asarray(array)
    if isinstance(like, (bool, int, float)):
        return type(like)(array.item())
    raise Unreadable(f"cannot make a {type(like).__name__}")


def made(framework, dtype, shape, data, device=None, as_dtype=None):
    """A tensor of a framework by its name; this one is imported if it has to be."""
    if framework == "torch":
        import torch

        as_dtype = getattr(torch, as_dtype) if isinstance(as_dtype, str) else as_dtype
        return _torch_from(dtype, shape, data).to(device=device, dtype=as_dtype)
    if framework == "mlx":
        import mlx.core as mx

        as_dtype = getattr(mx, as_dtype) if isinstance(as_dtype, str) else as_dtype
        values = _mlx_from(mx, dtype, shape, data)
        return values if as_dtype is None else values.astype(as_dtype)
    import numpy

    if as_dtype is None:
        return numpy_from(numpy, dtype, shape, data)
    return _numpy_like(numpy, numpy.dtype(as_dtype), dtype, shape, data)


def _torch_from(dtype, shape, data):
    torch = sys.modules["torch"]
    kind = getattr(torch, dtype)
    return (torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)).reshape(shape)


def _torch_like(like, values):
    torch = sys.modules["torch"]
    if like.is_quantized:  # values were recorded dequantised
        values = values.to(device=like.device, dtype=torch.float32)
        if like.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return torch.quantize_per_tensor(values, like.q_scale(), like.q_zero_point(), like.dtype)
        scales, zeros = like.q_per_channel_scales(), like.q_per_channel_zero_points()
        return torch.quantize_per_channel(values, scales, zeros, like.q_per_channel_axis(), like.dtype)
    if like.is_complex():
        values = torch.view_as_complex(values.contiguous())  # [..., 2] → [...]
    values = values.to(device=like.device, dtype=like.dtype)
    return values if like.layout == torch.strided else values.to_sparse(layout=like.layout)


def _mlx_from(mx, dtype, shape, data):
    if dtype == "bfloat16":
        return mx.array(memoryview(data).cast("H")).view(mx.bfloat16).reshape(shape)
    if dtype not in _CASTS:
        raise Unreadable(f"MLX has no {dtype}")
    return mx.array(memoryview(data).cast(_CASTS[dtype])).reshape(shape)


def _numpy_like(numpy, wanted, dtype, shape, data):
    array = numpy_from(numpy, dtype, shape, data)
    if wanted.kind == "c":
        array = (
            numpy.ascontiguousarray(array).view(f"c{2 * array.dtype.itemsize}").reshape(shape[:-1])
        )  # [..., 2] → [...]
    if array.dtype == wanted:
        return array
    if array.dtype.type is not numpy.void:
        return array.astype(wanted)
    if dtype == "bfloat16":  # without ml_dtypes: its bits are the upper half of a float32
        return (array.view("<u2").astype("<u4") << 16).view("<f4").astype(wanted)
    raise Unreadable(f"{dtype} as {wanted} needs ml_dtypes, which the program has not imported")


_CASTS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "bool": "?",
}


def numpy_from(numpy, dtype, shape, data):
    """bfloat16 and fp8 become ml_dtypes arrays where that package is loaded, else raw void types."""
    if dtype in _CASTS:
        return numpy.frombuffer(data, dtype=_CASTS[dtype]).reshape(shape)
    small = sys.modules.get("ml_dtypes")
    kind = numpy.dtype(getattr(small, dtype)) if small is not None else numpy.dtype(f"V{BYTES[CODES[dtype]]}")
    return numpy.frombuffer(data, dtype=kind).reshape(shape)
