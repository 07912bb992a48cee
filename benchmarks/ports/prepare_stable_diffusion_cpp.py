"""Weights and inputs of the transformer for drive_stable_diffusion_cpp: those of a model folder, and those of a reference run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np


def write(file, name, values):
    values = np.ascontiguousarray(values, dtype="<f4")
    file.write(f"{name} {values.ndim} {' '.join(map(str, values.shape))}\n".encode())
    file.write(values.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True, help="a run of the official pipeline with inputs")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--height", type=int, default=64)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()

    import torch
    from safetensors.torch import load_file

    options.folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((options.model / "transformer" / "config.json").read_text())
    with open(options.folder / "weights.bin", "wb") as file:
        for shard in sorted((options.model / "transformer").glob("*.safetensors")):
            for name, weight in load_file(shard).items():
                write(file, name, weight.to(torch.float32).numpy())
    calls, rows, columns = [], options.height // 16, options.width // 16
    for line in (options.reference / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["role"] != "input" or not record["name"].startswith("transformer.") or record["name"].count(".") != 1:
            continue
        key = record["name"].removeprefix("transformer.")
        if key == "hidden_states":
            calls.append({})
        if calls and key in ("hidden_states", "timestep", "encoder_hidden_states"):
            calls[-1][key] = np.load(options.reference / record["file"])
    with open(options.folder / "inputs.bin", "wb") as file:
        write(file, "axes", np.array(config["axes_dims_rope"]))
        for index, call in enumerate(calls):
            packed = call["hidden_states"].reshape(rows, columns, 16, 2, 2)  # [rows, columns, C, 2, 2]
            write(file, f"x{index}", packed.transpose(2, 0, 3, 1, 4).reshape(1, 16, rows * 2, columns * 2))
            write(file, f"t{index}", call["timestep"] * 1000)  # stable-diffusion.cpp counts to 1000
            write(file, f"context{index}", call["encoder_hidden_states"])
    print(len(calls))


if __name__ == "__main__":
    main()
