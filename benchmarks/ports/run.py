"""Ports as they come from PyPI: recorded, compared with what they port, clean and with mistakes in them.

./dev bench ports record            environments, references, clean runs and mistakes (both halves: --half)
./dev bench ports score             compare what was recorded, print the tables
./dev bench ports score --only 'mflux/*' --show
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from build_stable_diffusion_cpp import built_driver, fetched  # noqa: E402
from truth import false_sentences  # noqa: E402
from environments import NATIVE, OFFICIAL, PORTS, environment, model_of, planted, planted_copy, quiet_environment  # noqa: E402

BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
MODES = ("inputs", "outputs", "by_hand")


def mistakes_of(port, half):
    files = {"blind_a": ("mistakes",), "blind_b": ("held_out",), "both": ("mistakes", "held_out")}[half]
    names = [name for name in (f"{file}_{port.name}" for file in files) if (HERE / f"{name}.py").exists()]
    return [one for name in names for one in importlib.import_module(name).MISTAKES]


def lockstep(*arguments, **more):
    return subprocess.run(
        [BINARY, *map(str, arguments)], env=quiet_environment(), capture_output=True, text=True, **more
    )


def take(home: Path, name: str, folder: Path):
    """The run that was recorded last under this name, at a place of our own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(os.path.realpath(home / "latest" / name), folder)


def record_reference(port, model, work, dtype):
    folder = work / port.name / f"reference-{dtype}"
    if folder.exists():
        return folder
    home = work / "homes" / port.name
    if port.reference:
        done = lockstep(
            "--home",
            home,
            "record",
            "--inputs",
            "--name",
            "reference",
            "--",
            sys.executable,
            HERE / port.reference,
            "--model",
            model,
            "--dtype",
            dtype,
        )
    else:
        options = ["--negative-prompt", " ", *OFFICIAL]
        done = lockstep(
            "--home",
            home,
            "reference",
            "generate",
            "--python",
            sys.executable,
            "--name",
            "reference",
            "--model",
            model,
            "--dtype",
            dtype,
            *options,
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    take(home, "reference", folder)
    return folder


def record_port(port, python, model, work, name, dtype, path=None):
    """One run of the port with everything in it; the modes take from it what they record."""
    folder = work / port.name / name
    if folder.exists():
        return folder
    home = work / "homes" / port.name
    arguments = [python, HERE / port.driver, "--model", model, "--dtype", dtype, "--by-hand", *port.arguments]
    if "--prompt" in port.arguments:
        arguments += ["--output", work / f"{port.name}.png"]
    before = os.environ.get("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = str(path)
    try:
        done = lockstep("--home", home, "record", "--inputs", "--name", "port", "--", *arguments)
    finally:
        os.environ.pop("PYTHONPATH", None) if before is None else os.environ.update(PYTHONPATH=before)
    if not (home / "latest" / "port").exists():
        raise RuntimeError(done.stderr[-2000:])
    take(home, "port", folder)
    if done.returncode:
        print(f"{port.name}/{name}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
    return folder


def record_native(port, folder, model, work, name, mistake=None, as_official=True):
    """The transformer of stable-diffusion.cpp on the inputs of the reference, with the headers as they came or with a mistake."""
    run = work / port.name / name
    if run.exists():
        return run
    headers = fetched(folder) / "src"
    if mistake is not None:
        headers = planted_copy(port, headers, mistake, work / "planted" / port.name) / port.package
    program = built_driver(folder, headers, name, as_official)
    prepared = work / "prepared"
    reference = record_reference(port, model, work, "f32")
    made = subprocess.run([sys.executable, HERE / "prepare_stable_diffusion_cpp.py", "--model", model, "--reference", reference, prepared],
                          check=True, capture_output=True, text=True)  # fmt: skip
    home = work / "homes" / port.name
    given = quiet_environment() | {"LOCKSTEP_RECORD": "port", "LOCKSTEP_HOME": str(home)}
    done = subprocess.run(
        [program, prepared / "weights.bin", prepared / "inputs.bin", made.stdout.strip()],
        env=given,
        capture_output=True,
        text=True,
    )
    if not (home / "latest" / "port").exists():
        raise RuntimeError(done.stderr[-2000:])
    take(home, "port", run)
    return run


# stable-diffusion.cpp has no hand-named tensors: these nodes of its graph take names that a porter would give them.
NATIVE_BY_HAND = {
    "dit.txt_in": "text",
    "ggml_runner_cut:qwen_image.transformer_blocks.0|img": "first_block",
    "ggml_runner_cut:qwen_image.transformer_blocks.5|img": "last_block",
    "dit.proj_out": "predicted_noise",
}


def only(run: Path, mode: str, folder: Path) -> Path:
    """What `record --inputs`, `record`, or the hand-named checkpoints alone would have kept of a run."""
    roles = {"inputs": {"output", "input", "variable"}, "outputs": {"output", "variable"}, "by_hand": {"checkpoint"}}[
        mode
    ]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tensors").mkdir(parents=True)
    shutil.copy(run / "run.json", folder)
    if mode != "by_hand" and (run / "weights.jsonl").exists():
        shutil.copy(run / "weights.jsonl", folder)
    kept = []
    for line in (run / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        if mode == "by_hand" and record["role"] == "output" and record["name"] in NATIVE_BY_HAND:
            record |= {"name": NATIVE_BY_HAND[record["name"]], "role": "checkpoint"}
        if record["role"] in roles:
            kept.append(record | {"seq": len(kept)})
            if record["file"] and not (folder / record["file"]).exists():
                os.link(run / record["file"], folder / record["file"])
    (folder / "records.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    return folder


def record(options) -> int:
    for port in chosen_ports(options):
        python, model = environment(port, options.environments), model_of(port, options.work)
        for dtype in {"f32", port.own_dtype}:
            record_reference(port, model, options.work, dtype)
        if port.name == NATIVE:
            record_native(port, python, model, options.work, "clean-f32")
            record_native(port, python, model, options.work, "clean-own", as_official=False)
        else:
            record_port(port, python, model, options.work, "clean-f32", "f32")
            record_port(port, python, model, options.work, "clean-own", "own")
        for mistake in mistakes_of(port, options.half):
            if not fnmatch.fnmatchcase(f"{port.name}/{mistake.id}", options.only):
                continue
            if (options.work / port.name / mistake.id).exists():
                continue
            started = time.monotonic()
            try:
                if port.name == NATIVE:
                    record_native(port, python, model, options.work, mistake.id, mistake)
                else:
                    path = planted(port, python, mistake, options.work / "planted" / port.name)
                    record_port(port, python, model, options.work, mistake.id, "f32", path)
                print(f"{port.name}/{mistake.id}: {time.monotonic() - started:.0f} s", flush=True)
            except RuntimeError as error:
                print(f"{port.name}/{mistake.id}: NOT RECORDED: {str(error)[-400:]}", flush=True)
    return 0


def chosen_ports(options):
    return [port for name, port in PORTS.items() if options.port in ("all", name)]


def compare(reference, candidate, report: Path) -> dict:
    before = seconds_of_children()
    try:
        done = lockstep("compare", reference, candidate, "--json", timeout=300)
    except subprocess.TimeoutExpired:
        return {"verdict": "timeout", "first_divergence": None, "causes": [], "seconds": math.inf}
    seconds = seconds_of_children() - before
    report.write_text(done.stdout)
    try:
        answer = json.loads(done.stdout)
        report.write_text(done.stdout)
        return answer | {"false": false_sentences(reference, candidate, answer), "seconds": seconds}
    except ValueError:
        return {
            "verdict": f"exit {done.returncode}: {done.stderr.strip()[-200:]}",
            "first_divergence": None,
            "causes": [],
            "seconds": seconds,
        }


def seconds_of_children() -> float:
    """Of processor time: how long an answer takes must not depend on what else the machine does."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def score_one(mistake, port, mode, result) -> dict:
    first = result.get("first_divergence")
    place = f"{first['role']}:{first['name']}" if first else "-"
    stages = mistake.stage + (
        port.checkpoints[mistake.checkpoint] + (f"*:{mistake.checkpoint}",) if mode == "by_hand" else ()
    )
    causes = [one["cause"] for one in result.get("causes", [])]
    right = any(fnmatch.fnmatchcase(place, glob) for glob in stages)
    between = first["between"]["stages"] if first else []
    if right and mode == "by_hand" and not any(fnmatch.fnmatchcase(place, glob) for glob in mistake.stage):
        # Five tensors: the stage is one of those between two of them, and the answer must have it in its list.
        inside = [
            f"input:{one.removeprefix('input ')}" if one.startswith("input ") else f"output:{one}" for one in between
        ]
        right = any(fnmatch.fnmatchcase(one, glob) for one in inside for glob in mistake.stage)
    false = result.get("false", [])
    return {
        "id": mistake.id,
        "place": place,
        "between": len(between),
        "causes": causes[:3],
        "stage": right and not false,
        "first": bool(causes) and causes[0] in mistake.causes and not false,
        "three": any(cause in mistake.causes for cause in causes[:3]) and not false,
        "verdict": result["verdict"],
        "false": false,
        "seconds": result["seconds"],
    }


def score(options) -> int:
    reports = options.work / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    table, clean_rows = [], []
    for port in chosen_ports(options):
        reference = options.work / port.name / "reference-f32"
        for mode in MODES if options.mode == "all" else (options.mode,):
            for name, other in (("clean-f32", "f32"), ("clean-own", port.own_dtype)):
                if not (options.work / port.name / name).exists() or not fnmatch.fnmatchcase(
                    f"{port.name}/{name}", options.only
                ):
                    continue
                run = only(options.work / port.name / name, mode, options.work / "seen" / f"{port.name}-{mode}")
                result = compare(
                    options.work / port.name / f"reference-{other}", run, reports / f"{port.name}-{name}-{mode}.json"
                )
                first = result.get("first_divergence")
                clean_rows.append(
                    (
                        port.name,
                        name,
                        mode,
                        result["verdict"],
                        result.get("compared", 0),
                        f"{first['role']}:{first['name']}" if first else "-",
                        round(result["seconds"], 1),
                        len(result.get("false", [])),
                    )
                )
                print(*clean_rows[-1], *result.get("false", [])[:3], sep="  ", flush=True)
            rows = []
            for mistake in mistakes_of(port, options.half):
                if (
                    not fnmatch.fnmatchcase(f"{port.name}/{mistake.id}", options.only)
                    or not (options.work / port.name / mistake.id).exists()
                ):
                    continue
                run = only(options.work / port.name / mistake.id, mode, options.work / "seen" / f"{port.name}-{mode}")
                row = score_one(
                    mistake, port, mode, compare(reference, run, reports / f"{port.name}-{mistake.id}-{mode}.json")
                )
                rows.append(row)
                mark = lambda ok: "yes" if ok else "NO"  # noqa: E731
                print(f"{port.name}/{mode}/{row['id']:<28} stage {mark(row['stage']):<4} first {mark(row['first']):<4} three {mark(row['three']):<4} "
                      f"{row['seconds']:5.1f} s  {row['verdict'][:60]} {row['place']} ({row['between']} between) {', '.join(row['causes'])} {'FALSE: ' if row['false'] else ''}{'; '.join(row['false'][:2])}", flush=True)  # fmt: skip
            if rows:
                table.append(
                    (
                        port.name,
                        mode,
                        len(rows),
                        *(sum(row[key] for row in rows) for key in ("stage", "first", "three")),
                        sum(len(row["false"]) for row in rows),
                        max(row["seconds"] for row in rows),
                    )
                )
    print(
        f"\n{'port':<22} {'recorded':<10} {'mistakes':>8} {'right stage':>12} {'cause first':>12} {'in three':>9} {'false':>6} {'slowest':>8}"
    )
    for row in table:
        print(
            f"{row[0]:<22} {row[1]:<10} {row[2]:>8} {row[3]:>12} {row[4]:>12} {row[5]:>9} {row[6]:>6} {row[7]:>6.1f} s"
        )
    if options.json:
        Path(options.json).write_text(json.dumps({"table": table, "clean": clean_rows}, indent=1))
    total = sum(row[2] for row in table)
    good = sum(row[3] for row in table) >= 0.95 * total and sum(row[4] for row in table) >= 0.8 * total
    # The transformer alone is no match of a pipeline, and is told to be a part of it.
    clean = {name: "partial" if name == NATIVE else "match" for name in PORTS}
    return (
        0
        if good
        and all(row[3] == clean[row[0]] for row in clean_rows if row[1] == "clean-f32")
        and not any(row[7] for row in clean_rows)
        else 1
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("record", "score"))
    parser.add_argument("--port", default="all", choices=("all", *PORTS))
    parser.add_argument("--half", default="both", choices=("blind_a", "blind_b", "both"))
    parser.add_argument("--mode", default="all", choices=("all", *MODES))
    parser.add_argument("--only", default="*", help="glob of port/mistake")
    parser.add_argument(
        "--environments", type=Path, default=ROOT / "build" / "ports", help="one virtual environment for each port"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "ports" / "runs", help="where runs are kept")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    return record(options) if options.act == "record" else score(options)


if __name__ == "__main__":
    sys.exit(main())
