"""What `lockstep coverage` costs on torch and diffusers: bare, functions, lines, and coverage.py, interleaved."""

import argparse
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))

SCRIPT = f"""
import torch
torch.set_num_threads(1)
from diffusers import QwenImagePipeline
pipeline = QwenImagePipeline.from_pretrained({str(ROOT / "models" / "tiny")!r}, dtype=torch.float32)
pipeline.set_progress_bar_config(disable=True)
pipeline("a red circle", num_inference_steps=4, width=128, height=128, true_cfg_scale=2.0, negative_prompt=" ", generator=torch.Generator().manual_seed(0))
"""


def processor_secs(command, environment, folder):
    """Of the command and all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "script.py"
        script.write_text(SCRIPT)
        environment = {**os.environ, "LOCKSTEP_HOME": str(pathlib.Path(folder) / "home")}
        ours = [PROGRAM, "--quiet", "coverage"]
        ways = {
            "bare": [sys.executable, script],
            "lockstep, files and functions": [*ours, "--", sys.executable, script],
            "lockstep, lines": [*ours, "--lines", "--", sys.executable, script],
        }
        if importlib.util.find_spec("coverage"):
            # By default it leaves installed packages out; what is asked here is what of them runs.
            ways["coverage.py, lines of all packages"] = [
                sys.executable,
                "-m",
                "coverage",
                "run",
                "--include=*",
                f"--data-file={folder}/data",
                script,
            ]
        else:
            print("coverage.py is not installed")
        secs = {name: [] for name in ways}
        for _ in range(options.runs):
            for name, command in ways.items():
                secs[name].append(processor_secs(command, environment, folder))
        bare = min(secs["bare"])
        print(
            f"Python {sys.version.split()[0]}, minimum of {options.runs}, processor time of all processes; bare varied by x{max(secs['bare']) / bare:.2f}"
        )
        for name, values in secs.items():
            print(f"{name:<38} {min(values):6.2f} s   x{min(values) / bare:.3f}")
        print("bars: functions x1.05, lines x1.30")


if __name__ == "__main__":
    main()
