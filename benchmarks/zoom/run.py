"""Scores `lockstep zoom` on rewritten modules: each with one mistake (is its line named?) and without (is any?).

./dev bench zoom                       f32
./dev bench zoom --dtype bf16          both sides in bf16
./dev bench zoom --set blind           cases written without knowing how zoom compares
./dev bench zoom --only 'swiglu/*' --show   some of them, with what was said
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from recording import ROOT, name_of, record  # noqa: E402  first: it must see the frameworks being imported
from cases import SETS, case_set, in_dtype, line_with, loaded, planted, reference_of  # noqa: E402 # isort: skip

BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))


def recorded(call, folder, reuse):
    """(run, name of the traced module)"""
    return (folder, name_of(folder)) if reuse and folder.exists() else record(call, folder)


def zoom(reference, candidate, as_json=True):
    command = [
        BINARY,
        *(["--json"] if as_json else []),
        "zoom",
        str(reference[0]),
        str(candidate[0]),
        "--stage",
        reference[1],
    ]
    done = subprocess.run([*command, "--candidate-stage", candidate[1]], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout) if as_json else done.stdout


def named(answer, side):
    return {(one["file"], one["line"]) for region in answer["regions"] for one in region[side]}


def score(mistake, rewrites, file, lines, answer):
    family = mistake.rewrite.split("/")[0]
    reference = rewrites / family / "reference.py"
    right = {(str(file), line) for line in lines}
    mine, theirs = named(answer, "yours"), named(answer, "reference")
    found = bool(right & mine)
    if mistake.missing:
        found |= any((str(reference), line) in theirs for line in line_with(reference, mistake.missing))
    return {"found": found, "lines": len(mine), "misleading": bool(mine) and not found, "proof": answer["proof"], "kinds": [region["kind"] for region in answer["regions"]],
            "named": sorted(line for _, line in mine), "planted": sorted(lines)}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="usual", choices=SETS)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--only", default="*", help="glob of rewrites")
    parser.add_argument("--show", action="store_true", help="print what zoom says")
    parser.add_argument("--keep", metavar="DIR", help="keep the recordings there")
    parser.add_argument("--reuse", action="store_true", help="ask again about what --keep has kept")
    parser.add_argument("--record-only", action="store_true", help="record for --keep, and ask nothing")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()
    rewrites, mistakes = case_set(arguments.set)

    import torch

    torch.set_num_threads(1)
    rows, clean, seconds, references = [], [], [], {}
    with contextlib.ExitStack() as scope:
        scope.enter_context(torch.no_grad())
        folder = Path(
            arguments.keep or scope.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-zoom-"))
        ).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for mistake in mistakes:
            if not fnmatch.fnmatchcase(mistake.rewrite, arguments.only):
                continue
            family = mistake.rewrite.split("/")[0]
            if family not in references:
                module, weights, inputs, keep = reference_of(family, rewrites)
                module, given = in_dtype(module, inputs, keep, arguments.dtype)
                run = recorded(lambda: module(*given), folder / f"{family}.reference", arguments.reuse)
                references[family] = run, weights, inputs, keep
            reference, weights, inputs, keep = references[family]
            wrong, lines = planted(mistake, folder, rewrites)
            for file in (rewrites / f"{mistake.rewrite}.py", wrong):
                rewrite, given = in_dtype(loaded(file).build(weights), inputs, keep, arguments.dtype)
                kept = (
                    f"{mistake.rewrite.replace('/', '.')}.{'wrong' if file == wrong else 'right'}"
                    if arguments.keep
                    else "candidate"
                )
                candidate = recorded(lambda: rewrite(*given), folder / kept, arguments.reuse)
                if arguments.record_only:
                    continue
                started = time.monotonic()
                answer = zoom(reference, candidate)
                seconds.append(time.monotonic() - started)
                if arguments.show:
                    print(zoom(reference, candidate, as_json=False))
                if file == wrong:
                    rows.append({"rewrite": mistake.rewrite} | score(mistake, rewrites, file, lines, answer))
                else:
                    clean.append(
                        {"rewrite": mistake.rewrite, "lines": len(named(answer, "yours")), "jump": "jump" in answer}
                    )
            if arguments.record_only:
                continue
            row, right = rows[-1], clean[-1]
            print(f"{mistake.rewrite:<36} {'found' if row['found'] else 'MISLED' if row['misleading'] else 'MISSED':<7} lines {row['lines']:<3} {row['proof']:<8}"
                  f" {', '.join(row['kinds']):<40} right one: {right['lines'] or 'nothing'}{' + a jump' if right['jump'] else ''}", flush=True)  # fmt: skip
    if arguments.record_only:
        return 0
    lines = sorted(row["lines"] for row in rows)
    print(f"\n{arguments.dtype}: line named in {sum(row['found'] for row in rows)} of {len(rows)}; misleading {sum(row['misleading'] for row in rows)}; "
          f"lines named: median {statistics.median(lines)}, 90th percentile {lines[int(0.9 * (len(lines) - 1))]}, most {lines[-1]}")  # fmt: skip
    print(f"correct rewrites with a line named: {sum(one['lines'] > 0 for one in clean)} of {len(clean)} (a jump shown in {sum(one['jump'] for one in clean)}); "
          f"slowest answer {max(seconds):.1f} s")  # fmt: skip
    if arguments.json:
        Path(arguments.json).write_text(
            json.dumps({"set": arguments.set, "dtype": arguments.dtype, "mistakes": rows, "correct": clean}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
