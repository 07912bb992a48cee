"""How the Python tests call the program: LOCKSTEP_BIN, else build/bin/lockstep."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))


def installed_frameworks():
    """Of torch and MLX those that can be imported."""
    found = []
    for name in ("torch", "mlx.core"):
        try:
            __import__(name)
            found.append(name.partition(".")[0])
        except ImportError:
            pass
    return found


def run(*arguments, cwd=None, timeout=120):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_json(*arguments, **options):
    """The finished process, and the one JSON document on its stdout. Strict: NaN and Infinity must be strings."""
    done = run(*arguments, "--json", **options)

    def refuse(constant):
        raise AssertionError(f"{constant} is no strict JSON")

    return done, json.loads(done.stdout, parse_constant=refuse)
