"""The image server: what it adds to `lockstep generate`, previews, cancelling, connections, batches, and a peer.

Parts run by name (`./dev bench image_server overhead previews`), all without one. `load` takes two minutes, as many clients
as `--clients` says.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
sys.path.insert(0, str(ROOT / "benchmarks" / "image_peers"))

import image_load  # noqa: E402
from diffusers_client import DiffusersServer  # noqa: E402
from image_service import PROGRAM, EventStream, ImageServer  # noqa: E402
from quiet_moments import QuietMoments  # noqa: E402

PROMPTS = (
    "a red circle left of a blue square",
    "a blue square left of a red circle",
)  # of one length, never neighbours
COLORS = ("red", "blue", "green", "yellow", "purple", "orange", "white", "pink")
SHAPES = ("circle", "square", "triangle", "star")
BENCH = str(pathlib.Path(PROGRAM).parent / "bench_image_server")


def told(name, value, bar=None, met=None):
    verdict = "" if met is None else ("   met" if met else "   MISSED")
    print(f"  {name:<58} {value}{'' if bar is None else f'   bar {bar}'}{verdict}", flush=True)


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def processor_secs(pid):
    """Of all threads of a process, to the nanosecond."""
    secs = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            secs += int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended
            continue
    return secs


class BenchProgram:
    """bench_image_server, which takes bodies of requests and says how long each took."""

    def __init__(self, *arguments, environment=None):
        self.process = subprocess.Popen(
            [BENCH, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**(environment or {}), **os.environ},
        )

    def secs(self, body):
        self.process.stdin.write(json.dumps(body) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["secs"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


def pipeline_alone(threads):
    """`generate` with its model loaded. `lockstep generate` tells OpenMP to spin so long, and no longer."""
    return BenchProgram("draw", ROOT / "models" / "tiny", threads, environment={"GOMP_SPINCOUNT": "10000"})


def client_of(server):
    """Draws by the server, timed by the same program as the pipeline alone. An interpreter that a picture has driven from
    the caches takes 0.1 to 0.25 ms for its own part of a connect and of an answer, and only one side would have it."""
    return BenchProgram("ask", server.port, server.token)


def served_secs(server, body):
    """From the connect to the last byte of the answer. The request is ready before, and the answer is read as it is: what
    a client's own library takes is not the server's time."""
    data = json.dumps(body).encode()
    head = f"POST /v1/images/generations HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    pieces = []
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as line:
        line.sendall(request)
        while piece := line.recv(1 << 20):  # it closes behind the answer
            pieces.append(piece)
    secs = time.perf_counter() - began
    answer = b"".join(pieces)
    assert answer.startswith(b"HTTP/1.1 200 "), answer[:500]
    return secs


def middle_of(values):
    """The median and the bounds between which it lies with 95 %, by the order of the values alone."""
    ordered, reach = sorted(values), 0.98 * math.sqrt(len(values))
    middle = len(ordered) / 2
    low, high = max(0, math.floor(middle - reach)), min(len(ordered) - 1, math.ceil(middle + reach))
    return statistics.median(ordered), ordered[low], ordered[high]


def new_prompts():
    """Prompts that a server has not seen, or not among the last, of which it keeps what the text encoder made."""
    things = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]
    prompts = [f"{one} left of {other}" for one in things for other in things if one != other]
    random.shuffle(prompts)
    return itertools.cycle(prompts)


def pairs_of(server, client, alone, size, prompts, count, moments, most_secs):
    """Seconds of both sides for the same picture, one directly after the other, who is first by lot: as drawn after one of
    its own, and as drawn after the other side has filled the processor's caches."""
    for _ in range(4):
        body = {"prompt": next(prompts), "seed": 1, "size": size}
        alone.secs(body), client.secs(body)
    pairs, after_the_other, spent = [], [], {"alone": 0, "served": 0}
    sides = {
        "alone": (alone.process.pid, alone.secs),
        "served": (server.process.pid, client.secs),
    }
    until = time.monotonic() + most_secs
    while len(pairs) < count and time.monotonic() < until:
        first, took, used = {}, {}, {}
        before_it, body = ({"prompt": next(prompts), "seed": 1, "size": size} for _ in range(2))
        moments.begin()
        for name in random.sample(sorted(sides), 2):
            pid, draw = sides[name]
            first[name] = draw(before_it)
            before = processor_secs(pid)
            took[name] = draw(body)
            used[name] = processor_secs(pid) - before
        if not moments.was_quiet():
            continue
        pairs.append((took["alone"], took["served"]))
        after_the_other.append((first["alone"], first["served"]))
        for name, secs in used.items():
            spent[name] += secs
    return pairs, after_the_other, spent


def overhead(server, folder, options):
    """Where a process's memory happens to lie makes it some percent faster or slower for its life: several of each."""
    which = "one prompt all the time" if options.one_prompt else "a new prompt each time"
    print(
        f"server over `generate`: the same picture, models loaded, {which}, {options.processes} processes of each side"
    )
    random.seed(1)
    found = {size: ([], [], []) for size in options.sizes.split(",")}
    moments = QuietMoments()
    for _ in range(options.processes):
        prompts = itertools.repeat(PROMPTS[0]) if options.one_prompt else new_prompts()
        with tempfile.TemporaryDirectory() as other:
            alone, served = pipeline_alone(options.threads), ImageServer(other, threads=options.server)
            client = client_of(served)
            try:
                for size, of_processes in found.items():
                    count, most = options.pictures // options.processes, options.most_secs / options.processes
                    more = pairs_of(served, client, alone, size, prompts, count, moments, most / len(found))
                    for kept, one in zip(of_processes, more, strict=True):
                        kept.append(one)
            finally:
                alone.close(), client.close(), served.close()
    told("pairs", moments.words())
    for size, (parts, firsts, spent) in found.items():
        pairs = [pair for part in parts for pair in part]
        plain = statistics.median(pair[0] for pair in pairs)
        extra, low, high = middle_of([served - own for own, served in pairs])
        told(f"{size}, 20 steps: generate", f"{plain * 1000:8.2f} ms, median of {len(pairs)}")
        told(f"{size}, 20 steps: server", f"{statistics.median(pair[1] for pair in pairs) * 1000:8.2f} ms")
        told(
            f"{size}: difference, median of pairs",
            f"{extra * 1000:8.2f} ms, {100 * extra / plain:+.2f} %",
            "5 ms and 1 %",
            extra <= 0.005 and extra <= 0.01 * plain,
        )
        told(f"{size}: it lies, with 95 %, within", f"{low * 1000:+.2f} to {high * 1000:+.2f} ms")
        told(
            f"{size}: of each process's pairs",
            ", ".join(f"{statistics.median(b - a for a, b in part) * 1000:+.2f} ms" for part in parts if part),
        )
        told(
            f"{size}: difference where the other side drew before",
            f"{statistics.median(b - a for part in firsts for a, b in part) * 1000:8.2f} ms",
        )
        own, theirs = (sum(secs[name] for secs in spent) / len(pairs) for name in ("alone", "served"))
        told(
            f"{size}: processor time of a picture, generate and server",
            f"{own * 1000:.2f} and {theirs * 1000:.2f} ms, {100 * (theirs / own - 1):+.2f} %",
        )


def totals(server, name):
    return server.metric(f"{name}_sum"), server.metric(f"{name}_count")


def followed_picture(server, size):
    """Draws one with previews; bytes of the largest of them."""
    body = {"prompt": PROMPTS[0], "size": size, "stream": True, "partial_images": 3, "steps": 12}
    stream = EventStream(server, "/v1/images/generations", "POST", {**body, "output_format": "png"})
    largest = 0
    while event := stream.next():
        if event["event"].endswith("partial_image"):
            largest = max(largest, len(event["data"]["b64_json"]) * 3 // 4)
    stream.close()
    return largest


def previews(server, folder, options):
    print("previews (each step of pictures that somebody follows)")
    names = ("lockstep_preview_seconds", "lockstep_step_seconds")
    for size in ("128x128", "512x512"):
        moments, sums, largest = QuietMoments(), {name: [0, 0] for name in names}, 0
        until = time.monotonic() + options.most_secs / 4
        followed_picture(server, size)
        while moments.kept < 4 * options.rounds and time.monotonic() < until:
            before = {name: totals(server, name) for name in names}
            moments.begin()
            largest = max(largest, followed_picture(server, size))
            if not moments.was_quiet():
                continue
            for name in names:
                after = totals(server, name)
                for k in range(2):
                    sums[name][k] += after[k] - before[name][k]
        preview, step = (sums[name][0] / max(1, sums[name][1]) for name in names)
        told(
            f"{size}: preview of a step, mean of {sums[names[0]][1]:.0f}",
            f"{preview * 1e6:.0f} us of {step * 1000:.2f} ms, {100 * preview / max(step, 1e-9):.2f} %",
            "1 %",
            0 < preview <= 0.01 * step,
        )
        told(f"{size}: largest", f"{largest} bytes", "30 KB", largest <= 30000)
        told(f"{size}: pictures", moments.words())


def cancels(server, folder, options):
    print("cancelling a running job of the embedded model (256x256)")
    worst, asked, layers = 0, 0, 0
    for i in range(20):
        job = server.job(prompt=PROMPTS[0], steps=1000, size="256x256")["id"]
        stream = EventStream(server)
        while (event := stream.next())["event"] != "job.progress" or event["data"]["step"] < 2 + i % 3:
            pass
        stream.close()
        began = time.perf_counter()
        server.json("POST", f"/v1/jobs/{job}/cancel")
        asked = max(asked, time.perf_counter() - began)
        server.ended(server.job(prompt=PROMPTS[0], steps=2)["id"])  # starts when the thread is free
        worst = max(worst, server.metric("lockstep_last_cancel_seconds"))
        layers = max(layers, server.metric("lockstep_last_cancel_layers"))
    told("until the thread that draws is free, worst of 20", f"{worst * 1000:.1f} ms", "100 ms", worst <= 0.1)
    told("layers begun after the cancel, worst of 20", f"{layers:.0f}; the one that runs is finished", "1", layers <= 1)
    told("until the answer, worst of 20", f"{asked * 1000:.1f} ms")


def connects(server, folder, options):
    print("200 simultaneous connects while a picture is drawn, /v1/health asked of each; the client is one thread")
    job = server.job(prompt=PROMPTS[0], steps=1000, size="256x256")["id"]
    rounds = []
    for _ in range(4 * options.rounds):
        done = subprocess.run(
            [BENCH, "connect", str(server.port), server.token, "200"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == 200
        rounds.append((sum(one["status"] != 200 for one in answers), sorted(one["secs"] for one in answers)))
    server.json("POST", f"/v1/jobs/{job}/cancel")
    lost = sum(count for count, _ in rounds)
    p99 = [times[197] for _, times in rounds]
    told("lost", f"{lost} of {200 * len(rounds)}", "0", lost == 0)
    told(
        f"p99 of /v1/health, median of {len(rounds)} rounds",
        f"{statistics.median(p99) * 1000:.1f} ms",
        "50 ms",
        statistics.median(p99) <= 0.05,
    )
    told(
        "p99 of the worst round; median of all answers",
        f"{max(p99) * 1000:.1f} ms; {statistics.median(times[100] for _, times in rounds) * 1000:.1f} ms",
    )


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
    print(
        "8 pictures of the embedded model, against 8 alone: wall time; the server batches where it has found that faster"
    )
    with tempfile.TemporaryDirectory() as other:
        single = ImageServer(other, "--batch-tokens", 0, threads=options.server)
        try:
            ways = {"served": server, "alone": single}
            for size in ("64x64", "128x128"):
                times = {name: [] for name in ways}
                batched = server.metric("lockstep_pictures_batched_total")
                for i in range(options.rounds + 3):
                    for name in ways if i % 2 else list(ways)[::-1]:
                        times[name].append(
                            served_secs(ways[name], {"prompt": PROMPTS[0], "seed": 1, "n": 8, "size": size})
                        )
                batched = server.metric("lockstep_pictures_batched_total") - batched
                middle = {
                    name: statistics.median(values[3:]) for name, values in times.items()
                }  # behind what it tries first
                ratio = statistics.median(a / b for a, b in zip(times["alone"][3:], times["served"][3:], strict=True))
                told(f"{size}: alone", f"{middle['alone']:.3f} s")
                told(
                    f"{size}: as served, {batched:.0f} of {8 * (options.rounds + 3)} batched",
                    f"{middle['served']:.3f} s, x{ratio:.2f} as fast",
                    "never slower (2 %)",
                    ratio >= 0.98,
                )
        finally:
            single.close()


def peer(server, folder, options):
    """The official pipeline behind FastAPI, one thread that draws, as tutorials show it."""
    print("diffusers behind FastAPI, the same picture, one client")
    body = {"prompt": PROMPTS[0], "seed": 1}
    with DiffusersServer(ROOT / "models" / "tiny", options.threads) as other:
        other.asked(body)
        served_secs(server, body)
        ours, theirs, beside = [], [], []
        until = time.monotonic() + options.peer_secs
        while len(ours) < 3 or (len(ours) < 20 and time.monotonic() < until):
            ours.append(served_secs(server, body))
            secs, drawing = other.asked(body)
            theirs.append(secs)
            beside.append(secs - drawing)
        told(f"ours, median of {len(ours)}", f"{1 / statistics.median(ours):.2f} requests a second")
        told(
            f"{other.name}, median of {len(theirs)}",
            f"{1 / statistics.median(theirs):.2f} requests a second; ours is x{statistics.median(theirs) / statistics.median(ours):.2f} as fast",
        )
        told(f"{other.name}: beside the pipeline's own time", f"{statistics.median(beside) * 1000:.2f} ms a request")


def load(server, folder, options):
    image_load.run(server, options.clients, options.load_secs, told)


PARTS = {
    "overhead": overhead,
    "previews": previews,
    "cancels": cancels,
    "connects": connects,
    "streams": streams,
    "batches": batches,
    "peer": peer,
    "load": load,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=120, help="pairs of the overhead")
    parser.add_argument("--processes", type=int, default=4, help="of each side of the overhead")
    parser.add_argument("--most-secs", type=float, default=400, help="of the overhead, however few pairs were quiet")
    parser.add_argument("--sizes", default="128x128,256x256", help="of the overhead's pictures")
    parser.add_argument("--one-prompt", action="store_true", help="overhead where a prompt is drawn again and again")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peer-secs", type=float, default=60, help="at most so long, once the peer has started")
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
