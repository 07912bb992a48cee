"""What an editor waits for through `lockstep dap`, beside debugpy's adapter in the same run: the same client, the same program, in turns.

python benchmarks/dap_cost.py [--steps 300] [--runs 3] [--json FILE]
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
from dap_client import DapClient  # noqa: E402

PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
BARS = {"next to stopped": 2, "stack of 1,000 frames": 20, "a page of 100 of 10,000 variables": 20}
SOURCE = """import sys
sys.setrecursionlimit(5000)

def down(n):
    if n == 0:
        return wide()
    return down(n - 1)

def wide():
{many}
    return 0  # WIDE

def steps():
    total = 0
    for number in range(100000):
        total += number  # STEP
    return total

down(997)
steps()
"""


def line_of(path, mark):
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if mark in line)


def milliseconds(began):
    return (time.perf_counter() - began) * 1e3


def measure(command, script, environment, steps):
    """{item: [milliseconds]}"""
    found = {}
    began = time.perf_counter()
    client = DapClient(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        client.begin(
            breakpoints={script: [line_of(script, "# WIDE"), line_of(script, "# STEP")]},
            program=str(script),
            python=sys.executable,
            cwd=str(script.parent),
            console="internalConsole",
            justMyCode=False,
            subProcess=False,
            redirectOutput=False,
        )
        stop = client.stopped()
        found["launch to the first stop"] = [milliseconds(began)]
        thread = stop["threadId"]
        found["stack of 1,000 frames"] = []
        for _ in range(20):
            began = time.perf_counter()
            trace = client.request("stackTrace", threadId=thread, startFrame=0, levels=1000)
            found["stack of 1,000 frames"].append(milliseconds(began))
            assert len(trace["stackFrames"]) == 1000, len(trace["stackFrames"])
        frame = trace["stackFrames"][0]
        scope = client.request("scopes", frameId=frame["id"])["scopes"][0]["variablesReference"]
        found["a page of 100 of 10,000 variables"] = []
        seen = 0
        for start in range(0, 10_000, 100):
            began = time.perf_counter()
            page = client.request("variables", variablesReference=scope, start=start, count=100)["variables"]
            found["a page of 100 of 10,000 variables"].append(milliseconds(began))
            seen += len(page)
            if len(page) > 100:  # it does not page a frame's variables: the first answer holds all
                break
        assert seen >= 10_000, seen
        found["evaluate a number"] = []
        for _ in range(50):
            began = time.perf_counter()
            client.request("evaluate", expression="v17", frameId=frame["id"], context="hover")
            found["evaluate a number"].append(milliseconds(began))
        client.request("continue", threadId=thread)
        client.stopped()
        client.request("setBreakpoints", source={"path": str(script)}, breakpoints=[])
        found["next to stopped"] = []
        for _ in range(steps):
            began = time.perf_counter()
            client.send("next", threadId=thread)
            client.stopped()
            found["next to stopped"].append(milliseconds(began))
        client.request("disconnect", terminateDebuggee=True)
    finally:
        client.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    ways = {"lockstep": [PROGRAM, "dap"]}
    if importlib.util.find_spec("debugpy"):
        import debugpy

        ways["debugpy"] = [sys.executable, "-m", "debugpy.adapter"]
        print(f"debugpy {debugpy.__version__}, Python {sys.version.split()[0]}")
    else:
        print("debugpy is not installed")
    rows = {name: {} for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "program.py"
        script.write_text(SOURCE.format(many="\n".join(f"    v{n} = {n}" for n in range(10_000))))
        environment = {
            **os.environ,
            "LOCKSTEP_HOME": str(pathlib.Path(folder) / "home"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        try:
            for _ in range(options.runs):
                for name, command in ways.items():
                    for item, times in measure(command, script, environment, options.steps).items():
                        rows[name].setdefault(item, []).extend(times)
        finally:
            subprocess.run([PROGRAM, "serve", "--stop"], env=environment, stderr=subprocess.DEVNULL)
    print(
        f"\n{'milliseconds that a client waits: median, 90 % below':54}{'bar':>6}{'':>4}{'lockstep':>18}{'debugpy':>20}"
    )
    shown = []
    for item in [
        "next to stopped",
        "stack of 1,000 frames",
        "a page of 100 of 10,000 variables",
        "evaluate a number",
        "launch to the first stop",
    ]:
        line = {"item": item, "bar_ms": BARS.get(item)}
        for name in ways:
            times = sorted(rows[name][item])
            line[name] = {"median": statistics.median(times), "p90": times[int(len(times) * 0.9)], "count": len(times)}
        shown.append(line)
        verdict = "" if line["bar_ms"] is None else "ok" if line["lockstep"]["median"] <= line["bar_ms"] else "over"
        texts = [f"{line[name]['median']:.2f}, {line[name]['p90']:.2f}" for name in ways]
        print(f"{item:54}{line['bar_ms'] or '':>6}{verdict:>5}" + "".join(f"{text:>18}" for text in texts))
    if "debugpy" in ways and len(rows["debugpy"]["a page of 100 of 10,000 variables"]) == options.runs:
        print("debugpy does not page the variables of a frame: its row is all 10,000 at once")
    if options.json:
        options.json.write_text(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
