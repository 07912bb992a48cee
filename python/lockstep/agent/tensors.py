"""What the debugger says of a tensor. repr is never called on one, and nothing is imported."""

import os
import sys

from . import dtypes, library_files, native
from .plain_tensors import buffer_of_mlx, dense_torch, real_mlx, real_numpy, real_torch, type_of

MOST_VALUES = 100  # shown in full
EDGE = 10  # values from each end
_COMPLEX = "complex: numbers are real and imaginary parts"


def framework_of(value):
    """ "torch", "numpy", "mlx", "dlpack", or None for what is no tensor."""
    cls = type(value)
    for framework, module, name in (
        ("torch", "torch", "Tensor"),
        ("numpy", "numpy", "ndarray"),
        ("mlx", "mlx.core", "array"),
    ):
        if issubclass(cls, type_of(module, name)):
            return framework
    return "dlpack" if hasattr(cls, "__dlpack__") and hasattr(cls, "shape") and not isinstance(value, type) else None


def brief(value, framework):
    """Shape, dtype, device: nothing is computed, so that a lazy array stays lazy."""
    shape = [int(size) if type(size) is not int else size for size in value.shape]
    count = 1
    for size in shape:
        count *= size
    about = {"framework": framework, "shape": shape, "dtype": dtypes.name_of(value.dtype), "count": count}
    if framework == "torch":
        about["device"] = str(value.device)
        about["requires_grad"] = bool(value.requires_grad)
        if value.device.type == "meta":
            about["note"] = "meta tensor: no values"
    elif framework == "mlx":
        about["device"] = "mlx"
    else:
        about["device"] = str(getattr(value, "device", "cpu"))
    return about


def statistics(value, framework):
    """Only the statistics; None when there are none."""
    return full(value, framework, edges=False).get("stats")


def full(value, framework, edges=True):
    """brief() with strides, statistics and edges. MLX arrays are evaluated first."""
    about = brief(value, framework)
    if not edges:
        about["values"] = None
    try:
        if framework == "torch":
            _fill_torch(about, value)
        elif framework == "mlx":
            _fill_mlx(about, value)
        elif framework == "numpy":
            _fill_numpy(about, value)
        else:
            about["note"] = "no values are read from this kind of array"
    except Exception as error:
        about["note"] = f"no values: {type(error).__name__}: {error}"[:300]
    return about


_library = None


def _statistics_ready():
    global _library
    if _library is None:
        places = library_files.library_places() if native.module is not None else []
        _library = any(os.path.exists(path) and native.module.load_statistics(path) for path in places)
    return _library


def _fill_torch(about, tensor):
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        about["note"] = f"layout {tensor.layout}: statistics of the dense form"
    tensor = dense_torch(tensor)
    if tensor.device.type == "meta":
        return
    about["strides"] = list(tensor.stride())
    about["contiguous"] = tensor.is_contiguous()
    if tensor.is_complex():
        about["note"] = _COMPLEX
    tensor = real_torch(tensor)
    _put_edges(about, tensor, _torch_number, list(tensor.shape))
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.numel() == 0:
        return
    code = dtypes.code_of(dtypes.name_of(tensor.dtype))
    if code is not None and _statistics_ready():
        about["stats"] = native.module.statistics(tensor.data_ptr(), code, tuple(tensor.shape), tuple(tensor.stride()))
    if about.get("stats") is None:
        about["stats"] = _torch_statistics(torch, tensor)


def _torch_number(value):
    value = value.item()
    return value


def _torch_statistics(torch, tensor):
    values = tensor.to(torch.float64)
    finite = values[torch.isfinite(values)]
    nan, inf = int(torch.isnan(values).sum()), int(torch.isinf(values).sum())
    if finite.numel() == 0:
        return _no_finite(nan, inf)
    return {
        "min": float(finite.min()),
        "max": float(finite.max()),
        "mean": float(finite.mean()),
        "std": float(finite.std(unbiased=False)),
        "rms": float(finite.square().mean().sqrt()),
        "absmax": float(finite.abs().max()),
        "nan": nan,
        "inf": inf,
        "zero": int((finite == 0).sum()),
    }


def _no_finite(nan, inf):
    none = float("nan")
    return {
        "min": none,
        "max": none,
        "mean": none,
        "std": none,
        "rms": none,
        "absmax": none,
        "nan": nan,
        "inf": inf,
        "zero": 0,
    }


def _fill_numpy(about, array):
    numpy = sys.modules["numpy"]
    about["contiguous"] = bool(array.flags.c_contiguous)
    if array.dtype.kind == "c":
        about["note"] = _COMPLEX
    array = real_numpy(array)
    size = array.dtype.itemsize
    about["strides"] = [stride // size if size else 0 for stride in array.strides]
    _put_edges(about, array, lambda value: value.item() if hasattr(value, "item") else value, list(array.shape))
    if array.size == 0:
        return
    code = dtypes.code_of(array.dtype.name)
    plain = array.dtype.isnative and not any(stride % size for stride in array.strides)
    if code is not None and plain and _statistics_ready():
        about["stats"] = native.module.statistics(
            array.__array_interface__["data"][0],
            code,
            tuple(array.shape),
            tuple(stride // size for stride in array.strides),
        )
    if about.get("stats") is None and array.dtype.kind in "fiub":
        values = array.astype("float64")
        finite = values[numpy.isfinite(values)]
        nan, inf = int(numpy.isnan(values).sum()), int(numpy.isinf(values).sum())
        if finite.size == 0:
            about["stats"] = _no_finite(nan, inf)
        else:
            about["stats"] = {
                "min": float(finite.min()),
                "max": float(finite.max()),
                "mean": float(finite.mean()),
                "std": float(finite.std()),
                "rms": float(numpy.sqrt((finite**2).mean())),
                "absmax": float(abs(finite).max()),
                "nan": nan,
                "inf": inf,
                "zero": int((finite == 0).sum()),
            }


def _fill_mlx(about, array):
    mx = sys.modules["mlx.core"]
    mx.eval(array)
    if about["dtype"] == "complex64":
        about["note"] = _COMPLEX
    array = real_mlx(array)
    _put_edges(about, array, lambda value: value.item(), list(array.shape))
    if array.size == 0:
        return
    code = dtypes.code_of(dtypes.name_of(array.dtype))
    if code is not None and _statistics_ready():
        about["stats"] = native.module.buffer_statistics(buffer_of_mlx(array), code)
    if about.get("stats") is None:
        values = array.astype(mx.float32)
        good = mx.isfinite(values)
        nan, inf, many = int(mx.isnan(values).sum()), int(mx.isinf(values).sum()), int(good.sum())
        if many == 0:
            about["stats"] = _no_finite(nan, inf)
            return
        low, high = float(mx.where(good, values, mx.inf).min()), float(mx.where(good, values, -mx.inf).max())
        kept = mx.where(good, values, 0.0)
        mean = float(kept.sum()) / many
        rms = (float((kept * kept).sum()) / many) ** 0.5
        about["stats"] = {
            "min": low,
            "max": high,
            "mean": mean,
            "std": max(rms * rms - mean * mean, 0.0) ** 0.5,
            "rms": rms,
            "absmax": max(abs(low), abs(high)),
            "nan": nan,
            "inf": inf,
        }


def _put_edges(about, tensor, number, shape):
    """Values by plain indexing: 20 numbers cost the same whatever the size and the strides."""
    if "values" in about:
        return
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        about["values"] = []
        return
    if not shape:
        about["values"] = [number(tensor)]
        return

    def at(flat):
        index = []
        for size in reversed(shape):
            index.append(flat % size)
            flat //= size
        return number(tensor[tuple(reversed(index))])

    if count <= MOST_VALUES:
        about["values"] = [at(flat) for flat in range(count)]
        return
    about["first"] = [at(flat) for flat in range(EDGE)]
    about["last"] = [at(flat) for flat in range(count - EDGE, count)]
    edges = {}
    for axis, size in enumerate(shape[:6]):
        take = min(3, size)

        def along(position, axis=axis):
            index = [0] * len(shape)
            index[axis] = position
            return number(tensor[tuple(index)])

        edges[f"axis{axis}"] = {
            "first": [along(i) for i in range(take)],
            "last": [along(i) for i in range(size - take, size)],
        }
    about["edges"] = edges
