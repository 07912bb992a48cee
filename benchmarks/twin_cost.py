"""What a twin session costs beside recording both programs: the same two programs, in turns, both always running at the same time.

    python benchmarks/twin_cost.py [--runs 3] [--layers 8] [--steps 4]

Compared are two `lockstep record` side by side and one `lockstep debug twin` that runs to the end with --until-divergence, once with two programs whose
tensors are equal bit for bit and once with two that differ by rounding everywhere, as a port does. Processor seconds are what the two programs
count themselves, threads of the recorder included; wall seconds are from where both have begun to where both have ended, without what starting
Python and importing torch takes: a side that is there first waits for the other.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
SOURCE = """import time, torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(1024), torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

net, x = Net(), torch.randn(256, 1024) * SCALE
with torch.no_grad():
    began, cpu = time.monotonic(), time.process_time()
    for step in range(STEPS):
        x = net(x) * 0.5
    print("COST", began, time.monotonic(), time.process_time() - cpu, flush=True)
"""


def costs(text):
    return [float(word) for word in next(line for line in text.splitlines() if line.startswith("COST")).split()[1:]]


def both(pairs):
    """Wall seconds, processor seconds of both."""
    began, ended, cpu = zip(*pairs)
    return max(ended) - max(began), sum(cpu)


def bare(scripts, environment, folder):
    started = [
        subprocess.Popen([sys.executable, script], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        for script in scripts
    ]
    return both([costs(one.communicate()[0]) for one in started])


def recorded(scripts, environment, folder):
    started = [
        subprocess.Popen(
            [PROGRAM, "record", "--", sys.executable, script],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for script in scripts
    ]
    return both([costs(one.communicate()[0]) for one in started])


def debug(environment, folder, *words):
    done = subprocess.run(
        [PROGRAM, "--json", "debug", "twin", *map(str, words)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def twin(scripts, environment, folder, rounding=0.0):
    debug(environment, folder, "start", *scripts, "--python", sys.executable)
    answer = debug(environment, folder, "continue", "--until-divergence")
    while any(answer[side]["state"] == "running" for side in ("reference", "candidate")):
        answer = debug(environment, folder, "wait")
    assert answer["candidate"]["state"] == "ended", answer
    assert 0 <= answer["comparison"]["worst"] <= rounding, answer["comparison"]
    assert answer["comparison"]["compared"] > 30 and (answer["comparison"]["worst"] > 0) == (rounding > 0)
    return both([costs(pathlib.Path(answer[side]["output"]).read_text()) for side in ("reference", "candidate")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LOCKSTEP_HOME": str(pathlib.Path(folder) / "home"), "OMP_NUM_THREADS": "1"}
        scripts = {}
        for name, scale in {"reference": "1", "candidate": "1", "port": "(1 + 2.0**-22)"}.items():
            scripts[name] = pathlib.Path(folder) / f"{name}.py"
            words = {"LAYERS": options.layers, "STEPS": options.steps, "SCALE": scale}
            scripts[name].write_text(
                functools.reduce(lambda text, word: text.replace(word, str(words[word])), words, SOURCE)
            )
        pair, port = [scripts["reference"], scripts["candidate"]], [scripts["reference"], scripts["port"]]
        ways = {
            "bare": lambda: bare(pair, environment, folder),
            "recorded": lambda: recorded(pair, environment, folder),
            "twin, equal bits": lambda: twin(pair, environment, folder),
            "twin, apart by rounding": lambda: twin(port, environment, folder, 1e-5),
        }
        found = {name: [] for name in ways}
        try:
            for _ in range(options.runs):
                for name, way in ways.items():
                    found[name].append(way())
        finally:
            subprocess.run(
                [PROGRAM, "serve", "--stop"],
                env=environment,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    best = {name: [min(one[i] for one in values) for i in (0, 1)] for name, values in found.items()}
    print(
        f"minimum of {options.runs}; recorded varied by x{max(one[0] for one in found['recorded']) / best['recorded'][0]:.2f}"
    )
    for name, (wall, cpu) in best.items():
        against = [value / base for value, base in zip((wall, cpu), best["recorded"])]
        print(
            f"{name:<24} {wall:6.2f} s, processor {cpu:6.2f} s; against recording both: "
            f"x{against[0]:.3f} in time, x{against[1]:.3f} processor (bar x1.10)"
        )


if __name__ == "__main__":
    main()
