"""Installs a wheel into an empty environment, draws, records, debugs, answers an agent, and removes it again.

    python3 try_wheel.py lockstep-*.whl [--libraries FOLDER]

Needs nothing but Python and its venv: it is run in bare systems too. FOLDER holds torch for one version of Python; a Python
of that version records a torch program as well.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

PROGRAM = """import array
import lockstep
x = memoryview(array.array("f", [1, 2, 3]))
lockstep.checkpoint("x", x)
print(lockstep.__file__)
"""
MODEL = """import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
print(model(torch.ones(1, 4)).shape)
"""
REQUESTS = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "try_wheel", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]


class Trial:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {
            "PATH": f"{folder}/venv/bin:/usr/bin:/bin",
            "LOCKSTEP_HOME": f"{folder}/home",
            "HOME": str(folder),
        }

    def run(self, *command, given=None):
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, input=given, capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def lockstep(self, *words, **options):
        return json.loads(self.run("lockstep", "--json", *words, **options))


def check(holds, what):
    if not holds:
        sys.exit(f"[try wheel] {what}")
    print(f"  {what}", flush=True)


def files_under(folder):
    return {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def use(trial, python, began):
    trial.run(
        "lockstep",
        "generate",
        "--prompt",
        "a red circle on a white background",
        "--seed",
        "7",
        "--output",
        "picture.png",
    )
    picture = (trial.folder / "picture.png").read_bytes()
    check(
        picture.startswith(b"\x89PNG"),
        f"generate drew a picture of {len(picture)} bytes, {time.monotonic() - began:.1f} s after the start of the installation",
    )

    (trial.folder / "program.py").write_text(PROGRAM)
    said = trial.run("lockstep", "record", "--", python, "program.py")
    check(
        list((trial.folder / "home/runs").glob("*/tensors/x.npy")) and str(trial.folder / "venv") in said,
        "record kept a tensor",
    )
    profiled = trial.run("lockstep", "profile", "--", python, "program.py")
    check(profiled, "profile ran a program")

    began = trial.lockstep("debug", "start", "--python", str(python), "program.py")
    try:
        check(began["state"] == "stopped", f"debug stopped in Python {began['python']}, native {began['native']}")
        at = trial.lockstep("debug", "next")["stop"]["location"]["line"]
        check(at == 2, f"debug went on to line {at}")
        trial.lockstep("debug", "terminate", "--force")
    finally:
        subprocess.run(["lockstep", "serve", "--stop"], cwd=trial.folder, env=trial.environment, capture_output=True)
    answers = trial.run("lockstep", "mcp", given="".join(json.dumps(request) + "\n" for request in REQUESTS))
    tools = json.loads(answers.strip().splitlines()[-1])["result"]["tools"]
    check(len(tools) > 5, f"mcp offers {len(tools)} tools")
    subprocess.run(["lockstep", "serve", "--stop"], cwd=trial.folder, env=trial.environment, capture_output=True)
    return began["native"]


def record_torch(trial, python, libraries):
    if not list(pathlib.Path(libraries).glob(f"torch/_C.cpython-3{sys.version_info[1]}-*.so")):
        print("  no torch for this Python: no torch program was recorded", flush=True)
        return
    (trial.folder / "model.py").write_text(MODEL)
    trial.environment["PYTHONPATH"] = libraries
    trial.run("lockstep", "record", "--name", "torch", "--", python, "model.py")
    del trial.environment["PYTHONPATH"]
    tensors = list((trial.folder / "home/latest/torch/tensors").glob("*.npy"))
    check(len(tensors) >= 3, f"record kept {len(tensors)} tensors of a torch program")


def main():
    libraries = sys.argv[sys.argv.index("--libraries") + 1] if "--libraries" in sys.argv else ""
    wheel = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="try wheel ") as folder:  # a blank in a path is found here or by a user
        trial = Trial(pathlib.Path(folder))
        subprocess.run([sys.executable, "-m", "venv", trial.folder / "venv"], check=True)
        before = files_under(trial.folder / "venv")
        python = trial.folder / "venv/bin/python"
        began = time.monotonic()
        trial.run(python, "-m", "pip", "install", "--no-index", "--no-cache-dir", "--no-compile", wheel)
        print(f"installed in {time.monotonic() - began:.1f} s", flush=True)
        trial.run("lockstep", "--version")
        native = use(trial, python, began)
        if libraries:
            record_torch(trial, python, libraries)
        trial.run(python, "-m", "pip", "uninstall", "-y", "lockstep")
        left = files_under(trial.folder / "venv") - before
        check(not left, f"removed, {len(left)} files left" + "".join(f"\n{path}" for path in sorted(left)[:10]))
    print(json.dumps({"native": native, "python": sys.version.split()[0], "libc": os.confstr("CS_GNU_LIBC_VERSION")}))


if __name__ == "__main__":
    main()
