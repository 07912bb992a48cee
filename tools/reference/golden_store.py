"""One golden recording: a safetensors file with the tensors, a JSON index with one line per record.

A module that only passes its input on (dropout, identity) repeats a tensor; the index then points at the first copy.
Complex tensors are stored as f32 pairs in a trailing axis of 2; the index keeps their dtype and shape.
"""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path

import numpy as np
import torch
from run_writer import BF16, dtype_name, key_string, to_numpy
from safetensors.torch import load_file, save_file


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == BF16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    if np.iscomplexobj(array):
        return torch.view_as_real(torch.from_numpy(array.copy()))
    return torch.from_numpy(array.copy())


class GoldenWriter:
    """Stands in for RunWriter: same record(), keeps everything in memory."""

    def __init__(self, header: dict, *, keep=lambda name, step: True, drop: tuple[str, ...] = ()):
        self.header = header
        self.keep = keep
        self.drop = drop
        self.hits: dict[tuple, int] = {}
        self.records: list[dict] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.first_copy: dict[tuple, str] = {}

    def record(self, name, value, *, step=None, tags=None, role="output", where=None) -> None:
        del where
        tags = tags or {}
        counter = (name, step, tuple(sorted(tags.items())))
        hit = self.hits.get(counter, 0)
        self.hits[counter] = hit + 1
        if not self.keep(name, step) or any(fnmatch.fnmatchcase(name, glob) for glob in self.drop):
            return
        array = to_numpy(value)
        key = key_string(name, step, hit, tags)
        # Equal bytes and dtype: one copy serves; shapes may differ (a 5-D view of a 4-D tensor).
        stored = self.first_copy.setdefault((dtype_name(array), array.tobytes()), key)
        if stored == key:
            self.tensors[key] = to_torch(array)
        line = {"key": key, "name": name, "step": step, "hit": hit, "tags": tags, "role": role}
        line |= {"dtype": dtype_name(array), "shape": list(array.shape), "tensor": stored}
        self.records.append(line)

    def close(self, status: str, exit_code: int) -> None:
        if status != "finished":
            raise RuntimeError(f"[golden] the official run {status}, exit {exit_code}")

    def save(self, directory: Path, stem: str = "recording") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        save_tensors(directory / f"{stem}.safetensors", self.tensors)
        header = {key: self.header[key] for key in ("producer", "settings", "versions") if key in self.header}
        if "versions" in header:
            # Only what decides the numbers: another Python must not make the file differ.
            names = ("torch", "diffusers", "transformers")
            header["versions"] = {name: header["versions"][name].split("+")[0] for name in names}
        save_index(directory / f"{stem}.json", header, self.records)


def save_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, path)


def save_index(path: Path, header: dict, records: list[dict]) -> None:
    """Valid JSON with one record per line, so that a changed record is one changed line."""
    head = json.dumps(header, indent=1, ensure_ascii=False)[:-2]
    lines = ",\n".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records)
    path.write_text(f'{head},\n "records": [\n{lines}\n ]\n}}\n', "utf-8")


def load_recording(directory: Path, stem: str = "recording") -> dict[str, np.ndarray]:
    """Every record by key, aliases resolved, shapes and complex dtypes restored; bf16 as ml_dtypes.bfloat16."""
    index = json.loads((directory / f"{stem}.json").read_text("utf-8"))
    tensors = load_file(directory / f"{stem}.safetensors")
    out = {}
    for record in index["records"]:
        value = tensors[record["tensor"]]
        if record["dtype"].startswith("complex"):
            value = torch.view_as_complex(value)
        out[record["key"]] = to_numpy(value).reshape(record["shape"])
    return out
