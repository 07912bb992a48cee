"""Guidance as two passes against one batch, by image size: where the one overtakes the other.

    ./dev bench guidance [--model DIR] [--rounds 5] [--dtype f32]

The same picture both ways, in turns, best of the rounds, seconds inside the program.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def seconds(options, size, run, folder):
    command = [
        os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep"),
        "generate",
        "--prompt",
        "a red circle left of a blue square",
        "--width",
        str(size),
        "--height",
        str(size),
        "--dtype",
        options.dtype,
        "--guidance-run",
        run,
        "--output",
        f"{folder}/{run}.png",
        "--json",
    ]
    command += ["--model", options.model] if options.model else []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["secs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="f32")
    options = parser.parse_args()
    print("| size | image tokens | two passes | one batch | batch is |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in (64, 96, 128, 160, 192, 256):
            best = {"passes": 1e9, "batch": 1e9}
            for _ in range(options.rounds):
                for run in best:
                    best[run] = min(best[run], seconds(options, size, run, folder))
            print(
                f"| {size} | {(size // 16) ** 2} | {best['passes']:.3f} s | {best['batch']:.3f} s "
                f"| {best['passes'] / best['batch']:.2f}x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
