"""Opens files with the official libraries, one path a line on stdin; answers one JSON line each: what it found, or why
not. A program of its own, with little memory, because a damaged file may take its reader down."""

import json
import pathlib
import resource
import sys
import warnings
import zlib

import ml_dtypes  # noqa: F401  (registers its dtypes)
import numpy as np
import torch
from safetensors import safe_open


def entry(name, array):
    shape = list(np.shape(array))
    if np.asarray(array).dtype.kind == "c":
        shape = [*shape, 2]  # read as real and imaginary parts
    array = np.ascontiguousarray(array)  # makes a scalar one-dimensional
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.dtype == np.bool_:
        array = array.view(np.uint8) != 0
    return [name, shape, zlib.crc32(array.tobytes())]


def torch_entry(name, tensor):
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())  # read as real and imaginary parts
    if tensor.numel() > tensor.untyped_storage().nbytes() // tensor.element_size():
        return [name, list(tensor.shape), None]
    flat = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    if tensor.dtype == torch.bool:
        flat = flat.view(torch.uint8) != 0
    return [name, list(tensor.shape), zlib.crc32(flat.view(torch.uint8).numpy().tobytes())]


def flatten(thing, name):
    if isinstance(thing, torch.Tensor):
        yield name, thing
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from flatten(value, f"{name}.{key}" if name else str(key))
    elif isinstance(thing, (list, tuple)):
        for i, value in enumerate(thing):
            yield from flatten(value, f"{name}.{i}" if name else str(i))


def judge(path):
    if path.suffix == ".npy":
        return [entry(path.stem, np.load(path))]
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return [entry(name, archive[name]) for name in archive.files if name + ".npy" in archive.zip.namelist()]
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            return [torch_entry(name, file.get_tensor(name)) for name in file.keys()]
    loaded = torch.load(path, weights_only=True)
    return [torch_entry(name or path.stem, tensor) for name, tensor in flatten(loaded, "")]


def main():
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    for line in sys.stdin:
        try:
            reply = {"tensors": judge(pathlib.Path(line.rstrip("\n")))}
        except BaseException as error:  # whatever it is: the file was not accepted
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
