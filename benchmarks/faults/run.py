"""Plants every fault in turn, records it, compares it with the clean run and scores what `lockstep compare` says.

./dev bench faults            all faults and the clean pairs; prints the table
./dev bench faults --only dit.*   some of them, with what was said
./dev bench faults --set blind_07_port_reports --no-clean   another set
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tools" / "reference")]
from sets import CLEAN_SETS, FAULT_SETS, chosen_from  # noqa: E402  found by the path above

BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))


def compare(reference, candidate, weights=None, *more) -> dict:
    command = [BINARY, "compare", str(reference), str(candidate), "--json", *more]
    if weights:
        command += ["--weights", str(weights)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def found_place(result: dict) -> str:
    first = result["first_divergence"]
    return f"{first['role']}:{first['name']}" if first else "-"


def shown_by_outputs(stages):
    """Where a wrong input first shows when inputs are not recorded: what the module, or the first of its children, makes of it."""
    return stages + [f"output:{stage.removeprefix('input:')}{end}" for stage in stages if stage.startswith("input:") for end in ("", ".*")] + [
        f"output:{parent}.*" for stage in stages if stage.startswith("input:") and (parent := stage.removeprefix("input:").rpartition(".")[0])
    ]  # fmt: skip


def score(fault, result: dict) -> dict:
    if fault.kind == "layout":  # another layout of the same values is no error: it must be said, and nothing else
        said = [t for t in result["tensors"] if t["state"] == "layout"]
        good = result["verdict"] == "match" and bool(said) and all(f"output:{t['name']}" in fault.stage for t in said)
        return {"stage": good, "first": good, "three": good, "place": "layout" if said else "-", "causes": []}
    place = found_place(result)
    if fault.kind == "shape":  # other tokens were captured: said before any verdict on values
        first = result["first_divergence"]
        good = (
            bool(first) and first["kind"] == "capture" and any(fnmatch.fnmatchcase(place, glob) for glob in fault.stage)
        )
        return {"stage": good, "first": good, "three": good, "place": place, "causes": []}
    if not fault.causes:  # nothing to name: only the place counts, and silence is right
        good = any(fnmatch.fnmatchcase(place, glob) for glob in fault.stage)
        silent = not result["causes"]
        return {
            "stage": good,
            "first": silent,
            "three": silent,
            "place": place,
            "causes": [c["cause"] for c in result["causes"]],
        }
    causes = [c["cause"] for c in result["causes"]]
    return {
        "stage": any(fnmatch.fnmatchcase(place, glob) for glob in fault.stage),
        "first": bool(causes) and causes[0] in fault.causes,
        "three": any(cause in fault.causes for cause in causes[:3]),
        "place": place,
        "causes": causes,
    }


def without_inputs(change):
    """The captures of a port written by hand: what its layers give, not what they are given."""

    def outputs(name, role, step, tags, tensor):
        if role == "input":
            return None
        return change(name, role, step, tags, tensor) if change else tensor

    return outputs


def percent(part: int, whole: int) -> str:
    return f"{part}/{whole} = {100 * part / max(1, whole):.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="glob of fault ids")
    parser.add_argument(
        "--set",
        type=chosen_from(FAULT_SETS),
        default=FAULT_SETS[0],
        metavar="NAME",
        help=f"{', '.join(FAULT_SETS)}; or a number",
    )
    parser.add_argument("--model", type=int, default=0, help="which of the clean pairs' models")
    parser.add_argument("--dtype", default="f32", help="of the runs with a fault (f32, bf16, f16)")
    parser.add_argument("--reference-dtype", default="f32", help="of the run without")
    parser.add_argument(
        "--outputs-only",
        action="store_true",
        help="the run with a fault has no inputs, as a port that names its tensors by hand",
    )
    parser.add_argument("--ids", help="these faults, by id, with commas between")
    parser.add_argument("--keep", metavar="DIR", help="keep the runs there")
    parser.add_argument("--reuse", action="store_true", help="compare again what --keep has kept")
    parser.add_argument(
        "--clean-set", type=chosen_from(CLEAN_SETS), default=CLEAN_SETS[0], metavar="NAME", help=", ".join(CLEAN_SETS)
    )
    parser.add_argument("--no-clean", action="store_true", help="leave the clean pairs out")
    parser.add_argument("--clean-only", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()

    from recorder import record  # first: it must see torch and diffusers being imported

    import torch

    torch.set_num_threads(1)
    from clean_01_rounding import MODELS
    from worlds import World, prepare

    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # thousands of small files
    home = Path(arguments.keep or tempfile.mkdtemp(prefix="lockstep-faults-", dir=memory))
    home.mkdir(parents=True, exist_ok=True)
    usual = World("usual", MODELS[arguments.model], {}, arguments.dtype, arguments.reference_dtype)
    rows, started = [], time.monotonic()
    if not arguments.clean_only:
        FAULTS = importlib.import_module(arguments.set).FAULTS
        ids = arguments.ids.split(",") if arguments.ids else None
        chosen = [f for f in FAULTS if (f.id in ids if ids else fnmatch.fnmatchcase(f.id, arguments.only))]
        prepared = {}
        for fault in chosen:
            world = fault.world or usual
            if world.name not in prepared:
                prepared[world.name] = prepare(home, world, arguments.reuse)
            model, pipeline, clean = prepared[world.name]
            folder = home / f"fault-{fault.id}"
            try:
                if not (arguments.reuse and folder.exists()):
                    with fault.plant(pipeline) if fault.plant else contextlib.nullcontext():
                        change = without_inputs(fault.change) if arguments.outputs_only else fault.change
                        record(pipeline, folder, change=change, **(world.settings | fault.settings))
                if arguments.outputs_only:
                    fault = dataclasses.replace(fault, stage=shown_by_outputs(list(fault.stage)))
                result = compare(clean, folder, model)
                row = score(fault, result) | {"id": fault.id, "area": fault.area}
            except Exception as error:  # noqa: BLE001  a fault that cannot be planted is a miss, said aloud
                row = {"id": fault.id, "area": fault.area, "stage": False, "first": False, "three": False,
                       "place": f"{type(error).__name__}: {error}"[:300], "causes": []}  # fmt: skip
            rows.append(row)
            mark = lambda ok: "yes" if ok else "NO"  # noqa: E731
            print(f"{row['id']:<32} stage {mark(row['stage']):<4} first {mark(row['first']):<4} three {mark(row['three']):<4}"
                  f" {row['place']}  {', '.join(row['causes'])}", flush=True)  # fmt: skip
            if not arguments.keep:
                shutil.rmtree(folder, ignore_errors=True)
        if rows:
            print()
            areas = sorted({row["area"] for row in rows}) + ["all"]
            print(f"{'area':<14} {'faults':>6} {'right stage':>18} {'cause first':>18} {'in first three':>18}")
            for area in areas:
                group = [row for row in rows if area in ("all", row["area"])]
                cells = [percent(sum(row[key] for row in group), len(group)) for key in ("stage", "first", "three")]
                print(f"{area:<14} {len(group):>6} {cells[0]:>18} {cells[1]:>18} {cells[2]:>18}")
    alarms = []
    if not arguments.no_clean and arguments.only == "*":
        pairs = importlib.import_module(arguments.clean_set)
        alarms = pairs.run_clean_pairs(home, compare, keep=bool(arguments.keep), reuse=arguments.reuse)
    print(f"\n{time.monotonic() - started:.0f} s")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"faults": rows, "false_alarms": alarms}, indent=1))
    if not arguments.keep:
        shutil.rmtree(home, ignore_errors=True)
    total = len(rows)
    good = not rows or (
        sum(r["stage"] for r in rows) >= 0.95 * total
        and sum(r["first"] for r in rows) >= 0.85 * total
        and sum(r["three"] for r in rows) >= 0.95 * total
    )
    return 0 if good and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
