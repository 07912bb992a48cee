"""Checks a set of faults itself, without the program that is judged by it: every fault is planted and run, the first recorded
tensor that differs must be the one the set names, and the fault must be far above rounding. Of the clean pairs it says how far
apart they are.

    python benchmarks/faults/check_sets.py --set blind_04_other_models
    python benchmarks/faults/check_sets.py --clean-set clean_02_other_worlds
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools" / "reference")]
from sets import CLEAN_SETS, FAULT_SETS, chosen_from  # noqa: E402  found by the path above


class Memory:
    """Stands where a recording session does and keeps the tensors in the order in which they come."""

    def __init__(self, change=None):
        self.change, self.tensors, self.hits = change, {}, {}

    def offer(self, name, value, *, role="checkpoint", step=None, tags=None, where=None, hit=-1):
        import torch

        shown = value
        if isinstance(value, torch.Tensor) and value.is_complex():
            shown = torch.view_as_real(value)
        if self.change:
            shown = self.change(name, role, step, tags or {}, shown)
        if shown is not None:
            place = (role, name, step, (tags or {}).get("pass"))
            hit = self.hits[place] = self.hits.get(place, -1) + 1
            kept = shown.detach() if isinstance(shown, torch.Tensor) else torch.tensor(shown)
            self.tensors[(*place, hit)] = kept.clone() if kept.is_floating_point() else kept.to(torch.float64)
        return value

    def describe(self, _details):
        pass


def run(pipeline, change=None, **settings) -> dict:
    """What one run of the pipeline records: (role, name, step, pass, hit) → tensor."""
    import recorder
    import torch

    memory = Memory(change)
    recorder.pipelines._wrap_methods(type(pipeline), recorder.RECORDER)
    session, recorder._session._session = recorder._session._session, memory
    try:
        with torch.no_grad():
            recorder.run_pipeline(pipeline, **settings)
    finally:
        recorder._session._session = session
    return memory.tensors


def error(reference, candidate) -> float:
    """Relative; infinite where shapes differ or something is not a number."""
    if reference.shape != candidate.shape:
        return float("inf")
    a, b = reference.double(), candidate.double()
    if not bool(b.isfinite().all()):
        return float("inf")
    return float((a - b).norm() / max(float(a.norm()), 1e-300))


def errors(reference: dict, candidate: dict) -> dict:
    """(role, name, ...) → relative error of what both have, in the candidate's order."""
    return {place: error(reference[place], tensor) for place, tensor in candidate.items() if place in reference}


def last(found: dict, name: str) -> float:
    return max([value for place, value in found.items() if place[1] == name][-1:], default=0.0)


def check(fault, reference: dict, candidate: dict, floor: float) -> tuple[bool, str]:
    found = errors(reference, candidate)
    wrong = {place: value for place, value in found.items() if value > floor}
    if not wrong:
        return False, "nothing differs"
    (role, name, step, which, hit), size = next(iter(wrong.items()))
    at_stage = any(fnmatch.fnmatchcase(f"{role}:{name}", glob) for glob in fault.stage)
    latents, image = last(found, "latents"), last(found, "image")
    reaches = fault.area == "capture" or latents > 10 * floor or image > 0.01
    below = max([value for place, value in found.items() if place not in wrong], default=0.0)
    absent = len(reference.keys() ^ candidate.keys())
    words = f"{role}:{name} step {step} {which or ''} hit {hit} off by {size:.1e}; latents {latents:.1e}, image {image:.1e}; rest {below:.0e}"
    return at_stage and reaches and size > 50 * floor, words + (
        f"; {absent} recorded by one run only" if absent else ""
    )


def measure_clean_pairs(pairs, only: str) -> int:
    """How far the runs of each pair are apart; a pair is bad when nothing differs or something is not a number."""
    from recorder import load
    from tiny_pipeline import make_pipeline

    bad, chosen = 0, [pair for pair in pairs.PAIRS if fnmatch.fnmatchcase(pair.name, only)]
    with tempfile.TemporaryDirectory() as home:
        for pair in chosen:
            world, model = pair.world, Path(home) / "model"
            make_pipeline(model, **world.model)
            runs = []
            for dtype, difference in ((world.reference_dtype, None), (world.dtype, pair.candidate)):
                pipeline = load(model, dtype)
                with pairs.all_of(*(plant for plant in (pair.both, difference) if plant))(pipeline):
                    runs.append(run(pipeline, **world.settings))
            found = errors(*runs)
            place, worst = max(found.items(), key=lambda item: item[1])
            good = 0 < worst < float("inf") and runs[0].keys() == runs[1].keys()
            bad += not good
            print(f"{world.name:<26} {pair.name:<52} {'good' if good else 'BAD':<5} latents {last(found, 'latents'):.1e},"
                  f" worst {worst:.1e} at {place[0]}:{place[1]}; {len(runs[0])} tensors", flush=True)  # fmt: skip
    print(f"{len(chosen)} pairs, {bad} bad")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=chosen_from(FAULT_SETS), default=FAULT_SETS[0], metavar="NAME")
    parser.add_argument(
        "--clean-set", type=chosen_from(CLEAN_SETS[1:]), metavar="NAME", help="these clean pairs instead of faults"
    )
    parser.add_argument("--only", default="*", help="glob of fault ids, or of the pairs' names")
    arguments = parser.parse_args()

    from recorder import load  # first: it must see torch and diffusers being imported

    import torch
    from clean_01_rounding import MODELS
    from tiny_pipeline import make_pipeline
    from worlds import World

    torch.set_num_threads(1)
    if arguments.clean_set:
        return measure_clean_pairs(importlib.import_module(arguments.clean_set), arguments.only)
    faults = [f for f in importlib.import_module(arguments.set).FAULTS if fnmatch.fnmatchcase(f.id, arguments.only)]
    bad, prepared = 0, {}
    with tempfile.TemporaryDirectory() as home:
        for fault in faults:
            world = fault.world or World("usual", MODELS[0])
            if world.name not in prepared:
                make_pipeline(Path(home) / world.name, **world.model)
                pipeline = load(Path(home) / world.name, world.dtype)
                reference = run(load(Path(home) / world.name, world.reference_dtype), **world.settings)
                prepared[world.name] = world, pipeline, reference
            _, pipeline, reference = prepared[world.name]
            try:
                with fault.plant(pipeline) if fault.plant else contextlib.nullcontext():
                    candidate = run(pipeline, fault.change, **(world.settings | fault.settings))
                good, words = check(fault, reference, candidate, 1e-5)
            except Exception as problem:  # noqa: BLE001  said in the table
                good, words = False, f"{type(problem).__name__}: {problem}"
            bad += not good
            print(f"{fault.id:<34} {'good' if good else 'BAD':<5} {words}", flush=True)
        for world, pipeline, reference in prepared.values():  # a fault that was pulled out has left nothing behind
            left = max(errors(reference, run(pipeline, **world.settings)).values())
            bad += left > 0 and world.dtype == world.reference_dtype
            print(f"world {world.name}: off by {left:.1e} without a fault")
    print(f"{len(faults)} faults, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
