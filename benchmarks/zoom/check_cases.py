"""Checks the cases without the program that they judge: a rewrite gives the reference's result, and with its mistake another one.

python benchmarks/zoom/check_cases.py
python benchmarks/zoom/check_cases.py --set blind
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import SETS, as_numpy, case_set, in_dtype, loaded, planted, reference_of  # noqa: E402  found by the path above

CLEAR = {
    "usual": 1e-4,
    "blind": 1e-3,
    "third": 1e-3,
    "fourth": 1e-3,
}  # what a mistake must change, relative to the result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="usual", choices=SETS)
    chosen = parser.parse_args().set
    rewrites, mistakes = case_set(chosen)

    import numpy as np
    import torch

    torch.set_num_threads(1)
    bad = 0
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for mistake in mistakes:
            family = mistake.rewrite.split("/")[0]
            errors = {}
            for dtype in ("f32", "bf16"):
                module, weights, inputs, keep = reference_of(family, rewrites)
                module, given = in_dtype(module, inputs, keep, dtype)
                expected = as_numpy(module(*given))
                for kind, file in (
                    ("right", rewrites / f"{mistake.rewrite}.py"),
                    ("wrong", planted(mistake, folder, rewrites)[0]),
                ):
                    rewrite, given = in_dtype(loaded(file).build(weights), inputs, keep, dtype)
                    got = as_numpy(rewrite(*given))
                    errors[f"{dtype} {kind}"] = (
                        np.linalg.norm(got - expected) / np.linalg.norm(expected) if got.shape == expected.shape else 1
                    )
            good = errors["f32 right"] < 1e-5 and errors["f32 wrong"] > CLEAR[chosen] and errors["bf16 right"] < 0.03
            bad += not good
            print(
                f"{mistake.rewrite:<36}",
                *(f"{key} {value:.1e}" for key, value in errors.items()),
                "" if good else "  <-- not as it should be",
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
