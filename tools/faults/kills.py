#!/usr/bin/env python3
"""Kills commands (SIGKILL) at random moments and looks at what is left: every run readable, every file whole or absent.

    tools/faults/kills.py [--count 500] [--seed S] [--jobs N]

The moments are drawn between the start and the usual end of each command; for those that record, most of them fall where
records are being written, because the program writes nothing else.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from inject import PROGRAM, ROOT, inputs  # noqa: E402

RECORDS = """
import numpy as np
from lockstep import checkpoint
for i in range(150):
    checkpoint(f"stage.{i}", np.full((96, 128), i, "f4"))
"""

CONTENT = {  # kind: (share of the kills, words, file that it makes)
    "record": (40, ["record", "--", sys.executable, "records.py"], None),
    "generate": (15, ["--debug", "generate", "--prompt", "a red circle", "--steps", "2", "--width", "64", "--height", "64", "--output", "made.png"], "made.png"),
    "serve": (10, ["serve"], None),
    "debug": (15, ["debug", "start", "--python", sys.executable, "steps.py"], None),
    "clear": (5, ["tensors", "clear", "--yes"], None),
    "report": (15, ["--quiet", "compare", "good", "bad", "--report", "made.html"], "made.html"),
}


def environment_of(folder):
    return {**os.environ, "LOCKSTEP_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}


def run(folder, *words, timeout=60):
    return subprocess.run([PROGRAM, *words], cwd=folder, env=environment_of(folder), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def fresh(original, scratch, serial):
    folder = scratch / str(serial)
    shutil.copytree(original, folder)
    (folder / "records.py").write_text(RECORDS)
    (folder / "steps.py").write_text("import time\nfor i in range(3):\n    print(i)\n")
    (folder / "home" / "saved").mkdir(parents=True, exist_ok=True)
    for i in range(20):
        shutil.copy(folder / "good.npy", folder / "home" / "saved" / f"s{i}.npy")
    return folder


def look(folder, kind, made):
    """What is wrong, in words."""
    listed = run(folder, "--json", "runs", "list")
    if listed.returncode != 0:
        return f"runs list ends with {listed.returncode}: {listed.stderr}"
    records = 0
    for one in json.loads(listed.stdout)["runs"]:
        shown = run(folder, "--json", "runs", "show", one["id"], "--verify")
        if shown.returncode != 0:
            return f"run {one['id']} is not whole: {shown.returncode} {shown.stdout[-300:]} {shown.stderr[-300:]}"
        document = json.loads(shown.stdout)
        if document["run"]["status"] == "running":
            return f"run {one['id']} counts as running"
        records += document["summary"]["records"]
    if made and (folder / made).exists():
        data = (folder / made).read_bytes()
        if not (data.rstrip().endswith(b"</html>") or data[-8:-4] == b"IEND"):
            return f"{made} is half written: {len(data)} bytes"
    if kind in ("serve", "debug"):
        again = run(folder, "--json", "debug", "sessions")
        if again.returncode != 0:
            return f"no service can be started: {again.stderr}"
        for session in json.loads(again.stdout)["sessions"]:
            run(folder, "debug", "terminate", "--force", "--session", session["id"])
        run(folder, "serve", "--stop")
    return None


def kill_once(original, scratch, serial, kind, delay):
    folder = fresh(original, scratch, serial)
    _, words, made = CONTENT[kind]
    process = subprocess.Popen([PROGRAM, *words], cwd=folder, env=environment_of(folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(delay)
        in_time = False  # it was faster
    except subprocess.TimeoutExpired:
        in_time = True
    if kind == "record" and serial % 2:  # the recorded program too: the whole group at once
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.kill()
    process.wait()
    if kind == "debug" and in_time:  # and the service that it has started
        try:
            os.kill(json.loads((folder / "home" / "service" / "service.json").read_text())["pid"], signal.SIGKILL)
        except (OSError, ValueError, KeyError):
            pass
    wrong = look(folder, kind, made)
    written = sum(len(path.read_bytes().splitlines()) for path in (folder / "home" / "runs").glob("*/records.jsonl"))
    shutil.rmtree(folder, ignore_errors=True)
    return in_time, written, wrong and f"{kind} after {delay:.3f} s: {wrong}"


def usual_secs(original, scratch, kind):
    folder = fresh(original, scratch, f"usual-{kind}")
    began = time.monotonic()
    if kind == "serve":
        process = subprocess.Popen([PROGRAM, "serve"], cwd=folder, env=environment_of(folder), stderr=subprocess.DEVNULL)
        while not (folder / "home" / "service" / "service.json").exists() and time.monotonic() - began < 30:
            time.sleep(0.01)
        secs = time.monotonic() - began
        process.terminate()
        process.wait()
    else:
        run(folder, *CONTENT[kind][1], timeout=300)
        secs = time.monotonic() - began
    if kind == "debug":
        run(folder, "debug", "terminate", "--force")
        run(folder, "serve", "--stop")
    shutil.rmtree(folder, ignore_errors=True)
    return secs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    chosen = random.Random(seed)
    kinds = list(CONTENT)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = pathlib.Path(temporary)
        original = scratch / "inputs"
        original.mkdir()
        inputs(original)
        usual = {kind: usual_secs(original, scratch, kind) for kind in kinds}
        plan = chosen.choices(kinds, [CONTENT[kind][0] for kind in kinds], k=arguments.count)
        points = [(serial, kind, usual[kind] * chosen.random()) for serial, kind in enumerate(plan)]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(lambda point: kill_once(original, scratch, *point), points))
    found = [wrong for _, _, wrong in results if wrong]
    for wrong in found:
        print(wrong)
    print(f"seed {seed}")
    in_time = sum(in_time for in_time, _, _ in results)
    print(f"{len(results)} kills, {in_time} before the end, {sum(written > 3 for _, written, _ in results)} with records written, {len(found)} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
