"""A program that stops before main() and is forked for every call that shall fail: see shim.c."""

import ctypes
import dataclasses
import os
import select
import signal
import subprocess

from commands import PROGRAM, ROOT, environment_of

KINDS = ("allocate", "thread", "open", "read", "write", "sync", "rename", "map", "fork", "socket", "folder")


def build_shim(folder):
    shim = folder / "faults.so"
    subprocess.run(
        [
            os.environ.get("CC", "cc"),
            "-O1",
            "-fPIC",
            "-shared",
            "-o",
            shim,
            ROOT / "tools" / "faults" / "shim.c",
            "-ldl",
        ],
        check=True,
    )
    return shim


def keep_addresses():
    """A place has the same address each time, so that it can be known again in another process."""
    ctypes.CDLL(None).personality(0x0040000)  # ADDR_NO_RANDOMIZE


@dataclasses.dataclass
class Outcome:
    status: object  # exit status, -signal, or None where it did not end
    hit: bool
    calls: dict  # of each kind
    stdout: str
    stderr: str
    wrong: object = None  # of what was looked at while it ran


class ForkServer:
    def __init__(self, shim, words, folder, out):
        self.out = out
        out.mkdir()
        (out / "stdin").write_bytes(b"")
        here, there = os.pipe(), os.pipe()
        environment = {
            **environment_of(folder),
            "LD_PRELOAD": str(shim),
            "LOCKSTEP_FAULT_SERVER": f"{here[0]}:{there[1]}",
            "LOCKSTEP_FAULT_OUT": str(out),
        }
        self.process = subprocess.Popen(
            [PROGRAM, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(here[0], there[1]),
            preexec_fn=keep_addresses,
        )
        os.close(here[0]), os.close(there[1])
        self.to, self.from_, self.said = here[1], there[0], b""

    def line(self):
        while b"\n" not in self.said:
            piece = os.read(self.from_, 4096)
            if not piece:
                raise SystemExit(f"{PROGRAM} does not serve: is it built without sanitizers, and called lockstep?")
            self.said += piece
        line, _, self.said = self.said.partition(b"\n")
        return line.decode().split()

    def ended(self, secs=0.0):
        return b"\n" in self.said or bool(select.select([self.from_], [], [], secs)[0])

    def run(self, kind, which, most_secs, during=None):
        os.write(self.to, f"{kind} {which}\n".encode())
        pid = int(self.line()[1])
        wrong = during(pid, self.ended) if during else None
        in_time = self.ended(most_secs)
        if not in_time:
            os.killpg(pid, signal.SIGKILL)
        _, status, hit, *calls = self.line()
        status = os.waitstatus_to_exitcode(int(status)) if in_time else None
        texts = [(self.out / name).read_bytes().decode("utf-8", "replace") for name in ("stdout", "stderr")]
        return Outcome(status, hit == "1", dict(zip(KINDS, map(int, calls))), *texts, wrong)

    def close(self):
        os.close(self.to)
        self.process.wait()
        os.close(self.from_)
