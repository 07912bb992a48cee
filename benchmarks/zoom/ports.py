"""Scores `lockstep zoom` on mistakes planted in real ports (benchmarks/ports): is the changed line among the named ones?

./dev bench zoom_ports                                  mflux and mlx-lm, the half that may be seen
./dev bench zoom_ports --only 'mlx_lm/*' --show
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import os
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "ports")]
import run as ports  # noqa: E402  found by the path above


def changed_lines(port, python, mistake, copy):
    """(file, line) of the planted copy that are not as the port has them, and of the lines around what was taken out."""
    source = next((python.parent.parent / "lib").glob("python3*/site-packages")) / port.package
    found = set()
    for file in {change[0] for change in mistake.changes}:
        before, after = ((folder / file).read_text().splitlines() for folder in (source, copy / port.package))
        for tag, _, _, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag != "equal":
                found |= {(str(copy / port.package / file), line + 1) for line in range(first, max(last, first + 1))}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="glob of port/mistake")
    parser.add_argument("--half", default="blind_a", choices=("blind_a", "blind_b", "both"))
    parser.add_argument(
        "--environments", type=Path, default=ROOT / "build" / "ports", help="one virtual environment for each port"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "ports" / "runs", help="where runs are kept")
    parser.add_argument("--show", action="store_true", help="print what zoom says")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    rows = []
    for name in ("mflux", "mlx_lm"):
        port = ports.PORTS[name]
        chosen = [
            one
            for one in ports.mistakes_of(port, options.half)
            if fnmatch.fnmatchcase(f"{name}/{one.id}", options.only)
        ]
        if not chosen:
            continue
        python, model = ports.environment(port, options.environments), ports.model_of(port, options.work)
        reference = ports.record_reference(port, model, options.work, "f32")
        for mistake in chosen:
            started = time.monotonic()
            copy = ports.planted(port, python, mistake, options.work / "planted" / name)
            candidate = ports.record_port(port, python, model, options.work, mistake.id, "f32", copy)
            os.environ["PYTHONPATH"] = str(copy)  # where the port that is run again is found
            done = ports.lockstep(
                "--json", "--home", options.work / "homes" / "zoom", "zoom", reference, candidate, timeout=600
            )
            row = {
                "id": f"{name}/{mistake.id}",
                "found": False,
                "lines": 0,
                "misleading": False,
                "kinds": [],
                "said": "",
            }
            if done.returncode not in (0, 1):
                row["said"] = done.stderr.strip().splitlines()[-1][:200]
            else:
                answer = json.loads(done.stdout)
                mine = {(one["file"], one["line"]) for region in answer["regions"] for one in region["yours"]}
                row["found"] = bool(mine & changed_lines(port, python, mistake, copy))
                row["lines"], row["misleading"] = len(mine), bool(mine) and not row["found"]
                row["kinds"], row["said"] = [region["kind"] for region in answer["regions"]], answer["call"]["yours"]
                row["named"] = sorted(f"{Path(file).name}:{line}" for file, line in mine)
                row["causes"] = [region["cause"]["cause"] for region in answer["regions"] if "cause" in region]
                if options.show:
                    print(json.dumps(answer["regions"], indent=1))
            os.environ.pop("PYTHONPATH")
            rows.append(row)
            print(f"{row['id']:<40} {'found' if row['found'] else 'MISLED' if row['misleading'] else 'MISSED':<7} lines {row['lines']:<3} "
                  f"{', '.join(row['kinds']):<32} {row['said']} {' '.join(row.get('named', []))} {time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
    lines = sorted(row["lines"] for row in rows if row["lines"])
    print(f"line named in {sum(row['found'] for row in rows)} of {len(rows)}; misleading {sum(row['misleading'] for row in rows)}"
          + (f"; lines named: median {statistics.median(lines)}, 90th percentile {lines[int(0.9 * (len(lines) - 1))]}, most {lines[-1]}" if lines else ""))  # fmt: skip
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
