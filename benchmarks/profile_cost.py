"""What `lockstep profile` costs: torch with diffusers, and MLX with and without evaluation at stage borders; bare and profiled in turns.

python benchmarks/profile_cost.py [--runs 5] [--only mlx]
"""

import argparse
import importlib.util
import os
import pathlib
import sys
import tempfile

from coverage_cost import PROGRAM, SCRIPT, processor_secs

# Blocks of a size at which a graph is worth fusing: twelve layers, four steps.
MLX = """
import mlx.core as mx, mlx.nn as nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(512), nn.Linear(512, 2048), nn.Linear(2048, 512)
    def __call__(self, x):
        return x + self.down(nn.silu(self.up(self.norm(x))))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Block() for _ in range(12)]
    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

model = Model()
x = mx.random.normal((32, 512))
for _ in range(4):
    x = model(x)
    mx.eval(x)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=("torch", "mlx"))
    options = parser.parse_args()
    programs = {}
    if importlib.util.find_spec("diffusers") and options.only != "mlx":
        programs["torch + diffusers"] = (SCRIPT, {"profiled": []})
    if importlib.util.find_spec("mlx") and options.only != "torch":
        programs["MLX"] = (
            MLX,
            {
                "not evaluated": ["--evaluate", "none"],
                "evaluated at stages": [],
                "evaluated at every module": ["--evaluate", "modules"],
            },
        )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LOCKSTEP_HOME": str(pathlib.Path(folder) / "home")}
        for title, (source, ways) in programs.items():
            script = pathlib.Path(folder) / "script.py"
            script.write_text(source)
            commands = {"bare": [sys.executable, script]}
            commands |= {
                name: [PROGRAM, "--quiet", "profile", *words, "--", sys.executable, script]
                for name, words in ways.items()
            }
            secs = {name: [] for name in commands}
            for _ in range(options.runs):
                for name, command in commands.items():
                    secs[name].append(processor_secs(command, environment, folder))
            bare = min(secs["bare"])
            print(
                f"{title}: minimum of {options.runs}, processor time of all processes; bare varied by x{max(secs['bare']) / bare:.2f}"
            )
            for name, values in secs.items():
                print(f"  {name:<28} {min(values):6.2f} s   x{min(values) / bare:.3f}")


if __name__ == "__main__":
    main()
