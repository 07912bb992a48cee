"""Random tiny pipelines on CUDA: every tap against the reference backend, in f32 and bf16.

    python benchmarks/cuda_configs.py BENCH_CUDA_STEPS COUNT [SEED]

BENCH_CUDA_STEPS is that program; case i has seed SEED + i. Needs torch and diffusers, which write the pipelines. Prints a JSON line
a case and one of them all: worst relative error of any tap, pixel levels between the pictures.
"""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools" / "reference"))
import tiny_pipeline  # noqa: E402


def run_case(bench, folder, seed):
    results = []
    for dtype in ["f32", "bf16"]:
        size = 16 * (1 + seed % 5)
        done = subprocess.run(
            [bench, "taps", str(folder), str(size), "3", dtype], capture_output=True, text=True, timeout=300
        )
        answer = (
            json.loads(done.stdout)
            if done.returncode == 0
            else {"failed": done.returncode, "error": done.stderr.strip()[-300:]}
        )
        results.append({"seed": seed, "size": size, "dtype": dtype, **answer})
    return results


def main():
    bench, count = sys.argv[1], int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(8) as pool:
        waiting = []
        for seed in range(first, first + count):
            folder = Path(home) / str(seed)
            tiny_pipeline.make_pipeline(folder, seed, **tiny_pipeline.random_config(seed))
            waiting.append(pool.submit(run_case, bench, folder, seed))
        results = [one for future in waiting for one in future.result()]
    for one in results:
        print(json.dumps(one))
    for dtype in ["f32", "bf16"]:
        ran = [one for one in results if one["dtype"] == dtype and "failed" not in one]
        print(
            json.dumps(
                {
                    "dtype": dtype,
                    "configs": len(ran),
                    "failed": count - len(ran),
                    "taps": sum(one["taps"] for one in ran),
                    "worst": max((one["worst"] for one in ran), default=None),
                    "mean": sum(one["mean"] for one in ran) / max(1, len(ran)),
                    "levels": max((max(one["levels"], one["levels_unheard"]) for one in ran), default=None),
                }
            ),
            flush=True,
        )
    return 1 if any("failed" in one for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
