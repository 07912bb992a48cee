"""A tensor as numbers for a picture: its last two axes as rows and columns, or three colours where it has such an axis; the axes before them as
tiles. Every n-th value where there are more than a picture shows: nothing is averaged, so that a single bad value stays what it is."""

import sys

from . import tensors
from .arguments import Refused, integer, text

MOST_VALUES = 150_000  # as base64 they fit one message
MOST_TILES = 16


def _bytes(framework, value):
    """The values as little-endian float32, row major."""
    if framework == "torch":
        import ctypes

        torch = sys.modules["torch"]
        value = value.detach()
        if value.is_complex():
            value = value.abs()
        value = value.to(device="cpu", dtype=torch.float32).contiguous()
        return ctypes.string_at(value.data_ptr(), value.numel() * 4)
    if framework == "mlx":
        mx = sys.modules["mlx.core"]
        value = (mx.abs(value) if "complex" in str(value.dtype) else value).astype(mx.float32)
        value = value if value.ndim else value.reshape((1,))
        mx.eval(value)
        return bytes(memoryview(value))
    numpy = sys.modules["numpy"]
    value = numpy.abs(value) if value.dtype.kind == "c" else value
    return numpy.ascontiguousarray(value, dtype="<f4").tobytes()


def _layout(shape):
    """(axes of colour, rows and columns; the axes before them). An axis that there is none of is None."""
    count = len(shape)
    if count >= 3 and shape[-1] in (3, 4) and shape[-2] > 4:
        return (count - 1, count - 3, count - 2), tuple(range(count - 3))
    if count >= 3 and shape[-3] == 3:
        return (count - 3, count - 2, count - 1), tuple(range(count - 3))
    if count >= 2:
        return (None, count - 2, count - 1), tuple(range(count - 2))
    return (None, None, 0 if count else None), ()


def picture(agent, stop, args):
    from .inspection import _frame, _value_of

    frame, _ = _frame(stop, args)
    code, part = text(args, "expression", needed=True), text(args, "slice")
    if part:
        code = f"({code}\n)[{part.strip().strip('[]')}]"
    value = _value_of(agent, stop, code, frame)
    framework = tensors.framework_of(value)
    if framework not in ("torch", "mlx", "numpy"):
        raise Refused(
            "bad_request",
            f"a {type(value).__name__} is no tensor that can be shown",
            "expected a tensor of torch, MLX or NumPy",
        )
    shape = [int(size) for size in value.shape]
    if 0 in shape or (framework == "torch" and value.device.type == "meta"):
        raise Refused("bad_request", "the tensor holds no values")
    (colour, rows, columns), before = _layout(shape)
    tiles = 1
    for axis in before:
        tiles *= shape[axis]
    shown = min(tiles, integer(args, "tiles", MOST_TILES, 1, MOST_TILES))
    height, width = shape[rows] if rows is not None else 1, shape[columns] if columns is not None else 1
    channels = 3 if colour is not None else 1
    step = 1
    while -(-height // step) * -(-width // step) * channels * shown > MOST_VALUES:
        step += 1
    data = []
    for tile in range(shown):
        index = [slice(None)] * len(shape)
        for axis in reversed(before):
            index[axis] = tile % shape[axis]
            tile //= shape[axis]
        for axis in (rows, columns):
            if axis is not None:
                index[axis] = slice(None, None, step)
        for channel in range(channels):
            if colour is not None:
                index[colour] = channel
            data.append(_bytes(framework, value[tuple(index)] if index else value))
    import binascii

    return {
        "tiles": shown,
        "tiles_left_out": tiles - shown,
        "channels": channels,
        "height": -(-height // step),
        "width": -(-width // step),
        "step": step,
        "shape": shape,
        "dtype": tensors.brief(value, framework)["dtype"],
        "floats": binascii.b2a_base64(b"".join(data), newline=False).decode("ascii"),
    }
