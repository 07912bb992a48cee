"""`lockstep batch`: two workers against one, what Ray adds to a job, and how long `lockstep --version` takes.

    ./dev bench batch [--jobs 200] [--ray PYTHON_WITH_RAY]

Each worker has one thread. One worker and two take turns, so that a busy moment of the machine meets both.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOCKSTEP = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))


def secs_of(folder, name, *options):
    began = time.perf_counter()
    subprocess.run(
        [LOCKSTEP, "--quiet", "batch", "jobs.jsonl", "--output", name, "--threads", "1", *options],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def worked_secs(folder, name):
    results = [json.loads(line) for line in (folder / name / "results.jsonl").read_text().splitlines()]
    return statistics.median(result["secs"] for result in results)


def workers(folder, rounds, count):
    one, two = [], []
    for turn in range(rounds):
        one.append(secs_of(folder, f"one-{turn}", "--workers", "1"))
        two.append(secs_of(folder, f"two-{turn}", "--workers", "2"))
    print(f"{count} pictures: one worker {min(one):.2f} s, two {min(two):.2f} s, {min(one) / min(two):.2f}x")


def job_wall_secs(folder, name, *options):
    """From one finished job to the next: starting up and loading the model come before the first."""
    secs_of(folder, name, *options)
    ended = sorted(path.stat().st_mtime_ns for path in (folder / name).glob("*.json"))
    return (ended[-1] - ended[0]) / 1e9 / (len(ended) - 1)


def ray_overhead(folder, python, rounds):
    """Time of a job with Ray beyond what the same job takes with one local worker. The cluster has one core and is up already."""
    script = (
        "import sys; from ray.cluster_utils import Cluster; "
        "c = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False}); "
        "print(c.address, flush=True); sys.stdin.read(); c.shutdown()"
    )
    cluster = subprocess.Popen(
        [python, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    address = cluster.stdout.readline().strip()
    options = ["--engine", "ray", "--address", address, "--python", python]
    local, with_ray = [], []
    for turn in range(rounds):
        local.append(job_wall_secs(folder, f"local-{turn}", "--workers", "1"))
        with_ray.append(job_wall_secs(folder, f"ray-{turn}", *options))
    print(
        f"a job with one local worker {1e3 * min(local):.1f} ms, with Ray {1e3 * min(with_ray):.1f} ms: "
        f"{1e3 * (min(with_ray) - min(local)):.1f} ms more (of it drawing: {1e3 * worked_secs(folder, 'local-0'):.1f} ms, "
        f"with Ray {1e3 * worked_secs(folder, 'ray-0'):.1f} ms)"
    )
    cluster.stdin.close()
    cluster.wait()


def version(rounds):
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([LOCKSTEP, "--version"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    print(
        f"lockstep --version: median {1e3 * statistics.median(times):.1f} ms, best {1e3 * min(times):.1f} ms of {rounds}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--size", default="128x128")
    parser.add_argument("--ray", help="a Python that has Ray")
    parser.add_argument("--only", choices=["workers", "ray", "version"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        job = {
            "kind": "generate",
            "prompt": "a red circle on a white background",
            "size": options.size,
            "steps": options.steps,
        }
        (folder / "jobs.jsonl").write_text(
            "".join(json.dumps({**job, "seed": seed}) + "\n" for seed in range(options.jobs))
        )
        if options.only in (None, "version"):
            version(100)
        if options.only in (None, "workers"):
            workers(folder, options.rounds, options.jobs)
        if options.ray and options.only in (None, "ray"):
            ray_overhead(folder, options.ray, options.rounds)


if __name__ == "__main__":
    main()
