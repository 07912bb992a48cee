"""Talks to build/bin/io_probe: one JSON line asked, one answered."""

import json
import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parent / "io_probe"

NUMPY_DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}
TORCH_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8_e4m3fn": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
}


class Probe:
    def __init__(self):
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)

    def ask(self, *call):
        self.process.stdin.write(json.dumps([str(c) if isinstance(c, pathlib.Path) else c for c in call]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the probe died on {call} with status {self.process.wait(10)}"
        return json.loads(line)

    def dump(self, path, folder):
        """{name: (dtype, shape, bytes)} of a file, as our readers see it."""
        folder.mkdir(exist_ok=True)
        reply = self.ask("dump", path, folder)
        assert "error" not in reply, reply
        return {
            t["name"]: (t["dtype"], tuple(t["shape"]), (folder / f"{i}.bin").read_bytes())
            for i, t in enumerate(reply["tensors"])
        }

    def write(self, tensors, folder, path):
        """Writes {name: (dtype, shape, bytes)} with our writers; the extension chooses."""
        folder.mkdir(exist_ok=True)
        entries = []
        for i, (name, (dtype, shape, data)) in enumerate(tensors.items()):
            (folder / f"{i}.bin").write_bytes(data)
            entries.append({"name": name, "dtype": dtype, "shape": list(shape)})
        (folder / "tensors.json").write_text(json.dumps(entries))
        reply = self.ask("write", folder, path)
        assert "error" not in reply, reply


def sample(dtype, shape, seed=0):
    """Random bit patterns (0 and 1 for bool), so that NaNs, infinities and denormals travel too."""
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(NUMPY_DTYPES[dtype]).itemsize
    raw = np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
    return (raw & 1 if dtype == "bool" else raw).tobytes()


def samples():
    shapes = [(), (1,), (7,), (2, 3, 4), (0, 3), (3, 1, 0)]
    return {
        f"{dtype}.{'x'.join(map(str, shape))}": (dtype, shape, sample(dtype, shape, i))
        for i, dtype in enumerate(NUMPY_DTYPES)
        for shape in shapes
    }


def torch_tensor(dtype, shape, data):
    return (
        torch.frombuffer(bytearray(data) or bytearray(8), dtype=torch.uint8)[: len(data)]
        .clone()
        .view(TORCH_DTYPES[dtype])
        .reshape(shape)
    )


def torch_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
