"""`lockstep generate` and `lockstep edit` with the embedded models beside the official pipelines: process start to file.

    ./dev bench embedded [--only generate,edit] [--rounds 9] [--dtype f32] [--threads 2]

Ours is measured from outside, a new process each time, and the best round counts. The official pipeline is one process that
does the same work once to warm up and then for each round; its start (imports, loading) is a column of its own.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BARS = {"generate": 0.3, "edit": 0.6}
PROMPTS = {"generate": "a red circle left of a blue square", "edit": "make the circle blue"}
MODELS = {"generate": "tiny", "edit": "tiny-edit"}


def ours(verb, options, folder):
    command = [
        os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep"),
        verb,
        "--model",
        ROOT / "models" / MODELS[verb],
        "--prompt",
        PROMPTS[verb],
        "--seed",
        7,
        "--dtype",
        options.dtype,
        "--threads",
        options.threads,
        "--output",
        folder / f"{verb}.png",
    ]
    command += ["--input-image", folder / "photo.png"] if verb == "edit" else []
    begin = time.perf_counter()
    subprocess.run([str(c) for c in command], check=True, capture_output=True)
    return time.perf_counter() - begin


def run_official(verb, dtype, threads, rounds, photo):
    """Child process: prints the seconds of its start and of each round."""
    begin = time.perf_counter()
    sys.path.insert(0, str(ROOT / "python"))
    import torch
    from lockstep import official

    torch.set_num_threads(threads)
    model = ROOT / "models" / MODELS[verb]
    settings = json.loads((model / "lockstep.json").read_text())
    pipeline = official.load(model, {"bf16": torch.bfloat16, "f32": torch.float32}[dtype])
    pipeline.set_progress_bar_config(disable=True)
    arguments = {
        "negative_prompt": settings["negative_prompt"],
        "true_cfg_scale": settings["guidance"],
        "num_inference_steps": settings["steps"],
        "width": settings["width"],
        "height": settings["height"],
    }
    if verb == "edit":
        official.set_resolution(pipeline, settings["resolution"], settings["condition_resolution"])
    started, seconds = time.perf_counter() - begin, []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        picture = {"image": [official.open_picture(photo)]} if verb == "edit" else {}
        image = pipeline(
            prompt=PROMPTS[verb], generator=torch.Generator().manual_seed(7), **arguments, **picture
        ).images[0]
        image.save(pathlib.Path(photo).with_name(f"official-{verb}.png"))
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"start": started, "seconds": seconds[1:]}))


def levels(a, b):
    """The largest difference of two pictures, in levels."""
    import numpy as np
    from PIL import Image

    left, right = (np.asarray(Image.open(path).convert("RGB")).astype(int) for path in (a, b))
    return int(np.abs(left - right).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="generate,edit")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_official(options.child[0], options.dtype, options.threads, options.rounds, options.child[1])
    print("| work | ours, process start to file | bar | official, loaded | ratio | its start | pictures differ by |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        ours("generate", options, folder)
        (folder / "generate.png").rename(folder / "photo.png")
        for verb in options.only.split(","):
            mine = [ours(verb, options, folder) for _ in range(options.rounds)]
            child = [
                sys.executable,
                __file__,
                "--child",
                verb,
                folder / "photo.png",
                "--dtype",
                options.dtype,
                "--threads",
                options.threads,
                "--rounds",
                options.rounds,
            ]
            done = subprocess.run(
                [str(c) for c in child], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            theirs = json.loads(done.stdout.strip().splitlines()[-1])
            mine += [ours(verb, options, folder) for _ in range(options.rounds)]
            best, other = min(mine), min(theirs["seconds"])
            apart = levels(folder / f"{verb}.png", folder / f"official-{verb}.png")
            print(
                f"| {verb} {options.dtype} | {best:.3f} s | {BARS[verb]} s | {other:.3f} s | {other / best:.2f}x "
                f"| {theirs['start']:.1f} s | {apart} levels |",
                flush=True,
            )


if __name__ == "__main__":
    main()
