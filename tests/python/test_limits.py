"""Where the system gives nothing more, every command ends with words and its own status."""

import io
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import zipfile

import pytest
from program import PROGRAM, ROOT
from system import linux_only

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


@pytest.fixture
def folder(tmp_path):
    for name, value in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "latents.npy", np.full((256, 512), value, np.float32))
    return tmp_path


def limited(folder, *words, limits=(), **options):
    def limit():
        for which, amount in limits:
            resource.setrlimit(which, (amount, amount))

    environment = {
        **os.environ,
        "LOCKSTEP_HOME": str(folder / "home"),
        "GOMP_SPINCOUNT": "1000",
        "OMP_NUM_THREADS": "8",
    }
    return subprocess.run(
        [PROGRAM, *map(str, words)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        preexec_fn=limit,
        **options,
    )


COMMANDS = {
    "help": ("--help",),
    "help of a command": ("compare", "--help"),
    "version": ("--version",),
    "doctor": ("doctor",),
    "docs": ("docs",),
    "list": ("tensors", "list", "one"),
    "show": ("tensors", "show", "one"),
    "stats": ("tensors", "stats", "one", "--json"),
    "match": ("compare", "one", "one"),
    "mismatch": ("compare", "one", "two", "--json"),
    "diff": ("tensors", "diff", "one", "two"),
    "weights": ("weights", "list", "one"),
    "runs": ("runs", "list"),
    "show a run": ("runs", "show", "one"),
    "limits": ("runs", "limits"),
    "sessions": ("debug", "sessions"),
}


@linux_only
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_behind_stdout_is_a_failure(folder, command):
    try:
        with open("/dev/full", "w") as full:
            done = limited(folder, *COMMANDS[command], stdout=full)
        assert done.returncode == 3 and "stdout cannot be written" in done.stderr, done.stderr
    finally:
        if command == "sessions":
            limited(folder, "serve", "--stop", stdout=subprocess.DEVNULL)


@linux_only
def test_mcp_says_that_stdout_is_full(folder):
    request = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "mcp"], input=request * 3, stdout=full, stderr=subprocess.PIPE, timeout=60, cwd=folder
        )
    assert done.returncode == 3 and b"stdout cannot be written" in done.stderr


@pytest.mark.parametrize("megabytes", [100, 140, 180, 240, 300, 400])
@pytest.mark.parametrize("command", ["match", "mismatch", "stats", "diff"])
def test_a_limit_on_memory_ends_in_words(folder, command, megabytes):
    done = limited(folder, *COMMANDS[command], limits=[(resource.RLIMIT_AS, megabytes << 20)], stdout=subprocess.PIPE)
    usual = 1 if command in ("mismatch", "diff") else 0
    assert done.returncode in (usual, 3, 127), done.stderr  # 127: the loader itself has no room
    assert done.returncode != 3 or "lockstep: [" in done.stderr


def npy_of(shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + bytes(64)


def safetensors_of(size, bytes_):
    header = json.dumps({"w": {"dtype": "F32", "shape": [size], "data_offsets": [0, bytes_]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64)


def npz_of(entry):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("x.npy", entry)
    return made.getvalue()


CLAIMS = {
    "a.npy": npy_of("(1099511627776,)"),
    "several.npy": npy_of("(1048576, 1048576)"),
    "a.npz": npz_of(npy_of("(1099511627776,)")),
    "a.safetensors": safetensors_of(1 << 40, 1 << 42),
    "header.safetensors": struct.pack("<Q", 1 << 40) + b"{}",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_size_that_a_file_claims_is_not_allocated(folder, name):
    """Four terabytes would end in another status: that of memory which is not to be had."""
    (folder / name).write_bytes(CLAIMS[name])
    done = limited(folder, "tensors", "stats", name, stdout=subprocess.PIPE)
    assert done.returncode == 2 and name in done.stderr, done.stderr


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "sessions"])
@pytest.mark.parametrize("files", [4, 5, 8])
def test_few_descriptors_are_enough_or_named(folder, command, files):
    done = limited(folder, *COMMANDS[command], limits=[(resource.RLIMIT_NOFILE, files)], stdout=subprocess.PIPE)
    usual = 1 if command in ("mismatch", "diff") else 0
    if done.returncode == 127 and "error while loading" in done.stderr:
        return
    assert done.returncode in (usual, 2, 3), done.stderr
    assert done.returncode == usual or "lockstep: [" in done.stderr


def test_a_service_with_few_descriptors_says_so(folder):
    done = limited(folder, "debug", "sessions", limits=[(resource.RLIMIT_NOFILE, 8)], stdout=subprocess.PIPE)
    try:
        assert done.returncode in (0, 3) and (done.returncode == 0 or "lockstep: [" in done.stderr), done.stderr
    finally:
        limited(folder, "serve", "--stop", stdout=subprocess.DEVNULL)


def test_a_home_that_cannot_be_written_is_called_that(folder):
    home = folder / "home"
    home.mkdir()
    home.chmod(0o555)
    folder.chmod(0o755)
    options = {"user": 65534} if os.getuid() == 0 else {}
    if options:  # every folder above must let that user through
        for above in folder.parents:
            if not above.stat().st_mode & 1 and above != pathlib.Path("/"):
                above.chmod(above.stat().st_mode | 0o011)
    environment = {**os.environ, "LOCKSTEP_HOME": str(home)}
    readable = (
        subprocess.run([PROGRAM, "--version"], env=environment, capture_output=True, text=True, **options)
        if os.access(PROGRAM, os.X_OK)
        else None
    )
    if readable is None or readable.returncode != 0:
        pytest.skip("another user cannot run the program here")
    for words in (("debug", "sessions"), ("serve",), ("runs", "limits", "--warn", "1GB", "--refuse", "2GB")):
        done = subprocess.run(
            [PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=60, cwd="/", **options
        )
        assert done.returncode == 3 and "Permission denied" in done.stderr and str(home) in done.stderr, (
            words,
            done.stderr,
        )


def test_walks_are_bounded(folder):
    """A folder that is nobody's run and far too much to look through."""
    deep = folder / "deep"
    for i in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    np.save(deep / "x.npy", np.zeros(2, np.float32))
    done = limited(folder, "runs", "show", folder / "deep", stdout=subprocess.PIPE)
    assert done.returncode == 2 and "too much to look for tensors" in done.stderr
    done = limited(folder, "runs", "show", "/", stdout=subprocess.PIPE)  # in seconds, not minutes
    assert done.returncode in (2, 3) and "lockstep: [" in done.stderr


@linux_only
def test_the_recorder_goes_on_without_a_thread_of_its_own(folder):
    """Under a limit on memory that leaves no room for another stack, nothing that was recorded is lost."""
    source = """
import resource, numpy as np, sys
sys.path.insert(0, sys.argv[1])
from lockstep import checkpoint
size = int(open("/proc/self/statm").read().split()[0]) * 4096
checkpoint("small", np.ones(3, "f4"))
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (6 << 20),) * 2)
for i in range(3):
    checkpoint(f"large.{i}", np.full((64, 1024), i, "f4"))
print("went on")
"""
    environment = {
        **os.environ,
        "LOCKSTEP_HOME": str(folder / "home"),
        "LOCKSTEP_RECORD": "tight",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", source, str(ROOT / "python")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    shown = limited(folder, "--json", "runs", "show", "latest:tight", "--verify", stdout=subprocess.PIPE)
    assert '"bad":[]' in shown.stdout.replace(" ", "") and '"records":4' in shown.stdout.replace(" ", ""), shown.stdout
