"""DLPack with live torch and NumPy on the other side: they read what we export, we read what they do, and every tensor
is let go of exactly once."""

import ctypes
import itertools
import pathlib
import sys

import numpy as np
import pytest
import torch
from program import PROGRAM

BRIDGE = pathlib.Path(PROGRAM).parent.parent / "lib" / "dlpack_bridge.so"

TORCH = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "i16": torch.int16,
    "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "bool": torch.bool,
}  # fmt: skip
NUMPY = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip
VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.transpose(2, 1, 0),
    "sliced": lambda x: x[:, 1:3, 1:4:2],
    "broadcast": lambda x: np.broadcast_to(x[1:2], (5, 3, 4)),
    "scalar": lambda x: x.reshape(-1)[1],
    "empty": lambda x: np.zeros((3, 0, 2)),
}

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
NAMES = {0: b"dltensor", 1: b"dltensor_versioned"}
USED = {0: b"used_dltensor", 1: b"used_dltensor_versioned"}


@pytest.fixture(scope="module")
def bridge():
    library = ctypes.CDLL(str(BRIDGE))
    for name in ("bridge_export", "bridge_import"):
        getattr(library, name).restype = ctypes.c_void_p
    library.bridge_import.argtypes = [ctypes.c_void_p, ctypes.c_int]
    for name in ("bridge_problem", "bridge_dtype"):
        getattr(library, name).restype = ctypes.c_char_p
    library.bridge_dtype.argtypes = library.bridge_rank.argtypes = library.bridge_drop.argtypes = [ctypes.c_void_p]
    library.bridge_dim.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.bridge_dim.restype = ctypes.c_int64
    library.bridge_values.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


class Exported:
    """What a library that offers DLPack looks like from Python."""

    def __init__(self, bridge, dtype, kind, offer_versioned):
        self.bridge, self.dtype, self.kind, self.offer_versioned = bridge, dtype, kind, offer_versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, max_version=None, **_):
        versioned = int(self.offer_versioned and max_version is not None and tuple(max_version) >= (1, 0))
        managed = self.bridge.bridge_export(self.dtype.encode(), self.kind.encode(), versioned)
        assert managed, self.bridge.bridge_problem()
        return python.PyCapsule_New(managed, NAMES[versioned], None)


def import_from(bridge, foreign, **arguments):
    """Takes a tensor out of its capsule as any consumer must; returns our handle."""
    capsule = foreign.__dlpack__(**arguments)
    versioned = int(python.PyCapsule_IsValid(capsule, NAMES[1]))
    handle = bridge.bridge_import(python.PyCapsule_GetPointer(capsule, NAMES[versioned]), versioned)
    if handle:
        python.PyCapsule_SetName(capsule, USED[versioned])  # it is ours now: the capsule must not delete it too
    return handle


def values(bridge, handle):
    shape = tuple(bridge.bridge_dim(handle, axis) for axis in range(bridge.bridge_rank(handle)))
    out = np.full(shape, np.nan)
    bridge.bridge_values(handle, out.ctypes.data)
    return out


def expected(dtype, kind):
    x = np.arange(24).reshape(2, 3, 4)
    x = VIEWS[kind](x.astype(bool) if dtype == "bool" else x)
    return np.asarray(x, np.float64)


@pytest.mark.parametrize("offer_versioned", [False, True])
@pytest.mark.parametrize("kind", VIEWS)
def test_torch_reads_our_tensors(bridge, kind, offer_versioned):
    for dtype in TORCH:
        before = bridge.bridge_released()
        theirs = torch.from_dlpack(Exported(bridge, dtype, kind, offer_versioned))
        assert theirs.dtype == TORCH[dtype]
        np.testing.assert_array_equal(theirs.to(torch.float64).numpy(), expected(dtype, kind), f"{dtype}")
        assert bridge.bridge_released() == before, f"{dtype}: let go of while torch still reads"
        view = theirs.reshape(-1)[:1] if kind == "whole" else theirs.view(theirs.shape)
        del theirs
        assert bridge.bridge_released() == before, f"{dtype}: a view keeps it alive"
        del view
        assert bridge.bridge_released() == before + 1, f"{dtype}: released once"


@pytest.mark.parametrize("offer_versioned", [False, True])
@pytest.mark.parametrize("kind", VIEWS)
def test_numpy_reads_our_tensors(bridge, kind, offer_versioned):
    for dtype in NUMPY:
        before = bridge.bridge_released()
        theirs = np.from_dlpack(Exported(bridge, dtype, kind, offer_versioned))
        assert theirs.dtype == NUMPY[dtype]
        np.testing.assert_array_equal(theirs.astype(np.float64), expected(dtype, kind), f"{dtype}")
        assert bridge.bridge_released() == before
        del theirs
        assert bridge.bridge_released() == before + 1, f"{dtype}: released once"


def test_memory_is_shared_not_copied(bridge):
    theirs = torch.from_dlpack(Exported(bridge, "f32", "whole", True))
    theirs[0, 0, 0] = 99
    handle = import_from(bridge, theirs)
    theirs[0, 0, 1] = 77
    assert values(bridge, handle)[0, 0].tolist() == [99, 77, 2, 3]
    bridge.bridge_drop(handle)


@pytest.mark.parametrize("kind", [kind for kind in VIEWS if kind != "broadcast"])
def test_we_read_torch_tensors(bridge, kind):
    for dtype in TORCH:
        base = np.arange(24).reshape(2, 3, 4)
        whole = torch.from_numpy(base).to(TORCH[dtype])
        x = {
            "whole": lambda: whole,
            "transposed": lambda: whole.permute(2, 1, 0),
            "sliced": lambda: whole[:, 1:3, 1:4:2],
            "scalar": lambda: whole.reshape(-1)[1],
            "empty": lambda: torch.zeros(3, 0, 2, dtype=TORCH[dtype]),
        }[kind]()
        for arguments in ({}, {"max_version": (1, 1)}):
            handle = import_from(bridge, x, **arguments)
            assert handle, bridge.bridge_problem()
            assert bridge.bridge_dtype(handle).decode() == dtype
            np.testing.assert_array_equal(values(bridge, handle), expected(dtype, kind), f"{dtype}")
            bridge.bridge_drop(handle)


def test_we_read_torch_float8(bridge):
    for dtype, name in ((torch.float8_e4m3fn, "f8_e4m3fn"), (torch.float8_e5m2, "f8_e5m2")):
        x = torch.arange(8).to(dtype)
        try:
            handle = import_from(bridge, x, max_version=(1, 1))
        except (RuntimeError, BufferError) as error:
            pytest.skip(f"this torch does not export float8: {error}")
        assert bridge.bridge_dtype(handle).decode() == name
        assert values(bridge, handle).tolist() == x.to(torch.float64).tolist()
        bridge.bridge_drop(handle)


@pytest.mark.parametrize("kind", VIEWS)
def test_we_read_numpy_arrays_and_let_go_of_them_once(bridge, kind):
    for dtype, arguments in itertools.product(NUMPY, ({}, {"max_version": (1, 0)})):
        if kind == "broadcast" and not arguments:
            continue  # read-only arrays need the version that can say so
        x = VIEWS[kind](np.arange(24).reshape(2, 3, 4).astype(NUMPY[dtype]))
        x = np.asarray(x, NUMPY[dtype])
        before = sys.getrefcount(x)
        handle = import_from(bridge, x, **arguments)
        assert handle, bridge.bridge_problem()
        assert x.size == 0 or sys.getrefcount(x) == before + 1, f"{dtype}: we keep the array alive"
        np.testing.assert_array_equal(values(bridge, handle), expected(dtype, kind), f"{dtype}")
        bridge.bridge_drop(handle)
        assert sys.getrefcount(x) == before, f"{dtype}: let go of once"


def test_torch_memory_outlives_its_python_object(bridge):
    array = np.arange(6, dtype=np.float32)
    before = sys.getrefcount(array)
    x = torch.from_numpy(array)
    handle = import_from(bridge, x[1:4])
    del x
    assert sys.getrefcount(array) > before
    assert values(bridge, handle).tolist() == [1, 2, 3]
    bridge.bridge_drop(handle)
    assert sys.getrefcount(array) == before


def test_what_we_do_not_hold_stays_with_its_owner(bridge):
    x = np.zeros(3, np.complex64)
    before = sys.getrefcount(x)
    assert not import_from(bridge, x)
    assert b"element type" in bridge.bridge_problem()
    assert sys.getrefcount(x) == before, "the capsule still frees it"
