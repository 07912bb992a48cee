"""Zoom from two recordings of the embedded model to the line: a mistake inside the transformer, and one in a scheduler.

./dev bench zoom_first_use                 records both sides with diffusers, then times `lockstep zoom`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
BAR_SECS = 30
SETTINGS = ["--prompt", "a red circle", "--seed", "7", "--steps", "2", "--width", "64", "--height", "64"]

PORT = """
import sys, torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline

class FeedForward(torch.nn.Module):
    def __init__(self, official):
        super().__init__()
        self.up, self.down = official.net[0].proj, official.net[2]

    def forward(self, x):
        hidden = self.up(x)
        hidden = torch.nn.functional.gelu(hidden{gelu})
        return self.down(hidden)

class Scheduler(FlowMatchEulerDiscreteScheduler):
    def step(self, model_output, timestep, sample, return_dict=True, **_):
        index = self.index_for_timestep(timestep)
        change = self.sigmas[index + 1] - self.sigmas[index]
        result = sample {sign} change * model_output
        return (result,)

pipeline = QwenImagePipeline.from_pretrained(sys.argv[1], dtype=torch.float32)
pipeline.scheduler = Scheduler.from_config(pipeline.scheduler.config)
for block in pipeline.transformer.transformer_blocks:
    block.img_mlp = FeedForward(block.img_mlp)
pipeline(prompt="a red circle", negative_prompt=" ", true_cfg_scale=4.0, num_inference_steps=2, width=64, height=64,
         generator=torch.Generator("cpu").manual_seed(7))
"""
RIGHT = {"gelu": ', approximate="tanh"', "sign": "+"}
MISTAKES = {  # name → what is written otherwise, and a part of that line
    "transformer": ({"gelu": ', approximate="none"'}, "torch.nn.functional.gelu"),
    "scheduler": ({"sign": "-"}, "result = sample"),
}


def run(folder, *words, expected=(0,)):
    command = [BINARY, "--home", str(folder / "home"), "--quiet", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode not in expected:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def main() -> int:
    good = True
    with tempfile.TemporaryDirectory(prefix="lockstep-zoom-") as place:
        folder = Path(place)
        negative = ["--negative-prompt", " ", "--guidance", "4.0"]
        run(folder, "reference", "generate", *SETTINGS, *negative, "--python", sys.executable)
        model = json.loads((folder / "home" / "latest" / "reference" / "run.json").read_text())["model"]
        for name, (change, part) in MISTAKES.items():
            text = PORT.format(**(RIGHT | change))
            (folder / f"{name}.py").write_text(text)
            run(folder, "record", "--inputs", "--name", name, "--", sys.executable, f"{name}.py", model)
            started = time.monotonic()
            answer = json.loads(run(folder, "--json", "zoom", "latest:reference", f"latest:{name}", expected=(0, 1)))
            seconds = time.monotonic() - started
            planted = next(number for number, line in enumerate(text.splitlines(), 1) if part in line)
            named = sorted({one["line"] for region in answer["regions"] for one in region["yours"]})
            found = planted in named
            good &= found and seconds <= BAR_SECS
            print(
                f"{name:<12} {seconds:6.1f} s (at most {BAR_SECS} s)  in {answer['call']['yours']}, line {planted} is "
                f"{'' if found else 'not '}among {named}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
