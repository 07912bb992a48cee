"""Zoom at full width: what tracing one 3072-wide block of 1,024 tokens costs, and what matching its operations does.

./dev bench zoom_full_width                two programs, torch on 2 cores; prints the ratios and the bars
./dev bench zoom_full_width --tokens 256
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))

PROGRAM = """
import json, resource, sys, time
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(2)

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm_q, self.norm_k = nn.RMSNorm(width // heads, eps=1e-6), nn.RMSNorm(width // heads, eps=1e-6)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (layer(x).view(batch, tokens, self.heads, -1) for layer in (self.q, self.k, self.v))
        q, k = self.norm_q(q), self.norm_k(k)
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=SCALE)
        return self.out(mixed.transpose(1, 2).flatten(2))

class Block(nn.Module):
    def __init__(self, width=3072, heads=24):
        super().__init__()
        self.modulation = nn.Linear(width, 6 * width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6, elementwise_affine=False) for _ in range(2))
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(condition))[:, None].chunk(6, -1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        hidden = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(hidden), approximate="tanh"))

torch.manual_seed(0)
with torch.no_grad():
    block = Block()
    x, condition = torch.randn(1, TOKENS, 3072), torch.randn(1, 3072)
    block.norm1(x), block.up(x)  # the first call of a kernel is not what is measured
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, used = time.monotonic(), time.process_time()
    result = block(x, condition)
    seconds, used = time.monotonic() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "used": used, "before": before, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "sum": result.double().sum().item()}))
"""


def figures(folder, name, *words):
    command = [sys.executable, f"{name}.py"]
    if words:
        command = [BINARY, "--home", str(folder / "home"), *words, "--name", name, "--", *command]
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return {**json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1]), "program": seconds}


def writing_secs(file, size):
    """How long the system takes for it through its page cache, which tracing passes by."""
    block = os.urandom(1 << 20)
    started = time.monotonic()
    with open(file, "wb") as out:
        for _ in range(size >> 20):
            out.write(block)
    seconds = time.monotonic() - started
    file.unlink()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--times", type=int, default=2, help="the fastest of so many runs counts")
    arguments = parser.parse_args()
    good = True

    def show(words, value, bar, unit):
        nonlocal good
        good &= value <= bar
        print(
            f"{words:<52} {value:8.2f} {unit:<3} (at most {bar} {unit}){'' if value <= bar else '  <-- missed'}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="lockstep-zoom-") as folder:
        folder = Path(folder)
        for name, scale in (("reference", "None"), ("port", "0.07")):
            (folder / f"{name}.py").write_text(PROGRAM.replace("SCALE", scale).replace("TOKENS", str(arguments.tokens)))
        plain = min((figures(folder, "reference") for _ in range(arguments.times)), key=lambda one: one["seconds"])
        record = ("record", "--stats-only", "--modules", "Block", "--operations", "Block")
        traced = min(
            (figures(folder, "reference", *record) for _ in range(arguments.times)), key=lambda one: one["seconds"]
        )
        figures(folder, "port", *record)
        print(
            f"plain call {plain['seconds']:.2f} s, traced {traced['seconds']:.2f} s; the same result: {plain['sum'] == traced['sum']}"
        )
        good &= plain["sum"] == traced["sum"]
        show("tracing, times the plain call", traced["seconds"] / plain["seconds"], 2, "")
        print(f"{'the same in time of processors':<52} {traced['used'] / plain['used']:8.2f}")
        print(f"{'the whole program, plain':<52} {plain['program']:8.2f} s")
        print(f"{'the whole program, recorded':<52} {traced['program']:8.2f} s")
        show("tracing, memory beside the plain call's", (traced["peak"] - plain["peak"]) / 2**20, 2, "GiB")
        size = sum(file.stat().st_size for file in (folder / "home" / "latest" / "port").resolve().glob("operations.*"))
        print(f"{'operations on disk':<52} {size / 2**30:8.2f} GiB")
        print(f"{'writing as many bytes to another file takes':<52} {writing_secs(folder / 'written', size):8.2f} s")
        started = time.monotonic()
        words = [
            BINARY,
            "--json",
            "--home",
            str(folder / "home"),
            "zoom",
            "latest:reference",
            "latest:port",
            "--stage",
            "Block",
        ]
        done = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        output, used = done.stdout.read(), os.wait4(done.pid, 0)[2]
        peak = used.ru_maxrss
        show("matching", time.monotonic() - started, 10, "s")
        print(f"{'matching, time of processors':<52} {used.ru_utime + used.ru_stime:8.2f} s")
        show("matching, memory", peak / 2**20, 2, "GiB")
        answer = json.loads(output)
        print(
            "named:", *(f"{region['kind']} {[one['code'] for one in region['yours']]}" for region in answer["regions"])
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
