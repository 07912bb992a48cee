"""What a session costs, beside debugpy in the same run: minimum of interleaved runs. Costs are processor time of the whole program, so that a busy
machine does not count; latencies are what a client waits. Every row has its bar; one that cannot be measured says why.

    python benchmarks/debugger/run.py [--part cost|models|latency|start] [--runs 5] [--scale 1] [--python PATH] [--json FILE] [--no-debugpy]
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("LOCKSTEP_TEST_PATIENCE", "300")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "python")]
from bars import table  # noqa: E402
from dap import DebugpySession, line_of  # noqa: E402
from debug_client import Session  # noqa: E402

PROGRAMS = HERE / "programs.py"
COLD = line_of(PROGRAMS, "# COLD")
ONE_LINE = line_of(PROGRAMS, "# COLD beside the loop")
CONDITION = line_of(PROGRAMS, "# CONDITION")
STOP = line_of(PROGRAMS, "# STOP")
SIMPLE, ANY = "i == -1", "(lambda v: v < 0)(i)"


def seconds(text):
    """[whole, parts...] that a program printed."""
    parts = re.search(r"PARTS ([\d. ]+)", text)
    return [
        float(re.search(r"SECONDS ([\d.]+)", text).group(1)),
        *(float(one) for one in (parts.group(1).split() if parts else ())),
    ]


def bare(python, words, breakpoints):
    return seconds(subprocess.run([python, PROGRAMS, *words], capture_output=True, text=True, check=True).stdout)


def ours(python, words, breakpoints):
    with Session(
        PROGRAMS,
        *words,
        python=python,
        options={
            "run": True,
            "breakpoints": [
                {"file": str(file), "line": line, **({"condition": condition} if condition else {})}
                for file, line, condition in breakpoints
            ],
        },
    ) as s:
        s.end()
        return seconds(s.output())


def debugpy(python, words, breakpoints):
    session = DebugpySession(PROGRAMS, *words, python=python, breakpoints=breakpoints)
    try:
        return seconds(session.output("SECONDS"))
    finally:
        session.close()


FORMS = {"bare": bare, "ours": ours, "debugpy": debugpy}


def elsewhere():
    """A breakpoint in a library function that the programs never call."""
    import textwrap

    return [(textwrap.__file__, line_of(textwrap.__file__, "w = TextWrapper(width=width, max_lines=1"), None)]


def short(error):
    """Why something could not be measured, in one line."""
    told = getattr(error, "stderr", None) or str(error) or type(error).__name__
    return (told if isinstance(told, str) else told.decode()).strip().splitlines()[-1][:120]


FAILS = (AssertionError, AttributeError, EOFError, LookupError, OSError, subprocess.SubprocessError)


def unmeasured(title, error):
    row = {"item": title, "not_measured": short(error)}
    print(json.dumps(row), flush=True)
    return row


def rows_of(part, folder):
    """[(titles of what the program prints, its arguments, breakpoints)]"""
    if part == "cost":
        return [
            (["3 M calls, nothing set"], ["calls"], []),
            (
                ["3 M calls, cold breakpoint in the caller"],
                ["calls"],
                [(PROGRAMS, line_of(PROGRAMS, "def calls") + 3, "False")],
            ),
            (["10 M lines, cold breakpoint in the function"], ["lines"], [(PROGRAMS, COLD, None)]),
            (["10 M turns of a one-line loop, cold breakpoint beside it"], ["one_line"], [(PROGRAMS, ONE_LINE, None)]),
            (["1 M lines, false condition, simple"], ["false_condition"], [(PROGRAMS, CONDITION, SIMPLE)]),
            (["1 M lines, false condition, any"], ["false_condition"], [(PROGRAMS, CONDITION, ANY)]),
        ]
    titles = ["torch, diffusers, transformers: import, load, forwards", "  import", "  10 loads", "  150 forwards"]
    return [(titles, ["models", folder], elsewhere())]


def measure_costs(part, python, runs, with_debugpy):
    found = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        for titles, words, points in rows_of(part, folder):
            try:
                times, reason = times_of(part, python, words, points, runs, with_debugpy)
            except FAILS as error:
                found += [unmeasured(title, error) for title in titles]
                continue
            for number, title in enumerate(titles):
                row = cost_row(
                    title, {key: [one[number] for one in values] for key, values in times.items() if values}, python
                )
                found.append({**row, **({"debugpy_not_measured": reason} if reason else {})})
    return found


def times_of(part, python, words, points, runs, with_debugpy):
    """({form: [seconds of each part]}, why debugpy has none)"""
    times, reason = {"bare": [], "ours": [], "debugpy": []}, ""
    if part == "models":
        bare(python, words, points)  # makes the model, and the compiled files of the libraries
    for run in range(runs if part == "models" else 4 * runs):
        order = ("bare", "ours") if run % 2 else ("ours", "bare")  # what runs first finds another machine
        for form in order:
            times[form].append(FORMS[form](python, words, points))
        # Where it takes many times as long, once is enough to see it.
        if with_debugpy and not reason and (run == 0 or times["debugpy"][-1][0] < 5 * times["bare"][-1][0]):
            try:
                times["debugpy"].append(debugpy(python, words, points))
            except FAILS as error:
                reason = short(error)
    return times, reason


def cost_row(title, times, python):
    best = {key: min(values) for key, values in times.items()}
    row = {
        "item": title,
        **best,
        "ours_ratio": best["ours"] / best["bare"],
        "bare_spread": sorted(times["bare"])[len(times["bare"]) // 2] / best["bare"],
    }
    if "debugpy" in best:
        row["debugpy_ratio"] = best["debugpy"] / best["bare"]
    if "condition" in title:  # of a million
        row.update({f"{key}_us": (best[key] - best["bare"]) / scale() for key in ("ours", "debugpy") if key in best})
    if "any" in title:  # what the expression itself costs, without a debugger
        row["expression_us"] = expression_cost(python)
    print(json.dumps(row), flush=True)
    return row


def scale():
    return float(os.environ.get("LOCKSTEP_BENCH_SCALE", "1"))


def expression_cost(python):
    text = f"import timeit; print(min(timeit.repeat({ANY!r}, 'i = 5', number=200000, repeat=5)) / 200000 * 1e6)"
    return float(subprocess.run([python, "-c", text], capture_output=True, text=True, check=True).stdout)


def measure_start(python, runs, with_debugpy):
    empty = HERE / "empty.py"
    times = {"bare": [], "ours": [], "debugpy": []}
    for _ in range(runs + 1):
        began = time.perf_counter()
        subprocess.run([python, empty], check=True, capture_output=True)
        times["bare"].append(time.perf_counter() - began)
        began = time.perf_counter()
        with Session(empty, python=python) as s:
            s.stopped()
            times["ours"].append(time.perf_counter() - began)
        if with_debugpy:
            session = DebugpySession(empty, python=python, breakpoints=[(empty, 1, None)])
            session.stopped()
            times["debugpy"].append(time.perf_counter() - session.began)
            session.close()
    best = {key: min(values) * 1e3 for key, values in times.items() if values}
    row = {
        "item": "start to first line, over bare Python (ms)",
        "bare": best["bare"],
        "ours": best["ours"] - best["bare"],
    }
    if with_debugpy:
        row["debugpy"] = best["debugpy"] - best["bare"]
    print(json.dumps(row), flush=True)
    return [row]


def timed(action, runs):
    best = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        best.append(time.perf_counter() - began)
    best.sort()
    return {"median": best[len(best) // 2] * 1e3, "min": best[0] * 1e3}


LATENCIES = ("next to stopped", "evaluate a shape", "summarise 4 M elements", "variables of a frame with 30 tensors")


def our_latencies(python):
    with Session(
        PROGRAMS,
        "tensors",
        python=python,
        options={"run": True, "breakpoints": [{"file": str(PROGRAMS), "line": STOP}]},
    ) as s:
        s.stopped()
        s.ask("clear")
        return [
            timed(lambda: s.go("next"), 100),
            timed(lambda: s.ask("eval", expression="a0.shape"), 100),
            timed(lambda: s.ask("summary", expression="big"), 30),
            timed(lambda: s.ask("vars"), 50),
        ]


def debugpy_latencies(python):
    session = DebugpySession(PROGRAMS, "tensors", python=python, breakpoints=[(PROGRAMS, STOP, None)])
    try:
        thread = session.stopped()
        session.request("setBreakpoints", source={"path": str(PROGRAMS)}, breakpoints=[])

        def step():
            session.request("next", threadId=thread)
            session.stopped()

        def frame():
            return session.request("stackTrace", threadId=thread, startFrame=0, levels=1)["stackFrames"][0]["id"]

        def evaluate(expression):
            session.request("evaluate", expression=expression, frameId=here, context="watch")

        def variables():
            scope = session.request("scopes", frameId=frame())["scopes"][0]["variablesReference"]
            session.request("variables", variablesReference=scope)

        stepped = timed(step, 10)
        here = frame()
        return [
            stepped,
            timed(lambda: evaluate("a0.shape"), 10),
            timed(lambda: evaluate("(big.min(), big.max(), big.mean(), big.isnan().sum())"), 10),
            timed(variables, 5),
        ]
    finally:
        session.close()


def measure_latency(python, with_debugpy):
    try:
        ours = our_latencies(python)
    except FAILS as error:
        return [unmeasured(title, error) for title in LATENCIES]
    rows = [
        {"item": title + " (ms)", "ours": one["median"], "ours_min": one["min"]} for title, one in zip(LATENCIES, ours)
    ]
    if with_debugpy:
        try:
            for row, one in zip(rows, debugpy_latencies(python)):
                row["debugpy"] = one["median"]
        except FAILS as error:
            for row in rows:
                row["debugpy_not_measured"] = short(error)
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("cost", "models", "latency", "start", "all"), default="all")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the loops: 0.01 only shows that everything runs")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json")
    parser.add_argument("--no-debugpy", action="store_true")
    chosen = parser.parse_args()
    os.environ["LOCKSTEP_BENCH_SCALE"] = str(chosen.scale)
    known = subprocess.run([chosen.python, "-c", "import debugpy"], capture_output=True).returncode == 0
    without = (
        "--no-debugpy" if chosen.no_debugpy else "" if known else f"{chosen.python} has none; try pip install debugpy"
    )
    parts = {"start": lambda: measure_start(chosen.python, chosen.runs * 2, not without), "latency": lambda: measure_latency(chosen.python, not without),
             "cost": lambda: measure_costs("cost", chosen.python, chosen.runs, not without),
             "models": lambda: measure_costs("models", chosen.python, chosen.runs, not without)}  # fmt: skip
    rows = [row for part, measure in parts.items() if chosen.part in (part, "all") for row in measure()]
    print(table(rows, chosen.python, without, chosen.scale >= 1))
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
