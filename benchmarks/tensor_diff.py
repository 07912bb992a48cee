"""`tensors diff` on two 1 GB f32 files against a NumPy script with the same metrics, and against a plain read."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
CHUNK = 1 << 22  # elements: the script streams too, in pieces that suit NumPy


def write_pair(folder, elements):
    rng = np.random.default_rng(0)
    paths = [folder / "reference.npy", folder / "candidate.npy"]
    files = [np.lib.format.open_memmap(path, "w+", np.float32, (elements,)) for path in paths]
    for at in range(0, elements, CHUNK):
        values = rng.standard_normal(min(CHUNK, elements - at), dtype=np.float32)
        files[0][at : at + CHUNK] = values
        files[1][at : at + CHUNK] = values * (1 + 1e-6 * rng.standard_normal(values.size, dtype=np.float32))
    for file in files:
        file.flush()
    return paths


def ordered(x):
    bits = x.view(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF).astype(np.int64), bits)


def numpy_metrics(reference_path, candidate_path):
    """What a careful person writes: streamed, sums in float64."""
    reference, candidate = np.load(reference_path, mmap_mode="r"), np.load(candidate_path, mmap_mode="r")
    m = dict.fromkeys("max_abs max_rel errors squares rr cc rc outside max_ulp ulps".split(), 0.0)
    sides = [dict(min=np.inf, max=-np.inf, sum=0.0, nan=0, inf=0, zero=0, denormal=0) for _ in range(2)]
    histogram, worst = np.zeros(2048, np.int64), None
    tiny = np.finfo(np.float32).tiny
    for at in range(0, reference.size, CHUNK):
        r32, c32 = np.array(reference[at : at + CHUNK]), np.array(candidate[at : at + CHUNK])
        r, c = r32.astype(np.float64), c32.astype(np.float64)
        error, size = np.abs(c - r), np.abs(r)
        if error.max() > m["max_abs"]:
            m["max_abs"], worst = error.max(), at + error.argmax()
        m["max_rel"] = max(m["max_rel"], (error[size > 0] / size[size > 0]).max())
        m["errors"] += error.sum()
        m["squares"] += (error * error).sum()
        m["rr"] += (r * r).sum()
        m["cc"] += (c * c).sum()
        m["rc"] += (r * c).sum()
        m["outside"] += (error > 1e-5 + 1.3e-6 * size).sum()
        apart = np.abs(ordered(r32) - ordered(c32))
        m["max_ulp"] = max(m["max_ulp"], apart.max())
        m["ulps"] += apart.sum()
        histogram += np.histogram(np.log10(np.maximum(error, 1e-39)), 2048, (-39, 39))[0]  # equal bins: its fast path
        for side, x, wide in zip(sides, (r32, c32), (r, c)):
            side["min"], side["max"] = min(side["min"], x.min()), max(side["max"], x.max())
            side["sum"] += wide.sum()
            side["nan"] += np.isnan(x).sum()
            side["inf"] += np.isinf(x).sum()
            side["zero"] += (x == 0).sum()
            side["denormal"] += ((x != 0) & (np.abs(x) < tiny)).sum()
    return m, sides, histogram, worst


def timed_program(paths):
    """Wall time of the whole process, its answer, and the most anonymous memory (what it holds beyond the maps)."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [PROGRAM, "tensors", "diff", *map(str, paths), "--json"], stdout=subprocess.PIPE, text=True
    )
    most = [0]

    def watch():
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            for line in status.splitlines():
                if line.startswith("RssAnon:"):
                    most[0] = max(most[0], int(line.split()[1]) * 1024)
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = process.communicate()[0]
    secs = time.perf_counter() - start
    watcher.join()
    return secs, json.loads(out)["tensors"][0], most[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=1024, help="size of each file in MiB")
    parser.add_argument("--folder", help="where to put the files (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        paths = write_pair(pathlib.Path(folder), arguments.mb << 18)
        for path in paths:
            path.read_bytes()  # both sides find the files in the page cache
        start = time.perf_counter()
        m, _, _, worst = numpy_metrics(*paths)
        numpy_secs = time.perf_counter() - start
        program_secs, answer, anonymous = min((timed_program(paths) for _ in range(5)), key=lambda run: run[0])
        assert answer["worst"]["index"] == [worst] and answer["mismatches"] == m["outside"], "both must agree"
        assert (
            abs(answer["error"]["rmse"] - (m["squares"] / (arguments.mb << 18)) ** 0.5)
            < 1e-12 * answer["error"]["rmse"] + 1e-18
        )
        inside = json.loads(
            subprocess.run(
                [str(pathlib.Path(PROGRAM).parent / "bench_tensor_diff"), *map(str, paths)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    gb = inside["bytes"] / 1e9
    print(f"two files of {arguments.mb} MiB f32, {inside['threads']} threads, load {os.getloadavg()[0]:.1f}")
    print(f"NumPy script            {numpy_secs:8.3f} s")
    print(
        f"lockstep tensors diff   {program_secs:8.3f} s   whole process; {numpy_secs / program_secs:.1f}x NumPy (goal 5x)"
    )
    print(f"memory beyond the maps  {anonymous / 1e6:8.1f} MB  (goal: at most 64)")
    for label, prefix in (("fresh maps", "fresh_"), ("warm maps", "")):
        read, diff = inside[prefix + "read_secs"], inside[prefix + "diff_secs"]
        print(
            f"{label}: plain read {gb / read:5.1f} GB/s, compare {gb / diff:5.1f} GB/s = {100 * read / diff:.0f} % (goal 40 %)"
        )
    print(f"statistics of one tensor {gb / 2 / inside['stats_secs']:.1f} GB/s")


if __name__ == "__main__":
    main()
