"""Whether `lockstep health` is silent about programs that are right: the official pipeline in three precisions, and mflux in two.

    python benchmarks/clean_health.py --environments DIR

mflux gets an environment of its own in DIR, made on the first call (benchmarks/ports/environments.py). Exit status 1 where anything is said.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "ports"))
from environments import PORTS, environment, quiet_environment  # noqa: E402

PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
OFFICIAL = """
import sys, torch
from diffusers import QwenImagePipeline
pipeline = QwenImagePipeline.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
pipeline.set_progress_bar_config(disable=True)
pipeline("a red circle left of a blue square", num_inference_steps=3, width=96, height=64, true_cfg_scale=3.5, negative_prompt=" ",
         generator=torch.Generator().manual_seed(7))
"""


def findings(command, folder):
    """What is said of a program, the number of records and of attentions looked into."""
    subprocess.run(
        [
            PROGRAM,
            "--quiet",
            "--home",
            folder / "home",
            "record",
            "--inputs",
            "--health",
            "--name",
            "clean",
            "--",
            *command,
        ],
        cwd=folder,
        env=quiet_environment(),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    done = subprocess.run(
        [PROGRAM, "--home", folder / "home", "--json", "health", "latest:clean"], capture_output=True, text=True
    )
    answer = json.loads(done.stdout)
    return answer["findings"], answer["records"], len(answer["attention"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--environments", type=pathlib.Path, help="folder for the environment of mflux; without it, mflux is left out"
    )
    parser.add_argument("--only", default="", help="only programs whose title holds this")
    options = parser.parse_args()
    said = 0
    with tempfile.TemporaryDirectory() as made:
        folder, model = pathlib.Path(made), ROOT / "models" / "tiny"
        script = folder / "official.py"
        script.write_text(OFFICIAL)
        programs = {
            f"official pipeline, {dtype}": [sys.executable, script, model, dtype]
            for dtype in ("float32", "bfloat16", "float16")
        }
        if options.environments:
            python = environment(PORTS["mflux"], options.environments)
            driver = ROOT / "benchmarks" / "ports" / PORTS["mflux"].driver
            for dtype, words in {"f32": "float32", "own": "its own precision"}.items():
                programs[f"mflux, {words}"] = [python, driver, "--model", model, "--steps", 2, "--dtype", dtype]
        for title, command in programs.items():
            if options.only not in title:
                continue
            found, records, attentions = findings([str(word) for word in command], folder)
            print(f"{title:<32} {len(found)} findings, {records} records, {attentions} attentions", flush=True)
            for one in found:
                said += 1
                print(f"    {one['check']} at {one['name']}: {one['explanation']}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
