#!/usr/bin/env python3
"""Kills commands (SIGKILL) at random moments and looks at what is left: every run readable, every file whole or absent.

    tools/faults/kills.py [--count 500] [--seed S] [--jobs N]

The moments are drawn between the start and the usual end of each command; for those that record, most of them where
records are being written: after a number of them that is drawn too. Whatever the program had recorded by then is in its run.
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
from commands import PROGRAM, environment_of, inputs, plain  # noqa: E402

CONTENT = {  # kind: (share of the kills, words, file that it makes)
    "record": (40, ["record", "--", sys.executable, "records.py"], None),
    "generate": (
        15,
        [
            "--debug",
            "generate",
            "--prompt",
            "a red circle",
            "--steps",
            "2",
            "--width",
            "64",
            "--height",
            "64",
            "--output",
            "made.png",
        ],
        "made.png",
    ),
    "serve": (10, ["serve"], None),
    "debug": (12, ["debug", "start", "--python", sys.executable, "steps.py"], None),
    "clean": (7, ["clean", "--yes"], None),
    "clear": (3, ["tensors", "clear", "--yes"], None),
    "report": (13, ["--quiet", "compare", "good", "bad", "--report", "made.html"], "made.html"),
}


def fresh(original, scratch, serial, kind):
    folder = scratch / str(serial)
    shutil.copytree(original, folder)
    for i in range(20 if kind == "clear" else 0):
        shutil.copy(folder / "good.npy", folder / "home" / "saved" / f"s{i}.npy")
    for i in range(12 if kind == "clean" else 0):
        shutil.copytree(folder / "good", folder / "home" / "runs" / f"old{i}")
    return folder


def look(folder, kind, made):
    """What is wrong, in words."""
    listed = plain(folder, "--json", "runs", "list")
    if listed.returncode != 0:
        return f"runs list ends with {listed.returncode}: {listed.stderr}"
    records = 0
    done = (folder / "done").stat().st_size if (folder / "done").exists() else 0
    for one in json.loads(listed.stdout)["runs"]:
        shown = plain(folder, "--json", "runs", "show", one["id"], "--verify")
        if shown.returncode != 0:
            return f"run {one['id']} is not whole: {shown.returncode} {shown.stdout[-300:]} {shown.stderr[-300:]}"
        document = json.loads(shown.stdout)
        if document["run"]["status"] == "running":
            return f"run {one['id']} counts as running"
        if kind == "record" and one["id"] != "good":
            records += document["summary"]["records"]
    if kind == "record" and records < done:
        return f"{records} records are left of {done}"
    if made and (folder / made).exists():
        data = (folder / made).read_bytes()
        if not (data.rstrip().endswith(b"</html>") or data[-8:-4] == b"IEND"):
            return f"{made} is half written: {len(data)} bytes"
    if kind in ("serve", "debug"):
        again = plain(folder, "--json", "debug", "sessions")
        if again.returncode != 0:
            return f"no service can be started: {again.stderr}"
        for session in json.loads(again.stdout)["sessions"]:
            plain(folder, "debug", "terminate", "--force", "--session", session["id"])
        plain(folder, "serve", "--stop")
    return None


def wait_for_records(folder, kind, count, process):
    """Until so many have been recorded, or it has ended."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if kind == "record":
            now = (folder / "done").stat().st_size if (folder / "done").exists() else 0
        else:
            now = sum(path.read_bytes().count(b"\n") for path in (folder / "home" / "runs").glob("*-*/records.jsonl"))
        if now >= count:
            return
        time.sleep(0.0005)


def wait_for_group(group):
    """Until no process of it is left: a program whose recorder was killed goes on, and its run counts as running until it ends."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        alive = False
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, of = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            except (OSError, ValueError):
                continue  # it has ended meanwhile
            alive = alive or (int(of) == group and state not in "ZX")
        if not alive:
            return None
        time.sleep(0.01)
    return "its program goes on and on"


def kill_once(original, scratch, serial, kind, delay, count):
    folder = fresh(original, scratch, serial, kind)
    _, words, made = CONTENT[kind]
    process = subprocess.Popen(
        [PROGRAM, *words],
        cwd=folder,
        env=environment_of(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        if count is not None:
            wait_for_records(folder, kind, count, process)
            delay *= 0.02
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
    wrong = (wait_for_group(process.pid) if kind == "record" else None) or look(folder, kind, made)
    written = sum(len(path.read_bytes().splitlines()) for path in (folder / "home" / "runs").glob("*/records.jsonl"))
    shutil.rmtree(folder, ignore_errors=True)
    return in_time, written, wrong and f"{kind} after {delay:.3f} s, {count} records: {wrong}"


def usual_secs(original, scratch, kind):
    folder = fresh(original, scratch, f"usual-{kind}", kind)
    began = time.monotonic()
    if kind == "serve":
        process = subprocess.Popen(
            [PROGRAM, "serve"], cwd=folder, env=environment_of(folder), stderr=subprocess.DEVNULL
        )
        while not (folder / "home" / "service" / "service.json").exists() and time.monotonic() - began < 30:
            time.sleep(0.01)
        secs = time.monotonic() - began
        process.terminate()
        process.wait()
    else:
        plain(folder, *CONTENT[kind][1], timeout=300)
        secs = time.monotonic() - began
    if kind == "debug":
        plain(folder, "debug", "terminate", "--force")
        plain(folder, "serve", "--stop")
    shutil.rmtree(folder, ignore_errors=True)
    return secs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    chosen = random.Random(seed)
    kinds = list(CONTENT)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = pathlib.Path(temporary)
        original = scratch / "inputs"
        original.mkdir()
        inputs(original)
        usual = {kind: usual_secs(original, scratch, kind) for kind in kinds}
        plan = chosen.choices(kinds, [CONTENT[kind][0] for kind in kinds], k=arguments.count)
        most = {"record": 150, "generate": 40}
        points = []
        for serial, kind in enumerate(plan):
            count = chosen.randrange(most[kind]) if kind in most and chosen.random() < 0.8 else None
            points.append((serial, kind, usual[kind] * chosen.random(), count))
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(lambda point: kill_once(original, scratch, *point), points))
    found = [wrong for _, _, wrong in results if wrong]
    for wrong in found:
        print(wrong)
    in_time = sum(in_time for in_time, _, _ in results)
    print(
        f"{len(results)} kills, {in_time} before the end, {sum(written > 3 for _, written, _ in results)} with records written, {len(found)} wrong"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
