"""Runs of many tensors and homes of many runs, made in a moment: all records share a few files."""

import json

import numpy as np


def manifest(identity, **more):
    return json.dumps(
        {
            "format": "lockstep-run",
            "version": 1,
            "id": identity,
            "name": identity,
            "status": "finished",
            "created": "2026-01-31T12:00:00.000Z",
            **more,
        }
    )


def record(number, name, file, shape, step=None, **more):
    stats = {
        "count": 4,
        "min": -1.0,
        "max": 1.0,
        "mean": 0.25,
        "std": 0.5,
        "rms": 0.5,
        "absmax": 1.0,
        "nan": 0,
        "inf": 0,
        "zero": 0,
        "denormal": 0,
    }
    return (
        json.dumps(
            {
                "seq": number,
                "name": name,
                "step": step,
                "hit": 0,
                "tags": {},
                "role": "output",
                "dtype": "float32",
                "shape": list(shape),
                "file": file,
                "stats": stats,
                **more,
            }
        )
        + "\n"
    )


def write_many(folder, names, arrays, steps=1, **more):
    """names: one record each and step; arrays[k % len(arrays)] are its values."""
    (folder / "tensors").mkdir(parents=True)
    (folder / "run.json").write_text(manifest(folder.name, **more))
    for k, array in enumerate(arrays):
        np.save(folder / "tensors" / f"{k}.npy", array)
    with open(folder / "records.jsonl", "w", encoding="utf-8") as lines:
        number = 0
        for step in range(steps):
            for k, name in enumerate(names):
                array = arrays[k % len(arrays)]
                lines.write(
                    record(number, name, f"tensors/{k % len(arrays)}.npy", array.shape, step if steps > 1 else None)
                )
                number += 1
    return folder
