"""The image server: what it adds to `lockstep generate`, previews, cancelling, connections, batches, and a peer.

Parts run by name (`./dev bench image_server overhead previews`), all without one. `load` takes two minutes, as many clients
as `--clients` says.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
sys.path.insert(0, str(ROOT / "benchmarks" / "image_peers"))

import image_load  # noqa: E402
from image_service import PROGRAM, EventStream, ImageServer  # noqa: E402

PROMPTS = ("a red circle left of a blue square", "a blue square left of a red circle")  # of one length, never neighbours
MB = 1 << 20


def told(name, value, bar=None, met=None):
    verdict = "" if met is None else ("   met" if met else "   MISSED")
    print(f"  {name:<58} {value}{'' if bar is None else f'   bar {bar}'}{verdict}", flush=True)


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def marginal_secs(folder, count, threads):
    """Of one more picture in one call of `lockstep generate`, the model being loaded."""
    prompts = pathlib.Path(folder) / "prompts.txt"

    def secs(pictures):
        prompts.write_text("\n".join(PROMPTS[i % 2] for i in range(pictures)) + "\n")
        words = ["generate", "--prompt-file", prompts, "--output", pathlib.Path(folder) / "{index}.png", "--device", "cpu", "--threads", threads, "--seed", 1]
        done = subprocess.run([PROGRAM, "--json", *map(str, words)], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["secs"]

    few = 2
    return (secs(count + few) - secs(few)) / count


def served_secs(server, count):
    times = []
    for i in range(count):
        began = time.perf_counter()
        server.json("POST", "/v1/images/generations", {"prompt": PROMPTS[i % 2], "seed": 1})
        times.append(time.perf_counter() - began)
    return times


def overhead(server, folder, options):
    print("server over `generate`, one picture of 128x128 and 20 steps, model loaded")
    served_secs(server, 4)
    rounds = []
    for _ in range(options.rounds):
        alone = marginal_secs(folder, options.pictures, options.threads)
        rounds.append((statistics.median(served_secs(server, options.pictures)), alone))
    served, alone = (min(values) for values in zip(*rounds, strict=True))
    extra = served - alone
    told("generate, a picture more", f"{alone * 1000:8.2f} ms")
    told("server, a request", f"{served * 1000:8.2f} ms")
    told("difference", f"{extra * 1000:8.2f} ms, {100 * extra / alone:+.2f} %", "5 ms and 1 %", extra <= 0.005 and extra <= 0.01 * alone)


def totals(server, name):
    return server.metric(f"{name}_sum"), server.metric(f"{name}_count")


def previews(server, folder, options):
    print("previews (each step of pictures that somebody follows)")
    for size in ("128x128", "512x512"):
        before = {name: totals(server, name) for name in ("lockstep_preview_seconds", "lockstep_step_seconds")}
        largest = 0
        for _ in range(options.rounds):
            stream = EventStream(server, "/v1/images/generations", "POST", {"prompt": PROMPTS[0], "size": size, "stream": True, "partial_images": 3, "steps": 12, "output_format": "png"})
            while event := stream.next():
                if event["event"].endswith("partial_image"):
                    largest = max(largest, len(event["data"]["b64_json"]) * 3 // 4)
            stream.close()
        means = {}
        for name, (secs, count) in before.items():
            after = totals(server, name)
            means[name] = (after[0] - secs) / (after[1] - count)
        share = means["lockstep_preview_seconds"] / means["lockstep_step_seconds"]
        told(f"{size}: preview of a step", f"{means['lockstep_preview_seconds'] * 1e6:.0f} us of {means['lockstep_step_seconds'] * 1000:.2f} ms, {100 * share:.2f} %", "1 %", share <= 0.01)
        told(f"{size}: largest", f"{largest} bytes", "30 KB", largest <= 30000)


def cancels(server, folder, options):
    print("cancelling a running job of the embedded model (256x256)")
    worst, asked = 0, 0
    for i in range(20):
        job = server.job(prompt=PROMPTS[0], steps=1000, size="256x256")["id"]
        while server.json("GET", f"/v1/jobs/{job}").get("progress", {}).get("step", 0) < 2 + i % 3:
            time.sleep(0.002)
        began = time.perf_counter()
        server.json("POST", f"/v1/jobs/{job}/cancel")
        asked = max(asked, time.perf_counter() - began)
        before = None
        while server.metric("lockstep_jobs_running") or before is None:
            before = True
        small = server.job(prompt=PROMPTS[0], steps=2)["id"]  # starts when the thread is free
        server.ended(small)
        worst = max(worst, server.metric("lockstep_last_cancel_seconds"))
    told("until the thread that draws is free, worst of 20", f"{worst * 1000:.1f} ms", "100 ms", worst <= 0.1)
    told("until the answer, worst of 20", f"{asked * 1000:.1f} ms")


def connects(server, folder, options):
    print("200 simultaneous connects while a picture is drawn")
    job = server.job(prompt=PROMPTS[0], steps=1000, size="256x256")["id"]
    together = threading.Barrier(200)

    def ask(_):
        together.wait()
        began = time.perf_counter()
        try:
            status = server.request("GET", "/v1/health", timeout=12)[0]
        except OSError:
            status = 0
        return status, time.perf_counter() - began

    worst = []
    for _ in range(options.rounds):
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(ask, range(200)))
        times = sorted(secs for _, secs in answers)
        worst.append((sum(status != 200 for status, _ in answers), times[197]))
    server.json("POST", f"/v1/jobs/{job}/cancel")
    told("lost", f"{max(lost for lost, _ in worst)} of 200", "0", max(lost for lost, _ in worst) == 0)
    told("p99 of /v1/health, with the client's own 200 threads", f"{statistics.median(secs for _, secs in worst) * 1000:.1f} ms", "50 ms", statistics.median(secs for _, secs in worst) <= 0.05)


def streams(server, folder, options):
    print("1,000 idle event streams")
    server.request("GET", "/v1/health")
    before = resident(server.process.pid)
    threads = len(os.listdir(f"/proc/{server.process.pid}/task"))
    held = [EventStream(server) for _ in range(1000)]
    more = resident(server.process.pid) - before
    told("memory", f"{more / 1e6:+.1f} MB", "50 MB", more <= 50e6)
    told("threads", f"{len(os.listdir(f'/proc/{server.process.pid}/task')) - threads:+d}")
    for stream in held:
        stream.close()


def batches(server, folder, options):
    print("8 pictures of the embedded model as one batch, against 8 alone")
    with tempfile.TemporaryDirectory() as other:
        single = ImageServer(other, "--batch-tokens", 0, threads=options.server)
        try:
            ways = {"together": server, "alone": single}
            times = {name: [] for name in ways}
            for _ in range(options.rounds + 1):
                for name, one in ways.items():
                    began = time.perf_counter()
                    one.json("POST", "/v1/images/generations", {"prompt": PROMPTS[0], "seed": 1, "n": 8})
                    times[name].append(time.perf_counter() - began)
            best = {name: min(values[1:]) for name, values in times.items()}
            told("alone", f"{best['alone']:.3f} s")
            told("together", f"{best['together']:.3f} s, x{best['alone'] / best['together']:.2f} as fast", "never slower", best["together"] <= best["alone"] * 1.01)
        finally:
            single.close()


def peer(server, folder, options):
    """The official pipeline behind FastAPI, one thread that draws, as tutorials show it."""
    print("diffusers behind FastAPI (or Starlette, which FastAPI is made of, where it is not installed)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "benchmarks" / "image_peers" / "diffusers_server.py"), str(port), str(ROOT / "models" / "tiny"), str(options.threads)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        from diffusers_client import asked, wait_until_ready

        name = wait_until_ready(process, port)
        rounds = {"ours": [], name: []}
        asked(port, PROMPTS[0])
        served_secs(server, 2)
        inside = []
        for _ in range(options.rounds):
            rounds["ours"] += served_secs(server, 6)
            for i in range(6):
                secs, drawing = asked(port, PROMPTS[i % 2])
                rounds[name].append(secs)
                inside.append(secs - drawing)
        ours, theirs = statistics.median(rounds["ours"]), statistics.median(rounds[name])
        told("ours, one client", f"{1 / ours:.2f} requests a second")
        told(f"{name}, one client", f"{1 / theirs:.2f} requests a second; ours is x{theirs / ours:.2f} as fast")
        told(f"{name}: beside the pipeline's own time", f"{statistics.median(inside) * 1000:.2f} ms a request")
    finally:
        process.terminate()
        process.wait(30)


def load(server, folder, options):
    image_load.run(server, options.clients, options.load_secs, told)


PARTS = {"overhead": overhead, "previews": previews, "cancels": cancels, "connects": connects, "streams": streams, "batches": batches, "peer": peer, "load": load}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=12, help="of one round of the overhead")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--load-secs", type=float, default=120)
    options = parser.parse_args()
    options.server = ("--device", "cpu", "--threads", options.threads)
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            server = ImageServer(folder, threads=options.server)
            try:
                PARTS[name](server, folder, options)
            finally:
                server.close()


if __name__ == "__main__":
    main()
