#!/usr/bin/env python3
"""Fails every system call of the program once, one at a time, and looks at what is left.

For each command and each kind of call, the n-th call fails, for n = 1, 2, 3, ... until the command gets through without
reaching it. Whatever fails, there is never a signal, a hang, a half-written file, a wrong verdict or a wrong exit status.

    tools/faults/inject.py [--sample N] [--seed S] [--only COMMAND] [--kind KIND] [--jobs N]

--sample draws N points of all, by seed, and finds the number of calls by bisection instead of by trying each.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
KINDS = ("allocate", "thread", "open", "read", "write", "sync", "rename", "map", "fork", "socket", "folder")
HANGS_SECS = float(os.environ.get("LOCKSTEP_FAULT_SECS", "10"))
MOST_CALLS = 1 << 20


class Command:
    def __init__(self, name, words, status=0, makes=None, own_failure=3, sample=True):
        self.name, self.words, self.status, self.makes, self.own_failure = name, words, status, makes, own_failure


def inputs(folder):
    """Small inputs: two runs that differ, two checkpoints, a tensor."""
    import numpy as np

    for name, value in (("good", 1.0), ("bad", 2.0)):
        run = folder / name
        (run / "tensors").mkdir(parents=True)
        lines = []
        for i in range(3):
            array = np.full((4, 5), value if i == 1 else 1.0, np.float32)
            np.save(run / "tensors" / f"t{i}.npy", array)
            lines.append(json.dumps({"seq": i, "name": f"stage.{i}", "step": None, "hit": 0, "tags": {}, "role": "output", "dtype": "f32", "shape": [4, 5], "stats": None,
                                     "preview": [], "checksum": "", "file": f"tensors/t{i}.npy", "where": None, "secs": 0}))
        (run / "records.jsonl").write_text("\n".join(lines) + "\n")
        (run / "run.json").write_text(json.dumps({"format": "lockstep-run", "version": 1, "id": name, "name": name, "created": "2026-01-01T00:00:00Z", "status": "finished"}))
        np.save(folder / f"{name}.npy", np.full((4, 5), value, np.float32))
        np.savez(folder / f"{name}.npz", a=np.full((4, 5), value, np.float32))
        header = json.dumps({"w": {"dtype": "F32", "shape": [4, 5], "data_offsets": [0, 80]}}).encode()
        (folder / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + np.full((4, 5), value, np.float32).tobytes())
    shutil.copytree(folder / "good", folder / "home" / "runs" / "good")


COMMANDS = [
    Command("version", ["--version"]),
    Command("doctor", ["--json", "doctor"]),
    Command("tensors list", ["tensors", "list", "good.npz"]),
    Command("tensors info", ["tensors", "info", "good.npy"]),
    Command("tensors show", ["tensors", "show", "good.npy"]),
    Command("tensors stats", ["tensors", "stats", "good.safetensors"]),
    Command("tensors diff", ["tensors", "diff", "good.npy", "bad.npy"], status=1),
    Command("tensors export", ["tensors", "export", "good.safetensors", "--output", "made.npz"], makes="made.npz"),
    Command("weights list", ["weights", "list", "good.safetensors"]),
    Command("weights report", ["weights", "report", "good.safetensors"]),
    Command("weights compare", ["weights", "compare", "good.safetensors", "bad.safetensors"], status=1),
    Command("runs list", ["runs", "list"]),
    Command("runs show", ["runs", "show", "good", "--verify"]),
    Command("runs limits", ["runs", "limits", "--warn", "1GB", "--refuse", "2GB"], makes="home/limits.json"),
    Command("runs archive", ["runs", "archive", "good"]),
    Command("runs remove", ["runs", "remove", "good"]),
    Command("compare match", ["compare", "good", "good"]),
    Command("compare", ["--json", "compare", "good", "bad"], status=1),
    Command("compare report", ["--quiet", "compare", "good", "bad", "--report", "made.html"], status=1, makes="made.html"),
    Command("record", ["record", "--", "true"], own_failure=125),
    Command("serve stop", ["serve", "--stop"]),
    Command("generate", ["--debug", "generate", "--prompt", "a red circle", "--seed", "1", "--steps", "2", "--width", "32", "--height", "32", "--output", "made.png"], makes="made.png"),
]


class Bench:
    """One command with its untouched inputs, its usual result and its scratch folder."""

    def __init__(self, command, shim, original, scratch):
        self.command, self.shim, self.original, self.scratch = command, shim, original, scratch
        self.usual = None
        self.serial = 0

    def fresh(self):
        self.serial += 1
        folder = self.scratch / f"{self.command.name.replace(' ', '_')}-{os.getpid()}-{self.serial}"
        shutil.copytree(self.original, folder)
        return folder

    def run(self, kind=None, n=0):
        folder = self.fresh()
        hit = folder.with_suffix(".hit")
        environment = {**os.environ, "LOCKSTEP_HOME": str(folder / "home"), "OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "1000", "NO_COLOR": "1"}
        if kind:
            environment.update(LD_PRELOAD=str(self.shim), LOCKSTEP_FAULT=f"{kind}:{n}", LOCKSTEP_FAULT_HIT=str(hit))
        try:
            done = subprocess.run([PROGRAM, *self.command.words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=HANGS_SECS * (1 if kind else 6))
            result = (done.returncode, done.stdout, done.stderr)
        except subprocess.TimeoutExpired:
            result = (None, "", f"no end within {HANGS_SECS} s")
        made = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                made[str(path.relative_to(folder))] = path.read_bytes()
        was_hit = hit.exists()
        hit.unlink(missing_ok=True)
        shutil.rmtree(folder)
        return was_hit, result, made

    def prepare(self):
        _, result, made = self.run()
        if result[0] != self.command.status:
            raise SystemExit(f"{self.command.name}: ends with {result[0]} where nothing fails: {result[2]}")
        self.usual = (result, made)

    def problem(self, kind, n):
        """(whether the call was reached, what is wrong or None)"""
        was_hit, (status, stdout, stderr), made = self.run(kind, n)
        (_, usual_stdout, _), usual_made = self.usual
        wrong = None
        if status is None:
            wrong = "hangs"
        elif status < 0:
            wrong = f"signal {-status}"
        elif not was_hit and status != self.command.status:
            wrong = f"status {status} where nothing failed"
        elif status not in (self.command.status, self.command.own_failure):
            wrong = f"status {status}"
        elif status == self.command.own_failure != self.command.status and "lockstep: " not in stderr:
            wrong = "a failure without words"
        elif status == self.command.status and kind != "write" and not self.same(stdout, usual_stdout):
            wrong = "another result under the usual status"
        elif self.command.makes:
            text = made.get(self.command.makes)
            if text is not None and len(text) != len(usual_made[self.command.makes]) and self.command.makes != "made.html":
                wrong = f"{self.command.makes} is half written ({len(text)} bytes of {len(usual_made[self.command.makes])})"
            elif text is None and status == self.command.status:
                wrong = f"{self.command.makes} is missing"
        if wrong is None:
            left = [name for name in made if ".tmp" in name or name.endswith(".new")]
            if left:
                wrong = f"left behind: {left}"
        if wrong is None:  # what was recorded before is still there
            for run in ("good/records.jsonl", "bad/records.jsonl"):
                if made.get(run) != usual_made.get(run):
                    wrong = f"{run} has changed"
        return was_hit, wrong and f"{self.command.name}, {kind} {n}: {wrong}\n    {stderr.strip()[-300:]}"

    def same(self, one, other):
        """Times, sizes of memory and ids aside."""
        if self.command.name in ("doctor", "record", "generate", "runs limits"):
            return True
        return one.replace(str(self.scratch), "") == other.replace(str(self.scratch), "") or self.command.name.startswith(("runs", "compare", "tensors", "weights")) and one.count("\n") == other.count("\n")

    def calls(self, kind):
        """How many calls of this kind the command makes, by bisection: one that is past the last is not reached."""
        if not self.run(kind, 1)[0]:
            return 0
        low, high = 1, 2
        while high < MOST_CALLS and self.run(kind, high)[0]:
            low, high = high, high * 4
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.run(kind, middle)[0] else (low, middle)
        return low


def all_points(bench, kinds):
    tried, found = 0, []
    for kind in kinds:
        n = 1
        while True:
            was_hit, wrong = bench.problem(kind, n)
            tried += was_hit
            if wrong:
                found.append(wrong)
            if not was_hit:
                break
            n += 1
    return tried, found


def build_shim(folder):
    shim = folder / "faults.so"
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fPIC", "-shared", "-o", shim, ROOT / "tools" / "faults" / "shim.c", "-ldl"], check=True)
    return shim


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if arguments.kind in ("", kind)]
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    chosen = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        shim = build_shim(temporary)
        original = temporary / "inputs"
        original.mkdir()
        inputs(original)
        benches = [Bench(command, shim, original, temporary) for command in COMMANDS if arguments.only in ("", command.name)]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            if arguments.sample:
                tried, found = sampled(benches, kinds, arguments.sample, chosen, pool)
                print(f"seed {seed}")
            else:
                for bench in benches:
                    bench.prepare()
                tried, found = 0, []
                for bench, (points, wrong) in zip(benches, pool.map(lambda bench: all_points(bench, kinds), benches)):
                    print(f"{bench.command.name}: {points} points, {len(wrong)} wrong", flush=True)
                    tried, found = tried + points, found + wrong
    for wrong in found:
        print(wrong)
    print(f"{tried} fault points, {len(found)} wrong")
    return 1 if found else 0


def sampled(benches, kinds, count, chosen, pool):
    """`count` points: a command and a kind, then a place among the calls, early ones more often than late ones."""
    plan = []
    for _ in range(count):
        bench, kind = chosen.choice(benches), chosen.choice(kinds)
        plan.append((bench, kind, int(2 ** (chosen.random() * (12 if kind == "allocate" else 5)))))
    for bench in {id(bench): bench for bench, _, _ in plan}.values():
        bench.prepare()
    results = list(pool.map(lambda point: point[0].problem(point[1], point[2]), plan))
    return sum(hit for hit, _ in results), [wrong for _, wrong in results if wrong]


if __name__ == "__main__":
    sys.exit(main())
