"""Writes and reads a run folder ("lockstep-run", version 1): run.json, records.jsonl, tensors/*.npy, images/."""

from __future__ import annotations

import ctypes
import ctypes.util
import datetime
import fnmatch
import json
import math
import os
import time
import uuid
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

BF16 = np.dtype(ml_dtypes.bfloat16)


def to_numpy(value) -> np.ndarray:
    """A C-ordered little-endian copy; bf16 stays bf16."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        if value.dtype == torch.bfloat16:
            return value.view(torch.int16).numpy().view(BF16).copy()
        return value.numpy().copy()
    return np.array(value, order="C")


def dtype_name(array: np.ndarray) -> str:
    return "bfloat16" if array.dtype == BF16 else array.dtype.name


def _number(value: float):
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def stats(array: np.ndarray) -> dict:
    """Computed in double precision over the finite values; complex numbers count as pairs of reals."""
    if np.iscomplexobj(array):
        array = array.view(array.real.dtype)
    kind = array.dtype
    flat = array.astype(np.float64).reshape(-1)
    nan = int(np.isnan(flat).sum())
    inf = int(np.isinf(flat).sum())
    good = flat[np.isfinite(flat)] if nan or inf else flat
    smallest = {"float16": 2.0**-14, "float64": 2.0**-1022}.get(dtype_name(array), 2.0**-126)
    inexact = kind == BF16 or np.issubdtype(kind, np.inexact)
    denormal = int(((good != 0) & (np.abs(good) < smallest)).sum()) if inexact else 0
    summary = {"min": None, "max": None, "mean": None, "std": None, "rms": None, "absmax": None}
    if good.size:
        summary = {
            "min": good.min(),
            "max": good.max(),
            "mean": good.mean(),
            "std": good.std(),
            "rms": math.sqrt(float(np.mean(good * good))),
            "absmax": np.abs(good).max(),
        }
        summary = {key: _number(value) for key, value in summary.items()}
    return summary | {"nan": nan, "inf": inf, "zero": int((flat == 0).sum()), "denormal": denormal}


def preview(array: np.ndarray, count: int = 10) -> list:
    flat = array.reshape(-1)
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    head = flat[:count]
    if head.dtype == BF16 or np.issubdtype(head.dtype, np.floating):
        return [_number(v) for v in head.astype(np.float64)]
    return [v.item() for v in head]


class _Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _find_checksum():
    """XXH3-128 from the Python package or from the system library; None when there is neither."""
    try:
        import xxhash

        return lambda data: xxhash.xxh3_128_hexdigest(data)
    except ImportError:
        pass
    name = ctypes.util.find_library("xxhash")
    if name is None:
        return None
    try:
        function = ctypes.CDLL(name).XXH3_128bits
    except (OSError, AttributeError):
        return None
    function.restype = _Xxh128
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def digest(data: bytes) -> str:
        result = function(data, len(data))
        return f"{result.high:016x}{result.low:016x}"

    return digest


_checksum = _find_checksum()


def checksum(array: np.ndarray) -> str | None:
    return _checksum(array.tobytes()) if _checksum else None


def escape(name: str) -> str:
    """A file name that no other name shares: everything but letters, digits, '.', '-' and '_' becomes %XX."""
    out = "".join(
        chr(b) if chr(b).isascii() and (chr(b).isalnum() or chr(b) in ".-_") else f"%{b:02X}"
        for b in name.encode("utf-8")
    )
    return "%2E" + out[1:] if out.startswith(".") else out


def key_string(name: str, step: int | None, hit: int, tags: dict) -> str:
    """`transformer.img_in@step0@cond`, with `@hit1` from the second hit on."""
    parts = [name]
    if step is not None:
        parts.append(f"step{step}")
    if "pass" in tags:
        parts.append(tags["pass"])
    parts += [f"{key}={value}" for key, value in sorted(tags.items()) if key != "pass"]
    if hit:
        parts.append(f"hit{hit}")
    return "@".join(parts)


def record_key(record: dict) -> str:
    return key_string(record["name"], record["step"], record["hit"], record["tags"] or {})


def _write_json(path: Path, document: dict) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
    os.replace(temporary, path)


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunWriter:
    """One run. A hit is counted per name, step and tags, so that every key is unique."""

    def __init__(self, directory: Path, header: dict, *, only: str | None = None, stats_only: bool = False):
        self.directory = Path(directory)
        self.only = only
        self.stats_only = stats_only
        (self.directory / "tensors").mkdir(parents=True)
        (self.directory / "images").mkdir()
        self.header = {
            "format": "lockstep-run",
            "version": 1,
            "id": uuid.uuid4().hex,
            "created": now(),
            "finished": None,
            "status": "running",
        } | header
        _write_json(self.directory / "run.json", self.header)
        self.lines = open(self.directory / "records.jsonl", "x", encoding="utf-8")
        self.hits: dict[tuple, int] = {}
        self.sequence = 0
        self.started = time.monotonic()

    def record(self, name: str, value, *, step=None, tags=None, role="output", where=None) -> None:
        tags = tags or {}
        counter = (name, step, tuple(sorted(tags.items())))
        hit = self.hits.get(counter, 0)
        self.hits[counter] = hit + 1
        if self.only and not fnmatch.fnmatchcase(name, self.only):
            return
        array = to_numpy(value)
        file = None
        if not self.stats_only:
            file = f"tensors/{escape(key_string(name, step, hit, tags))}.npy"
            # NumPy itself writes an ml_dtypes bfloat16 array as '<V2'.
            np.save(self.directory / file, array, allow_pickle=False)
        line = {
            "seq": self.sequence,
            "name": name,
            "step": step,
            "hit": hit,
            "tags": tags,
            "role": role,
            "dtype": dtype_name(array),
            "shape": list(array.shape),
            "stats": stats(array),
            "preview": preview(array),
            "checksum": checksum(array),
            "file": file,
            "where": where,
            "secs": round(time.monotonic() - self.started, 6),
        }
        self.sequence += 1
        self.lines.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self.lines.flush()

    def close(self, status: str = "finished", exit_code: int = 0) -> None:
        self.lines.close()
        self.header["status"] = status
        self.header["finished"] = now()
        self.header["program"] = self.header.get("program", {}) | {"exit_code": exit_code}
        _write_json(self.directory / "run.json", self.header)


class Run:
    """A run folder, read lazily. A torn last line is skipped."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.header = json.loads((self.directory / "run.json").read_text("utf-8"))
        if self.header.get("format") != "lockstep-run" or self.header.get("version") != 1:
            raise ValueError(f"[run] {directory} is no run; expected format lockstep-run version 1")
        self.records: dict[str, dict] = {}
        lines = (self.directory / "records.jsonl").read_text("utf-8").split("\n")
        for number, line in enumerate(lines):
            if not line:
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                if number == len(lines) - 1:
                    break
                raise
            self.records[record_key(record)] = record

    def load(self, key: str) -> np.ndarray:
        record = self.records[key]
        array = np.load(self.directory / record["file"], allow_pickle=False)
        return array.view(BF16) if record["dtype"] in ("bfloat16", "bf16") else array
