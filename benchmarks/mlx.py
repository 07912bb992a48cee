"""A 3072-wide block: our MLX leaf against the same block in plain mlx.nn and our CPU backend; on a Mac also a picture.

    ./dev bench mlx [--tokens 256] [--rounds 3] [--dtypes bf16,f32] [--model Qwen-Image]

The three take turns in one run. On a Mac `--model` draws 512x512 in 20 steps at 4 bits too.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT / "examples/mlx")  # not this folder, where a file is called mlx too
import ml_dtypes  # noqa: E402
import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
import qwen_image  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

PROGRAM = pathlib.Path(os.environ["LOCKSTEP_BIN"])
CONFIG = {
    "_class_name": "QwenImageTransformer2DModel",
    "num_layers": 1,
    "num_attention_heads": 24,
    "attention_head_dim": 128,
    "joint_attention_dim": 3584,
    "patch_size": 2,
    "in_channels": 64,
    "out_channels": 16,
    "axes_dims_rope": [16, 56, 56],
}
MOST_OVERHEAD = 0.05
M3_MAX_SECS = 76  # 512x512, 20 steps, 4 bits, as the author of an MLX port measured it
DTYPES = {"bf16": mx.bfloat16, "f32": mx.float32}


def write_model(folder, rows, columns, text):
    """Weights of the released width whose values repeat one block of random numbers."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    rng = np.random.default_rng(7)
    block = (0.02 * rng.standard_normal(1 << 20)).astype(ml_dtypes.bfloat16)
    model = qwen_image.QwenImageTransformer(CONFIG)
    shapes = {name: value.shape for name, value in _leaves(model.parameters())}
    weights = {name: np.resize(block, shape) for name, shape in shapes.items()}
    save_file(weights, folder / "diffusion_pytorch_model.safetensors")
    np.save(folder / "latents.npy", rng.standard_normal((1, rows * columns, 64)).astype(np.float32))
    np.save(folder / "text.npy", rng.standard_normal((1, text, 3584)).astype(np.float32))


def _leaves(tree, prefix=""):
    if isinstance(tree, mx.array):
        yield prefix, tree
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))


class Plain:
    """The block in Python, as a port would write it."""

    def __init__(self, folder, rows, columns, dtype):
        self.model = qwen_image.load(folder, DTYPES[dtype])
        mx.eval(self.model.parameters())
        self.given = [mx.array(np.load(folder / f"{name}.npy")).astype(DTYPES[dtype]) for name in ("latents", "text")]
        self.tables = qwen_image.rotary_table(CONFIG, rows, columns, self.given[1].shape[1])
        self.sigma = mx.array([0.5])
        mx.eval(self.given, self.tables, self.sigma)

    def run(self):
        begin = time.perf_counter()
        result = self.model(*self.given, self.sigma, self.tables)
        mx.eval(result)
        took = 1e3 * (time.perf_counter() - begin)
        self.result = np.array(result.astype(mx.float32))
        return took


class Ours:
    def __init__(self, device, folder, rows, columns, dtype):
        command = [PROGRAM.parent / "bench_mlx", device, folder, str(rows), str(columns), dtype]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.result_file = folder / f"{device}.npy"
        self.ready = self.line()

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            raise SystemExit(f"bench_mlx ended with status {self.process.wait()}")
        return json.loads(text)

    def run(self):
        print("go", file=self.process.stdin, flush=True)
        return self.line()["ms"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        return np.load(self.result_file)


def measure(dtype, arguments, folder):
    rows = arguments.rows
    columns = arguments.tokens // rows
    plain = Plain(folder, rows, columns, dtype)
    leaf = Ours("mlx", folder, rows, columns, dtype)
    cpu = Ours("cpu", folder, rows, columns, dtype)
    sides = {"mlx.nn in Python": plain, "our MLX leaf": leaf, "our CPU backend": cpu}
    times = {name: [] for name in sides}
    for turn in range(arguments.rounds + arguments.warm):
        for name, side in sides.items():
            took = side.run()
            if turn >= arguments.warm:
                times[name].append(took)
    ours, of_cpu = leaf.end(), cpu.end()
    error = float(np.linalg.norm(ours - plain.result) / np.linalg.norm(plain.result))
    of_cpu_error = float(np.linalg.norm(ours - of_cpu) / np.linalg.norm(of_cpu))

    least = {name: min(took) for name, took in times.items()}
    print(f"\n{dtype}, {arguments.tokens} image tokens, {arguments.text} text tokens, {leaf.ready['device']}")
    print(f"  {'':20} {'least ms':>10} {'median ms':>10} {'most ms':>10}")
    for name, took in times.items():
        print(f"  {name:20} {min(took):10.1f} {sorted(took)[len(took) // 2]:10.1f} {max(took):10.1f}")
    overhead = least["our MLX leaf"] / least["mlx.nn in Python"] - 1
    print(f"  leaf over plain MLX: {100 * overhead:+.2f} % of the block (at most {100 * MOST_OVERHEAD:.0f} %)")
    faster = least["our MLX leaf"] / least["our CPU backend"]
    print(f"  our CPU backend is {faster:.1f} times as fast as the leaf")
    print(f"  relative error of the leaf: {error:.2e} against mlx.nn, {of_cpu_error:.2e} against the CPU backend")
    return overhead <= MOST_OVERHEAD


def draw(model):
    """512x512, 20 steps, 4 bits, on Metal."""
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "generate", "--device", "mlx", "--model", model, "--quantize", "4", "--dtype", "bf16"]
        command += ["--width", "512", "--height", "512", "--steps", "20", "--prompt", "a cat", "--output", "cat.png"]
        begin = time.perf_counter()
        subprocess.run(command, check=True, cwd=folder)
        took = time.perf_counter() - begin
    print(f"\n512x512, 20 steps, 4 bits: {took:.1f} s with loading; {M3_MAX_SECS} s was reported of an M3 Max")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--text", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--dtypes", default="bf16")
    parser.add_argument("--model", help="a Qwen-Image folder, for the picture on a Mac")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_model(folder, arguments.rows, arguments.tokens // arguments.rows, arguments.text)
        kept = [measure(dtype, arguments, folder) for dtype in arguments.dtypes.split(",")]
    if sys.platform == "darwin" and arguments.model:
        draw(arguments.model)
    elif sys.platform == "darwin":
        print("\n--model Qwen-Image would draw 512x512 in 20 steps at 4 bits here")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
