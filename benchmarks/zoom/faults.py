"""Scores `lockstep zoom` on faults of benchmarks/faults, drawn by seed from the blind sets: is the planted line among the named ones?

./dev bench zoom_faults                    60 faults
./dev bench zoom_faults --count 20 --seed 7
./dev bench zoom_faults --ids dit.last_block_causal --show
./dev bench zoom_faults --keep DIR, then --keep DIR --reuse     asks again about the same recordings
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "benchmarks" / "faults"), str(ROOT / "tools" / "reference")]
BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))


def program(*words):
    done = subprocess.run(
        [BINARY, *map(str, words)], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def call_to_trace(first):
    """The module to look into, as `lockstep zoom` chooses it."""
    return (first["parent"] or "pipeline") if first["kind"] == "glue" else first["stage"]


class CallSeen(BaseException):
    pass


def traced(recorder, pipeline, folder, module, first, settings):
    """A run with the operations of that call alone."""
    from lockstep.operations import Operations

    hit = "" if first["kind"] == "glue" else first["hit"]
    step = "" if first["step"] is None else first["step"]
    os.environ["LOCKSTEP_OPERATIONS"] = module
    os.environ["LOCKSTEP_OPERATIONS_END"] = "1"
    # The pipeline's own code is one call, whatever step shows its error.
    os.environ["LOCKSTEP_OPERATIONS_AT"] = (
        "::" if module == "pipeline" else f"{step}:{hit}:{first['tags'].get('pass', '')}"
    )

    class UpToTheCall(Operations):
        """The pipeline's run is over when the call is."""

        def _end_program(self):
            raise CallSeen

    recorder.RECORDER.operations = UpToTheCall()
    recorder.RECORDER._modules, recorder.RECORDER._wanted = [module], {}
    whole = recorder.run_pipeline

    def until_seen(*args, **kwargs):
        with contextlib.suppress(CallSeen):
            whole(*args, **kwargs)

    recorder.run_pipeline = until_seen
    try:
        recorder.record(pipeline, folder, **settings)
    finally:
        recorder.run_pipeline = whole
        recorder.RECORDER.operations = None
        recorder.RECORDER._modules, recorder.RECORDER._wanted = [], {}
    run = folder / "run.json"
    manifest = json.loads(run.read_text())
    manifest.pop("program", None)  # or zoom would run this benchmark again
    run.write_text(json.dumps(manifest))
    if not (folder / "operations.jsonl").exists():
        raise LookupError(f"{module} is not a module that is called there")
    return folder


def drawn(count, seed):
    from sets import FAULT_SETS

    found = []
    for name in FAULT_SETS:
        if name.startswith("blind"):
            found += [
                (name, fault)
                for fault in importlib.import_module(name).FAULTS
                if fault.plant is not None and fault.kind is None
            ]
    return random.Random(seed).sample(found, min(count, len(found))), found


def recorded(recorder, world, fault, prepared, folder):
    """Records both sides of the call that shows the fault. Returns its name; the tapes and what was planted are in the folder."""
    import planted_lines

    model, pipeline, clean, reference = prepared
    settings = world.settings | fault.settings
    planted = planted_lines.begin(folder / "planted")
    with fault.plant(pipeline):
        faulty = recorder.record(pipeline, folder / "faulty", **settings)
        compared = json.loads(program("--json", "compare", clean, faulty, "--weights", model))
        first = compared["first_divergence"]
        if first is None:
            raise LookupError("no divergence")
    module = call_to_trace(first)
    for _ in range(4):
        with fault.plant(pipeline):
            traced(recorder, pipeline, folder / "yours", module, first, settings)
        # Without the fault: one in a class or in a function of a module would be in both.
        traced(recorder, reference, folder / "theirs", module, first, settings)
        answer = json.loads(program("--json", "zoom", folder / "theirs", folder / "yours", "--stage", module))
        # As `lockstep zoom` does: what is wrong before the call was done by whoever called it.
        if module == "pipeline" or all(one["distance"] < 1e-2 for one in answer["inputs"]):
            break
        module = module.rpartition(".")[0] or "pipeline"
    shutil.rmtree(folder / "faulty")
    causes = [one["cause"] for one in compared["causes"]]
    (folder / "case.json").write_text(json.dumps({"module": module, "planted": planted.as_json(), "causes": causes}))


def judged(fault, folder, show):
    """What zoom says about the recorded call, and whether it is true."""
    import planted_lines

    case = json.loads((folder / "case.json").read_text())
    planted = planted_lines.Planted.from_json(case["planted"])
    words = ("zoom", folder / "theirs", folder / "yours", "--stage", case["module"])
    started = time.monotonic()
    answer = json.loads(program("--json", *words))
    seconds = time.monotonic() - started
    if show:
        print(program(*words))
    mine = {(one["file"], one["line"]) for region in answer["regions"] for one in region["yours"]}
    found = any(planted.judges(region) for region in answer["regions"])
    zoomed = [region["cause"]["cause"] for region in answer["regions"] if "cause" in region]
    return {
        "found": found,
        "lines": len(mine),
        "misleading": bool(mine) and not found and not answer.get("unsure", False),
        "kinds": [region["kind"] for region in answer["regions"]],
        "said": case["module"],
        "named": sorted(f"{Path(file).name}:{line}" for file, line in mine),
        "planted": planted.in_words(),
        "seconds": seconds,
        # Causes of the comparison and of the regions, as far as they are those that the set accepts.
        "cause": bool(set(case["causes"][:1]) & set(fault.causes)),
        "cause_by_zoom": bool(set(zoomed) & set(fault.causes)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--ids", help="these faults, by id, with commas between")
    parser.add_argument("--show", action="store_true", help="print what zoom says")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings there")
    parser.add_argument("--reuse", action="store_true", help="ask again about what --keep has kept")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()

    import recorder  # first: it must see torch and diffusers being imported

    import torch

    import planted_lines  # noqa: F401  before the sets: it watches what they plant

    torch.set_num_threads(1)
    from clean_01_rounding import MODELS
    from worlds import World, prepare

    usual = World("usual", MODELS[0])
    chosen, every = drawn(arguments.count, arguments.seed)
    if arguments.ids:
        chosen = [pair for pair in every if pair[1].id in arguments.ids.split(",")]
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # thousands of small files
    home = Path(tempfile.mkdtemp(prefix="lockstep-zoom-", dir=memory))
    prepared, rows, started = {}, [], time.monotonic()
    for set_name, fault in sorted(chosen, key=lambda pair: (pair[1].world or usual).name):
        world = fault.world or usual
        folder = (arguments.keep or home) / f"{set_name}.{fault.id}"
        row = {"id": fault.id, "set": set_name, "area": fault.area, "found": False, "lines": 0, "misleading": False, "kinds": [], "said": "",
               "cause": False, "cause_by_zoom": False}  # fmt: skip
        try:
            if not (arguments.reuse and (folder / "case.json").exists()):
                if arguments.reuse and (folder / "failed").exists():
                    raise LookupError((folder / "failed").read_text())
                if world.name not in prepared:
                    for old in home.iterdir():
                        shutil.rmtree(old)
                    model, pipeline, clean = prepare(home, world)
                    prepared = {world.name: (model, pipeline, clean, recorder.load(model, world.reference_dtype))}
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                try:
                    recorded(recorder, world, fault, prepared[world.name], folder)
                except LookupError as error:
                    (folder / "failed").write_text(str(error))
                    raise
            row |= judged(fault, folder, arguments.show)
        except LookupError as error:
            row["said"] = str(error)
        except Exception as error:  # noqa: BLE001  a fault that cannot be looked into is a miss, said aloud
            row["said"] = f"{type(error).__name__}: {error}"[:200]
        rows.append(row)
        print(f"{row['id']:<44} {'found' if row['found'] else 'MISLED' if row['misleading'] else 'MISSED':<7} lines {row['lines']:<3} "
              f"{', '.join(row['kinds']):<32} {row['said']}", flush=True)  # fmt: skip
        if arguments.json:  # as far as it has come
            Path(arguments.json).write_text(json.dumps(rows, indent=1))
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{'area':<16} {'faults':>6} {'line named':>12} {'misleading':>12}")
    for area in [*sorted({row["area"] for row in rows}), "all"]:
        group = [row for row in rows if area in ("all", row["area"])]
        print(
            f"{area:<16} {len(group):>6} {sum(row['found'] for row in group):>12} {sum(row['misleading'] for row in group):>12}"
        )
    lines = sorted(row["lines"] for row in rows if row["lines"])
    if lines:
        print(
            f"lines named: median {statistics.median(lines)}, 90th percentile {lines[int(0.9 * (len(lines) - 1))]}, most {lines[-1]}"
        )
    causes = sum(row["cause"] for row in rows), sum(row["cause"] or row["cause_by_zoom"] for row in rows)
    print(f"cause named: {causes[0]} by the comparison, {causes[1]} with zoom; {time.monotonic() - started:.0f} s")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
