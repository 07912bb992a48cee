"""The commands that ./dev faults and ./dev kills try, their small inputs, and what of their results is the same each time."""

import dataclasses
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
WAIT_SECS = float(os.environ.get("LOCKSTEP_FAULT_SECS", "10"))

# What has been recorded by the time that checkpoint() returns is never lost: the program says how far it has come.
RECORDS = """
import os
import numpy as np
from lockstep import checkpoint
done = os.open("done", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(150):
    checkpoint(f"stage.{i}", np.full((96, 128), i, "f4"))
    os.write(done, b".")
"""

FEW_RECORDS = RECORDS.replace("150", "5")

BLOCK = """
import torch

class Block(torch.nn.Module):
    def forward(self, x):
        doubled = x * 2
        return doubled - 1

print(Block()(torch.arange(4.0)).sum().item())
"""

MESSAGES = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "faults", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "runs_list", "arguments": {}}},
]
EDITOR = [
    {
        "seq": 1,
        "type": "request",
        "command": "initialize",
        "arguments": {"adapterID": "lockstep", "clientID": "faults"},
    },
    {"seq": 2, "type": "request", "command": "disconnect", "arguments": {}},
]


def framed(message):
    text = json.dumps(message)
    return f"Content-Length: {len(text)}\r\n\r\n{text}"


def png(width, height):
    rows = b"".join(
        b"\0" + bytes((x * 7 + y * 3 + c * 50) % 256 for x in range(width) for c in range(3)) for y in range(height)
    )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def inputs(folder):
    """Two runs that differ, two checkpoints, tensors, a picture and programs."""
    import numpy as np

    for name, value in (("good", 1.0), ("bad", 2.0)):
        run = folder / name
        (run / "tensors").mkdir(parents=True)
        lines = []
        for i in range(3):
            array = np.full((4, 5), value if i == 1 else 1.0, np.float32)
            np.save(run / "tensors" / f"t{i}.npy", array)
            lines.append(
                json.dumps(
                    {
                        "seq": i,
                        "name": f"stage.{i}",
                        "step": None,
                        "hit": 0,
                        "tags": {},
                        "role": "output",
                        "dtype": "f32",
                        "shape": [4, 5],
                        "stats": None,
                        "preview": [],
                        "checksum": "",
                        "file": f"tensors/t{i}.npy",
                        "where": None,
                        "secs": 0,
                    }
                )
            )
        (run / "records.jsonl").write_text("\n".join(lines) + "\n")
        (run / "run.json").write_text(
            json.dumps(
                {
                    "format": "lockstep-run",
                    "version": 1,
                    "id": name,
                    "name": name,
                    "created": "2026-01-01T00:00:00Z",
                    "status": "finished",
                }
            )
        )
        np.save(folder / f"{name}.npy", np.full((4, 5), value, np.float32))
        np.savez(folder / f"{name}.npz", a=np.full((4, 5), value, np.float32))
        header = json.dumps({"w": {"dtype": "F32", "shape": [4, 5], "data_offsets": [0, 80]}}).encode()
        (folder / f"{name}.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header + np.full((4, 5), value, np.float32).tobytes()
        )
        (folder / "home" / "saved").mkdir(parents=True, exist_ok=True)
        np.save(folder / "home" / "saved" / f"{name}.npy", np.full((4, 5), value, np.float32))
    shutil.copytree(folder / "good", folder / "home" / "runs" / "good")
    (folder / "picture.png").write_bytes(png(32, 32))
    (folder / "records.py").write_text(RECORDS)
    (folder / "few.py").write_text(FEW_RECORDS)
    (folder / "stages.py").write_text(
        "import numpy as np\nfrom lockstep import checkpoint\nfor i in range(3):\n    checkpoint(f'stage.{i}', np.full((4, 5), 1 + (i == 1), 'f4'))\n"
    )
    (folder / "jobs.jsonl").write_text('{"id": "a", "kind": "compare", "reference": "good", "candidate": "good"}\n')
    (folder / "steps.py").write_text("import time\nfor i in range(3):\n    print(i)\n")
    (folder / "messages").write_text("".join(json.dumps(message) + "\n" for message in MESSAGES))
    (folder / "editor").write_bytes("".join(framed(message) for message in EDITOR).encode())
    (folder / "stages").write_text(f"#!/bin/sh\nexec '{sys.executable}' few.py\n")
    (folder / "stages").chmod(0o755)


def traced_runs(folder):
    """Two runs of one block, of which one adds where the other subtracts, with their operations."""
    for name, text in (("right", BLOCK), ("wrong", BLOCK.replace("doubled - 1", "doubled + 1"))):
        (folder / f"{name}.py").write_text(text)
        made = plain(
            folder,
            "--quiet",
            "record",
            "--inputs",
            "--operations",
            "Block",
            "--name",
            name,
            "--",
            sys.executable,
            f"{name}.py",
        )
        if made.returncode != 0:
            raise SystemExit(f"no run to zoom into: {made.stderr}")


@dataclasses.dataclass
class Command:
    name: str
    words: list
    status: int = 0
    own_failure: int = 3
    stdin: str = ""  # a file of the inputs
    records: bool = False  # makes runs, each of which must be whole whatever happens
    less: tuple = ()  # fields of its JSON that may be missing or null where what they are about could not be asked
    beside: tuple = ()  # folders of another process that works for it, whose files are its own affair
    answers: bool = False  # prints an answer a line: each is the usual one, or says that the call failed
    during: object = None  # (bench, ended) -> what is wrong while it runs, or None
    after: object = None  # (bench): puts away what it has left running
    prepare: object = None  # (folder): makes what it needs besides the inputs that all have
    slow: bool = False  # a second or more, so not of the sample; and allocations by place


def environment_of(folder):
    return {
        **os.environ,
        "LOCKSTEP_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "2",
        "GOMP_SPINCOUNT": "1000",
        "NO_COLOR": "1",
    }


def plain(folder, *words, timeout=120):
    return subprocess.run(
        [PROGRAM, *words],
        cwd=folder,
        env=environment_of(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def asked(folder, method, path, body=None):
    """One request with the token: (status, text), or None where the connection is lost."""
    try:
        where = json.loads((folder / "home" / "service" / "service.json").read_text())
        token = (folder / "home" / "service" / "token").read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", where["port"], timeout=WAIT_SECS)
        connection.request(method, path, body, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException, ValueError):
        return None


def use_service(bench, pid, ended):
    """Asks a service that has announced itself, and tells it to end. A call that failed may cost one answer, not the next."""
    described = bench.folder / "home" / "service" / "service.json"
    until = time.monotonic() + 6 * WAIT_SECS
    while not described.exists() and not ended() and time.monotonic() < until:
        time.sleep(0.002)
    if ended():
        return None
    try:
        for method, path, body in (
            ("GET", "/v1/health", None),
            ("GET", "/v1/runs/list", None),
            ("POST", "/mcp", json.dumps(MESSAGES[0])),
        ):
            answers = []
            while len(answers) < 3 and not ended():
                answers.append(asked(bench.folder, method, path, body))
                if answers[-1] and answers[-1][0] == 200:
                    break
            if not ended() and (not answers or not answers[-1] or answers[-1][0] != 200):
                return f"{path} is not answered: {answers}"
    finally:
        if not ended():
            os.kill(pid, signal.SIGTERM)
    return None


def end_sessions(bench):
    if not (bench.folder / "home" / "service" / "service.json").exists():
        return
    listed = plain(bench.folder, "--json", "debug", "sessions")
    if listed.returncode == 0:
        for session in json.loads(listed.stdout)["sessions"]:
            plain(bench.folder, "debug", "terminate", "--force", "--session", session["id"])
    plain(bench.folder, "serve", "--stop")


PICTURE = [
    "--prompt",
    "a red circle",
    "--seed",
    "1",
    "--steps",
    "2",
    "--width",
    "32",
    "--height",
    "32",
    "--output",
    "made.png",
]
# Every record is written in the same way: those of one block hold all that can fail.
FEW_TAPS = ["--tap", "transformer.transformer_blocks.0.*"]
COMMANDS = [
    Command("version", ["--version"]),
    Command("help", ["compare", "--help"]),
    Command("docs", ["docs"]),
    Command("doctor", ["--json", "doctor"], less=("memory", "cpu", "devices", "libraries", "mlx", "python")),
    Command("tensors list", ["tensors", "list", "good.npz"]),
    Command("tensors list of a folder", ["--json", "tensors", "list", "good"]),
    Command("tensors info", ["tensors", "info", "good.npy"]),
    Command("tensors show", ["tensors", "show", "good.npy"]),
    Command("tensors stats", ["tensors", "stats", "good.safetensors"]),
    Command("tensors diff", ["tensors", "diff", "good.npy", "bad.npy"], status=1),
    Command("tensors export", ["tensors", "export", "good.safetensors", "--output", "made.npz"]),
    Command("tensors clear", ["tensors", "clear", "--yes"]),
    Command("weights search", ["weights", "search", "good.safetensors", "w"]),
    Command("weights show", ["weights", "show", "good.safetensors", "w"]),
    Command("weights diff", ["weights", "diff", "good.safetensors", "bad.safetensors"], status=1),
    Command("weights list", ["weights", "list", "good.safetensors"]),
    Command("weights report", ["weights", "report", "good.safetensors"]),
    Command("weights compare", ["weights", "compare", "good.safetensors", "bad.safetensors"], status=1),
    Command("runs list", ["runs", "list"]),
    Command("runs show", ["runs", "show", "good", "--verify"]),
    Command("runs health", ["runs", "health", "good"]),
    Command("health", ["health", "good"]),
    Command("clean", ["clean", "--yes"]),
    Command("clean unasked", ["--json", "clean", "--dry-run"]),
    Command("kill-all", ["kill-all", "--dry-run"]),
    Command("tutorial", ["tutorial", "--list"]),
    Command("runs limits", ["runs", "limits", "--warn", "1GB", "--refuse", "2GB"]),
    Command("runs archive", ["runs", "archive", "good"]),
    Command("runs remove", ["runs", "remove", "good"]),
    Command("compare match", ["compare", "good", "good"]),
    Command("compare", ["--json", "compare", "good", "bad"], status=1),
    Command("compare report", ["--quiet", "compare", "good", "bad", "--report", "made.html"], status=1),
    Command("record true", ["record", "--", "true"], own_failure=125, records=True),
    Command("record", ["record", "--", sys.executable, "few.py"], own_failure=125, records=True, slow=True),
    Command(
        "reference",
        ["reference", "generate", "--python", "./stages", "--prompt", "a red circle"],
        records=True,
        slow=True,
    ),
    Command(
        "reference edit",
        ["reference", "edit", "--python", "./stages", "--input-image", "picture.png"],
        records=True,
        slow=True,
    ),
    Command("zoom", ["--json", "zoom", "latest:right", "latest:wrong"], status=1, prepare=traced_runs, slow=True),
    Command("dap", ["dap"], stdin="editor", beside=("home/service",), after=end_sessions, slow=True),
    Command(
        "prune", ["prune", "--dry-run", "--packages", "json", "--", sys.executable, "steps.py"], records=True, slow=True
    ),
    Command("profile compare", ["profile", "compare", "good", "bad"], status=2, slow=True),  # no profiles: it says so
    Command("serve stop", ["serve", "--stop"]),
    Command("serve", ["serve"], during=use_service, slow=True),
    Command("jobs list", ["--json", "jobs", "list"], beside=("home/service",), after=end_sessions, slow=True),
    Command("batch", ["batch", "jobs.jsonl", "--output", "made"], slow=True),
    Command(
        "debug sessions",
        ["--json", "debug", "sessions"],
        beside=("home/sessions", "home/service"),
        after=end_sessions,
        slow=True,
    ),
    Command(
        "coverage",
        ["coverage", "--lines", "--markdown", "made.md", "--html", "made.html", "--", sys.executable, "steps.py"],
        records=True,
        slow=True,
    ),
    Command(
        "ledger",
        ["ledger", "good", "--report", "made.html", "--", sys.executable, "stages.py"],
        status=1,
        records=True,
        slow=True,
    ),
    Command("mcp", ["mcp"], stdin="messages", answers=True, beside=("home/service",), after=end_sessions, slow=True),
    Command(
        "debug",
        ["--json", "debug", "start", "--python", sys.executable, "steps.py"],
        beside=("home/sessions", "home/service"),
        after=end_sessions,
        slow=True,
    ),
    Command("generate", ["--debug", "generate", *PICTURE, *FEW_TAPS], records=True, slow=True),
    Command("edit", ["--debug", "edit", "--input-image", "picture.png", *PICTURE, *FEW_TAPS], records=True, slow=True),
]

VOLATILE = (
    (re.compile(r"\d{8}-\d{6}-[0-9a-z]+"), "ID"),
    (re.compile(r"\b\d{10}\.\d+"), "TIME"),
    (re.compile(r"\b1[34]\d{13}\b"), "THREAD"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (
        re.compile(
            r'("(?:[a-z_]*secs|[a-z_]*pid|port|[a-z_]*peak[a-z_]*|[a-z_]*resident[a-z_]*|[a-z_]*available[a-z_]*|free[a-z_]*|taken|age)":\s*)-?[0-9.e+-]+'
        ),
        r"\1N",
    ),
    (re.compile(r"just now|\d+ (minute|hour|day)s?\b"), "AGE"),
    (re.compile(r"\d+(\.\d+)?\s?(s|ms|MB|GB|KB|MiB|GiB|KiB)\b"), "AMOUNT"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "TOKEN"),
    (re.compile(r" {2,}"), "  "),  # columns are as wide as what they hold
    (re.compile(r"(coverage/|prune/opened-)\d+\.jsonl"), r"\1PID.jsonl"),
)


def steady(text):
    """Without times, ids and amounts, which are others each time."""
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text
