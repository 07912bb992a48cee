"""The CPU backend against torch, kernel by kernel: interleaved rounds, best of each, ratios and the distance to the peak.

    .venv/bin/python benchmarks/cpu_kernels.py [--rounds 5] [--threads 2] [--only linear] [--quick] [--markdown]

Needs build/bin/bench_cpu_kernels (cmake --preset release -DLOCKSTEP_BENCHMARKS=ON). Ours and torch's turns alternate within
each round, so that a busy moment of the machine meets both. On a machine busy all the time use --processor: one thread,
processor time instead of wall time.
"""

import argparse
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINEAR = [(1088, 12288, 3072), (1088, 3072, 12288), (4352, 3072, 3072), (256, 3072, 3072)]
CONV = [(512, 96, 96), (256, 192, 192), (128, 384, 384), (64, 384, 384), (256, 96, 96)]


class Ours:
    """build/bin/bench_cpu_kernels, one line per case."""

    def __init__(self, threads, processor):
        program = ROOT / "build/bin/bench_cpu_kernels"
        arguments = [program, str(threads)] + (["processor"] if processor else [])
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = self.process.stdout.readline().strip()

    def seconds(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"bench_cpu_kernels stopped at '{line}'")
        return float(answer)


class Torch:
    """The same cases in torch; a case is made when first asked for and dropped after its rounds."""

    def __init__(self, threads, processor):
        import torch

        self.torch, self.clock = torch, time.process_time if processor else time.perf_counter
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def variants(self, kind, dtype, sizes):
        """Named ways in which torch can do it; the best one counts."""
        t, F = self.torch, self.torch.nn.functional
        d = {"bf16": t.bfloat16, "f32": t.float32}[dtype]
        if kind == "linear":
            m, n, k = sizes
            x, w, b = t.randn(m, k).to(d), (t.randn(n, k) * 0.02).to(d), t.randn(n).to(d)
            return {"linear": lambda: F.linear(x, w, b)}
        if kind == "attention":
            tokens, heads, width = sizes
            q, k, v = (t.randn(1, heads, tokens, width).to(d) for _ in range(3))
            return {"sdpa": lambda: F.scaled_dot_product_attention(q, k, v)}
        if kind == "conv":
            size, inputs, outputs = sizes
            w, b = (t.randn(outputs, inputs, 3, 3) * 0.05).to(d), t.randn(outputs).to(d)
            x = t.randn(1, inputs, size, size).to(d)
            wl, xl = (a.contiguous(memory_format=t.channels_last) for a in (w, x))
            return {"nchw": lambda: F.conv2d(x, w, b, padding=1), "nhwc": lambda: F.conv2d(xl, wl, b, padding=1)}
        rows, width = sizes
        x, y, s = t.randn(1, rows, width).to(d), t.randn(1, rows, width).to(d), t.randn(1, 1, width).to(d)
        if kind == "norm_modulate":
            return {"eager": lambda: F.layer_norm(x, (width,), eps=1e-6) * (1 + s) + s}
        if kind == "add_gated":
            return {"eager": lambda: x + s * y}
        h, w = x.view(1, rows, width // 128, 128), t.randn(128).to(d)
        freqs = t.polar(t.ones(rows, 64), t.randn(rows, 64))[None, :, None, :]

        def rope():
            n = (h.float() * t.rsqrt(h.float().square().mean(-1, keepdim=True) + 1e-6)).to(d) * w
            return t.view_as_real(t.view_as_complex(n.float().reshape(*n.shape[:-1], 64, 2)) * freqs).flatten(3).to(d)

        return {"eager": rope}

    def seconds(self, work):
        best = 1e9
        for _ in range(2):
            begin = self.clock()
            work()
            best = min(best, self.clock() - begin)
        return best


def cases(quick):
    for dtype in ("bf16", "f32"):
        for shape in LINEAR:
            yield "linear", dtype, shape, 1.0
    for dtype in ("bf16", "f32"):
        for tokens in (1088,) if quick else (1088, 4352):
            yield "attention", dtype, (tokens, 24, 128), 1.8 if dtype == "bf16" else 1.2
    for dtype in ("bf16", "f32"):
        for shape in CONV[-2:] if quick else CONV:
            yield "conv", dtype, shape, 1.0
    for kind in ("norm_modulate", "head_norm_rope", "add_gated"):
        for dtype in ("bf16", "f32"):
            yield kind, dtype, (4352, 3072), 0.8


def operations(kind, sizes):
    if kind in ("linear", "quantised"):
        return 2 * sizes[0] * sizes[1] * sizes[2]
    if kind == "attention":
        return 4 * sizes[0] ** 2 * sizes[1] * sizes[2]
    return 2 * sizes[0] ** 2 * sizes[1] * sizes[2] * 9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--quick", action="store_true", help="leave the largest cases out")
    parser.add_argument("--processor", action="store_true", help="processor time of one thread")
    options = parser.parse_args()
    if options.processor:
        options.threads = 1
    ours, torch = Ours(options.threads, options.processor), Torch(options.threads, options.processor)
    best = lambda line: min(ours.seconds(line) for _ in range(12))  # noqa: E731  a thread that wakes late halves a short one
    per_thread = 625 * 96 * 128 * 64 * 2
    peak = {d: per_thread * options.threads / best(f"peak {d}") / 1e9 for d in ("bf16", "f32")}
    bandwidth = (256 << 21) / best("bandwidth 256") / 1e9
    print(f"{ours.description}; torch {torch.torch.__version__}, {options.threads} threads")
    print(f"measured peak: bf16 {peak['bf16']:.0f}, f32 {peak['f32']:.0f} GFLOP/s; copy {bandwidth:.1f} GB/s\n")
    print("| work | ours | torch | ratio | bar | of the peak |\n|---|---|---|---|---|---|")
    wanted = options.only.split(",") if options.only else None
    for kind, dtype, sizes, bar in cases(options.quick):
        if wanted and kind not in wanted and not (kind == "linear" and "quantised" in wanted):
            continue
        line = " ".join([kind, dtype, *map(str, sizes)])
        quantised = " ".join(["quantised", dtype, *map(str, sizes), "4 64"]) if kind == "linear" else None
        variants = torch.variants(kind, dtype, sizes)
        mine = four_bits = 1e9
        theirs = {name: 1e9 for name in variants}
        for work in variants.values():
            work()
        for _ in range(options.rounds):
            mine = min(mine, ours.seconds(line))
            if quantised:
                four_bits = min(four_bits, ours.seconds(quantised))
            for name, work in variants.items():
                theirs[name] = min(theirs[name], torch.seconds(work))
        name, other = min(theirs.items(), key=lambda item: item[1])
        label = f"{kind} {dtype} {'x'.join(map(str, sizes))}"
        if kind in ("linear", "attention", "conv"):
            scale, unit, top = operations(kind, sizes) / 1e9, "GFLOP/s", peak[dtype]
            verdict = f"{other / mine:.2f}x | {bar}x"
        else:
            streams = 3 if kind == "add_gated" else 2
            scale, unit, top = streams * sizes[0] * sizes[1] * (2 if dtype == "bf16" else 4) / 1e9, "GB/s", bandwidth
            verdict = f"{other / mine:.2f}x | 80 % of copy"
        print(
            f"| {label} | {scale / mine:.1f} {unit} | {scale / other:.1f} ({name}) | {verdict} "
            f"| {100 * scale / mine / top:.0f} % |",
            flush=True,
        )
        if quantised:
            print(
                f"| 4-bit group 64 {label} | {scale / four_bits:.1f} {unit} | | {mine / four_bits:.2f}x ours dense "
                f"| 0.9x | {100 * scale / four_bits / top:.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
