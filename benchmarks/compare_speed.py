"""`lockstep compare` against a NumPy loop with the same metrics, its memory, and the diagnosis of one pair of 4 M elements.

./dev bench compare_speed                 750 tensors, 1 GB a run
./dev bench compare_speed --tensors 3000  the full size: 4 GB a run
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[1]
BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))


def write_run(folder: Path, records) -> None:
    (folder / "tensors").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"format": "lockstep-run", "version": 1, "id": folder.name, "status": "finished"})
    )
    with open(folder / "records.jsonl", "w", encoding="utf-8") as lines:
        for number, (name, role, array, *where) in enumerate(records):  # where: a step, a pass
            step, *passes = where or [None]
            file = f"tensors/{number}.npy"
            np.save(folder / file, array)
            lines.write(json.dumps({"seq": number, "name": name, "step": step, "hit": 0, "tags": {"pass": passes[0]} if passes else {}, "role": role,
                                    "dtype": array.dtype.name, "shape": list(array.shape), "file": file}) + "\n")  # fmt: skip


def numpy_metrics(a, b) -> dict:
    x, y = a.astype(np.float64), b.astype(np.float64)
    d = x - y
    dd, yy, xx = (d * d), (y * y), (x * x)
    rows = np.sqrt(dd.reshape(-1, d.shape[-1]).sum(1) / np.maximum(yy.reshape(-1, d.shape[-1]).sum(1), 1e-30)).max()
    channels = np.sqrt(dd.reshape(-1, d.shape[-1]).sum(0) / np.maximum(yy.reshape(-1, d.shape[-1]).sum(0), 1e-30)).max()
    return {"relative": np.sqrt(dd.sum() / yy.sum()), "worst": max(rows, channels), "max": np.abs(d).max(), "at": np.abs(d).argmax(),
            "mean": np.abs(d).mean(), "cosine": (x * y).sum() / np.sqrt(xx.sum() * yy.sum()), "nan": np.isnan(x).sum() + np.isnan(y).sum(),
            "inf": np.isinf(x).sum() + np.isinf(y).sum()}  # fmt: skip


# A child's peak begins with that of the process it was forked from, so a small one starts it and measures.
TIMER = """
import resource, subprocess, sys, time
started = time.monotonic()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, code)
"""


def timed(command) -> tuple[float, float]:
    seconds, megabytes, code = subprocess.run(
        [sys.executable, "-c", TIMER, *command], stdout=subprocess.PIPE, check=True
    ).stdout.split()
    assert code in (b"0", b"1"), command
    return float(seconds), float(megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=750)
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        rng = np.random.default_rng(0)
        base = rng.standard_normal((436, 768)).astype(np.float32)  # 1.34 MB
        noise = (1 + 1e-7 * rng.standard_normal(base.shape)).astype(np.float32)
        names = [(f"net.blocks.{i // 10}.part{i % 10}", "output") for i in range(arguments.tensors)]
        write_run(home / "a", ((n, r, base * np.float32(1 + i)) for i, (n, r) in enumerate(names)))
        write_run(home / "b", ((n, r, base * np.float32(1 + i) * noise) for i, (n, r) in enumerate(names)))
        ours, memory = min(timed([BINARY, "compare", str(home / "a"), str(home / "b"), "--json"]) for _ in range(3))
        started = time.monotonic()
        for number in range(arguments.tensors):
            numpy_metrics(
                np.load(home / "b" / "tensors" / f"{number}.npy"), np.load(home / "a" / "tensors" / f"{number}.npy")
            )
        theirs = time.monotonic() - started
        gigabytes = arguments.tensors * base.nbytes / 1e9
        print(
            f"{arguments.tensors} pairs, {gigabytes:.2f} GB a run: {ours:.2f} s, {memory:.0f} MB; NumPy {theirs:.2f} s: {theirs / ours:.1f}x"
        )
        shutil.rmtree(home / "a"), shutil.rmtree(home / "b")

        # one failing pair of 4 M elements among its neighbours: shift and scale exchanged
        x = rng.standard_normal((1, 4096, 1024)).astype(np.float32)
        n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        mod = rng.standard_normal((1, 6 * 1024)).astype(np.float32)
        q, k, v = (rng.standard_normal(x.shape).astype(np.float32) for _ in range(3))
        for folder, (s, t) in (("c", (1, 0)), ("d", (0, 1))):
            m = n * (1 + mod[:, None, s * 1024 : (s + 1) * 1024]) + mod[:, None, t * 1024 : (t + 1) * 1024]
            write_run(home / folder, [("net.b", "input", x), ("net.b.mod", "output", mod), ("net.b.norm", "input", x), ("net.b.norm", "output", n),
                                      ("net.b.q", "output", q), ("net.b.k", "output", k), ("net.b.v", "output", v), ("net.b.attn", "input", m), ("net.b.attn", "output", np.tanh(m))])  # fmt: skip
        secs, memory = timed([BINARY, "compare", str(home / "c"), str(home / "d"), "--json"])
        print(f"diagnosis of one pair of 4 M elements: {secs:.2f} s, {memory:.0f} MB")
        n = rng.standard_normal(n.shape).astype(np.float32)
        write_run(
            home / "e",
            [
                ("net.b", "input", x),
                ("net.b.mod", "output", mod),
                ("net.b.norm", "input", x),
                ("net.b.norm", "output", n),
            ],
        )
        secs, memory = timed([BINARY, "compare", str(home / "c"), str(home / "e"), "--json"])
        print(f"the same where no family explains it: {secs:.2f} s, {memory:.0f} MB")

        # a linear layer of the real width, whose weight is known: its questions are the most
        shutil.rmtree(home / "c"), shutil.rmtree(home / "d"), shutil.rmtree(home / "e")
        x = rng.standard_normal((1366, 3072)).astype(np.float32)
        w, b = rng.standard_normal((3072, 3072)).astype(np.float32) / 55, rng.standard_normal(3072).astype(np.float32)
        save_file(
            {"net.proj.weight": w, "net.proj.bias": b, "net.other.weight": w[::-1].copy(), "net.other.bias": b},
            home / "model.safetensors",
        )
        y = x @ w.T + b
        for folder, result in (("c", y), ("d", y + 0.1 * np.sin(7 * y))):
            write_run(home / folder, [("net.proj", "input", x), ("net.proj", "output", result)])
        secs, memory = timed(
            [
                BINARY,
                "compare",
                str(home / "c"),
                str(home / "d"),
                "--json",
                "--weights",
                str(home / "model.safetensors"),
            ]
        )
        print(f"the same of a linear layer of 3072 by 3072: {secs:.2f} s, {memory:.0f} MB")
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
