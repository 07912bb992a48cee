"""Resizing 4000x3000 to 1024x768 with Lanczos beside Pillow: seconds and ratio, every bit compared.

    ./dev bench resize [--rounds 7]

Ours runs in build/bin/io_probe, which reads and writes .npy files around it; it says itself how long the resizing took.
"""

# needs: io_probe
import argparse
import pathlib
import sys
import tempfile
import time

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from io_probe import Probe  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    y, x = np.mgrid[0:3000, 0:4000]
    noise = np.random.default_rng(0).integers(0, 60, (3000, 4000, 3))
    pixels = np.clip(np.stack([x % 251, y % 241, (x + y) % 239], -1) + noise, 0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    ours, theirs = [], []
    with Probe() as probe, tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        np.save(folder / "in.npy", pixels)
        for _ in range(rounds):
            ours.append(probe.ask("resize", folder / "in.npy", folder / "out.npy", 768, 1024, "lanczos")["secs"])
            begin = time.perf_counter()
            expected = image.resize((1024, 768), Image.LANCZOS)
            theirs.append(time.perf_counter() - begin)
        equal = np.array_equal(np.load(folder / "out.npy"), np.asarray(expected))
    print("| work | ours | Pillow | ratio | bar | bits |")
    print("|---|---|---|---|---|---|")
    print(
        f"| 4000x3000 to 1024x768, Lanczos | {min(ours) * 1e3:.1f} ms | {min(theirs) * 1e3:.1f} ms "
        f"| {min(theirs) / min(ours):.2f}x | 2x | {'equal' if equal else 'DIFFERENT'} |"
    )


if __name__ == "__main__":
    main()
