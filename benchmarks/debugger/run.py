"""What a session costs, beside debugpy in the same run: minimum of interleaved runs. Costs are processor time of the whole program, so that a busy
machine does not count; latencies are what a client waits.

    python benchmarks/debugger/run.py [--part cost|models|latency|start] [--runs 5] [--python PATH] [--json FILE] [--no-debugpy]
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
from dap import DebugpySession, line_of  # noqa: E402
from debug_client import Session  # noqa: E402

PROGRAMS = HERE / "programs.py"
COLD = line_of(PROGRAMS, "# COLD")
CONDITION = line_of(PROGRAMS, "# CONDITION")
STOP = line_of(PROGRAMS, "# STOP")
SIMPLE, ANY = "i == -1", "(lambda v: v < 0)(i)"


def seconds(text):
    """[whole, parts...] that a program printed."""
    parts = re.search(r"PARTS ([\d. ]+)", text)
    return [float(re.search(r"SECONDS ([\d.]+)", text).group(1)), *(float(one) for one in (parts.group(1).split() if parts else ()))]


def bare(python, words, breakpoints):
    return seconds(subprocess.run([python, PROGRAMS, *words], capture_output=True, text=True, check=True).stdout)


def ours(python, words, breakpoints):
    with Session(PROGRAMS, *words, python=python, options={"run": True, "breakpoints": [
            {"file": str(file), "line": line, **({"condition": condition} if condition else {})} for file, line, condition in breakpoints]}) as s:
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


def rows_of(part, folder):
    """[(titles of what the program prints, its arguments, breakpoints)]"""
    if part == "cost":
        return [(["3 M calls, nothing set"], ["calls"], []),
                (["3 M calls, cold breakpoint in the caller"], ["calls"], [(PROGRAMS, line_of(PROGRAMS, "def calls") + 3, "False")]),
                (["10 M lines, cold breakpoint in the function"], ["lines"], [(PROGRAMS, COLD, None)]),
                (["1 M lines, false condition, simple"], ["false_condition"], [(PROGRAMS, CONDITION, SIMPLE)]),
                (["1 M lines, false condition, any"], ["false_condition"], [(PROGRAMS, CONDITION, ANY)])]
    titles = ["torch, diffusers, transformers: import, load, forwards", "  import", "  10 loads", "  150 forwards"]
    return [(titles, ["models", folder], elsewhere())]


def measure_costs(part, python, runs, with_debugpy):
    found = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        for titles, words, points in rows_of(part, folder):
            times = {"bare": [], "ours": [], "debugpy": []}
            if part == "models":
                bare(python, words, points)  # makes the model, and the compiled files of the libraries
            for run in range(runs if part == "models" else 4 * runs):
                order = ("bare", "ours") if run % 2 else ("ours", "bare")  # what runs first finds another machine
                for form in order:
                    times[form].append(FORMS[form](python, words, points))
                # Where it takes many times as long, once is enough to see it.
                if with_debugpy and (run == 0 or times["debugpy"][-1][0] < 5 * times["bare"][-1][0]):
                    times["debugpy"].append(debugpy(python, words, points))
            for number, title in enumerate(titles):
                found.append(cost_row(title, {key: [one[number] for one in values] for key, values in times.items() if values}, python))
    return found


def cost_row(title, times, python):
    best = {key: min(values) for key, values in times.items()}
    row = {"item": title, **best, "ours_ratio": best["ours"] / best["bare"], "bare_spread": sorted(times["bare"])[len(times["bare"]) // 2] / best["bare"]}
    if "debugpy" in best:
        row["debugpy_ratio"] = best["debugpy"] / best["bare"]
    if "condition" in title:  # of a million
        row.update({f"{key}_us": best[key] - best["bare"] for key in ("ours", "debugpy") if key in best})
    if "any" in title:  # what the expression itself costs, without a debugger
        row["expression_us"] = expression_cost(python)
    print(json.dumps(row), flush=True)
    return row


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
    row = {"item": "start to first line, over bare Python (ms)", "bare": best["bare"], "ours": best["ours"] - best["bare"]}
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


def measure_latency(python, runs, with_debugpy):
    rows = {}
    with Session(PROGRAMS, "tensors", python=python, options={"run": True, "breakpoints": [{"file": str(PROGRAMS), "line": STOP}]}) as s:
        s.stopped()
        s.ask("clear")
        rows["next to stopped"] = [timed(lambda: s.go("next"), 100)]
        rows["evaluate a shape"] = [timed(lambda: s.ask("eval", expression="a0.shape"), 100)]
        rows["summarise 4 M elements"] = [timed(lambda: s.ask("summary", expression="big"), 30)]
        rows["variables of a frame with 30 tensors"] = [timed(lambda: s.ask("vars"), 50)]
    if with_debugpy:
        session = DebugpySession(PROGRAMS, "tensors", python=python, breakpoints=[(PROGRAMS, STOP, None)])
        thread = session.stopped()
        session.request("setBreakpoints", source={"path": str(PROGRAMS)}, breakpoints=[])

        def step():
            session.request("next", threadId=thread)
            session.stopped()

        def frame():
            return session.request("stackTrace", threadId=thread, startFrame=0, levels=1)["stackFrames"][0]["id"]

        rows["next to stopped"].append(timed(step, 10))
        here = frame()
        rows["evaluate a shape"].append(timed(lambda: session.request("evaluate", expression="a0.shape", frameId=here, context="watch"), 10))
        rows["summarise 4 M elements"].append(timed(lambda: session.request(
            "evaluate", expression="(big.min(), big.max(), big.mean(), big.isnan().sum())", frameId=here, context="watch"), 10))

        def variables():
            scope = session.request("scopes", frameId=frame())["scopes"][0]["variablesReference"]
            session.request("variables", variablesReference=scope)

        rows["variables of a frame with 30 tensors"].append(timed(variables, 5))
        session.close()
    found = []
    for title, both in rows.items():
        row = {"item": title + " (ms)", "ours": both[0]["median"], "ours_min": both[0]["min"]}
        if len(both) > 1:
            row["debugpy"] = both[1]["median"]
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def table(rows, python):
    """Both debuggers side by side, and how many times ours goes into the other's cost."""
    version = subprocess.run([python, "-V"], capture_output=True, text=True).stdout.strip()
    lines = [f"\n{version:58}{'ours':>12}{'debugpy':>12}{'debugpy / ours':>16}"]

    def number(value, unit):
        return "" if value is None else f"{value:.3g} {unit}"

    for row in rows:
        if "ours_us" in row:
            mine, other, unit = row["ours_us"], row.get("debugpy_us"), "us"
        elif "ours_ratio" in row:
            mine, other, unit = row["ours_ratio"], row.get("debugpy_ratio"), "x"
        else:
            mine, other, unit = row["ours"], row.get("debugpy"), "ms"
        times = "" if other is None or mine <= 0 else f"{other / mine:.3g}"
        lines.append(f"{row['item'].removesuffix(' (ms)'):58}{number(mine, unit):>12}{number(other, unit):>12}{times:>16}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("cost", "models", "latency", "start", "all"), default="all")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json")
    parser.add_argument("--no-debugpy", action="store_true")
    chosen = parser.parse_args()
    known = subprocess.run([chosen.python, "-c", "import debugpy"], capture_output=True).returncode == 0
    with_debugpy = known and not chosen.no_debugpy
    rows = []
    if chosen.part in ("start", "all"):
        rows += measure_start(chosen.python, chosen.runs * 2, with_debugpy)
    if chosen.part in ("latency", "all"):
        rows += measure_latency(chosen.python, chosen.runs, with_debugpy)
    if chosen.part in ("cost", "all"):
        rows += measure_costs("cost", chosen.python, chosen.runs, with_debugpy)
    if chosen.part in ("models", "all"):
        rows += measure_costs("models", chosen.python, chosen.runs, with_debugpy)
    print(table(rows, chosen.python))
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
