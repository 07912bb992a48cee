"""Listing a 10,000-tensor, 40 GB sharded checkpoint (sparse files) against the Python safetensors library."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
SHARDS, PER_SHARD, BYTES = 20, 500, 4 << 20

LIST_IN_PYTHON = """
import sys, time, pathlib
from safetensors import safe_open
start = time.perf_counter()
listed = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, framework="np") as file:
        for name in file.keys():
            part = file.get_slice(name)
            listed.append((name, part.get_dtype(), part.get_shape()))
print(len(listed), time.perf_counter() - start)
"""


def write_checkpoint(folder):
    weight_map = {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        header = {}
        for i in range(PER_SHARD):
            name = f"transformer_blocks.{shard * PER_SHARD + i}.attn.to_q.weight"
            header[name] = {
                "dtype": "BF16",
                "shape": [1024, BYTES // 2048],
                "data_offsets": [i * BYTES, (i + 1) * BYTES],
            }
            weight_map[name] = file
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + PER_SHARD * BYTES)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def best(repeats, work):
    return min(work() for _ in range(repeats))


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(pathlib.Path(folder))

        def ours(*arguments):
            start = time.perf_counter()
            done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True)
            secs = time.perf_counter() - start
            assert "10,000 tensors" in done.stdout or len(json.loads(done.stdout)["tensors"]) == 10000
            return secs

        def python_process():
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", LIST_IN_PYTHON, folder], capture_output=True, text=True, check=True
            )
            assert done.stdout.split()[0] == "10000"
            return time.perf_counter() - start, float(done.stdout.split()[1])

        text, as_json = (
            best(9, lambda: ours("tensors", "list", folder)),
            best(9, lambda: ours("tensors", "list", folder, "--json")),
        )
        runs = [python_process() for _ in range(5)]
        process, inside = min(run[0] for run in runs), min(run[1] for run in runs)
    print(
        f"{SHARDS * PER_SHARD} tensors, {SHARDS} shards, {SHARDS * PER_SHARD * BYTES / 1e9:.0f} GB (sparse), load {os.getloadavg()[0]:.1f}"
    )
    print(f"lockstep tensors list         {1e3 * text:7.1f} ms  whole process (goal: under 50)")
    print(f"lockstep tensors list --json  {1e3 * as_json:7.1f} ms  whole process")
    print(
        f"Python safetensors            {1e3 * process:7.1f} ms  whole process, {1e3 * inside:.1f} ms without start and imports"
    )
    print(
        f"ratio                         {process / text:7.1f}x whole processes, {inside / text:.2f}x against Python without its start"
    )


if __name__ == "__main__":
    main()
