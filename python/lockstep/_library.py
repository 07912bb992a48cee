"""The capture library through ctypes: one place that knows its file and its structures."""

import ctypes

from .agent import library_files
from .agent.dtypes import BYTES, NAMES

ABI_VERSION = 1
OK, REPLACED, NOT_FOUND = 0, 1, -2

ROLES = {"checkpoint": 0, "output": 1, "input": 2, "variable": 3}


class LockstepError(RuntimeError):
    """A call into the capture library failed; the message says what and what to try."""


class NotFound(LockstepError, FileNotFoundError):
    """No tensor of that name is saved."""


class CView(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class CTag(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class CPlace(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("step", ctypes.c_int32),
        ("role", ctypes.c_int32),
        ("tags", ctypes.POINTER(CTag)),
        ("tag_count", ctypes.c_size_t),
        ("file", ctypes.c_char_p),
        ("line", ctypes.c_int32),
        ("function", ctypes.c_char_p),
    ]


class COptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("home", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("details_json", ctypes.c_char_p),
        ("tap", ctypes.c_char_p),
        ("no_tap", ctypes.c_char_p),
        ("steps", ctypes.c_char_p),
        ("full", ctypes.c_char_p),
        ("stats_only", ctypes.c_int32),
        ("no_record", ctypes.c_int32),
        ("budget_bytes", ctypes.c_uint64),
        ("buffer_bytes", ctypes.c_uint64),
        ("reference", ctypes.c_char_p),
        ("substitute", ctypes.c_char_p),
    ]


class CTotals(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int64),
        ("infinite", ctypes.c_int64),
        ("nan", ctypes.c_int64),
        ("sum", ctypes.c_double),
        ("absolute", ctypes.c_double),
        ("squares", ctypes.c_double),
        ("uniform", ctypes.c_int32),
        ("binary", ctypes.c_int32),
    ]


def _open():
    errors = []
    for candidate in (*library_files.library_places(), library_files.LIBRARY):  # the last: wherever the system has it
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            errors.append(str(error))
    raise LockstepError(
        f"[library] {library_files.LIBRARY} was not found; try LOCKSTEP_LIBRARY; tried: {'; '.join(errors)}"
    )


_handle = None


def library():
    """The loaded library; opened on first use, so that a program that records nothing loads nothing."""
    global _handle
    if _handle is not None:
        return _handle
    lib = _open()
    lib.lockstep_abi_version.restype = ctypes.c_int32
    if lib.lockstep_abi_version() != ABI_VERSION:
        raise LockstepError(
            f"[library] expected ABI {ABI_VERSION}, got {lib.lockstep_abi_version()}; try building again"
        )
    text, handle, status = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
        ("lockstep_version", text, []),
        ("lockstep_last_error", text, []),
        ("lockstep_open", status, [ctypes.POINTER(COptions), ctypes.POINTER(handle)]),
        ("lockstep_open_from_environment", status, [text, ctypes.POINTER(handle)]),
        ("lockstep_close", status, [handle, text]),
        ("lockstep_run_id", text, [handle]),
        ("lockstep_run_path", text, [handle]),
        ("lockstep_describe", status, [handle, text]),
        ("lockstep_flush", status, [handle]),
        ("lockstep_wants", ctypes.c_int32, [handle, text]),
        ("lockstep_warn_once", None, [handle, text, text]),
        (
            "lockstep_checkpoint_of_call",
            status,
            [handle, ctypes.POINTER(CPlace), ctypes.c_int32, ctypes.POINTER(CView), ctypes.POINTER(handle)],
        ),
        ("lockstep_weight", status, [handle, text, text, ctypes.POINTER(CView)]),
        ("lockstep_tensor_view", CView, [handle]),
        ("lockstep_tensor_free", None, [handle]),
        ("lockstep_save", status, [text, text, ctypes.POINTER(CView)]),
        ("lockstep_view_totals", status, [ctypes.POINTER(CView), ctypes.POINTER(CTotals)]),
        ("lockstep_load", status, [text, text, ctypes.POINTER(handle)]),
    ):
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    _handle = lib
    return lib


def encode(text):
    """Any Python string as bytes for C: lone surrogates and NULs must not stop a recording."""
    return str(text).encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")


def check(status):
    if status < 0:
        kind = NotFound if status == NOT_FOUND else LockstepError
        raise kind(library().lockstep_last_error().decode("utf-8", "replace"))
    return status


def c_view(view):
    """A CView and the objects that must stay alive while it is used."""
    rank = len(view.shape)
    shape = (ctypes.c_int64 * rank)(*view.shape)
    strides = (ctypes.c_int64 * rank)(*view.strides) if view.strides is not None else None
    pointer = ctypes.POINTER(ctypes.c_int64)
    return (
        CView(
            view.pointer,
            view.dtype,
            rank,
            ctypes.cast(shape, pointer),
            ctypes.cast(strides, pointer) if strides else None,
        ),
        (shape, strides, view.keep),
    )


def tensor_parts(handle):
    """dtype name, shape and a copy of the bytes of a library tensor; frees it."""
    lib = library()
    try:
        view = lib.lockstep_tensor_view(handle)
        shape = tuple(view.shape[axis] for axis in range(view.rank))
        count = 1
        for size in shape:
            count *= size
        data = bytearray(ctypes.string_at(view.data, count * BYTES[view.dtype])) if count else bytearray()
        return NAMES[view.dtype], shape, data
    finally:
        lib.lockstep_tensor_free(handle)
