"""What the tests ask of the system about processes, in the words of Linux and of a Mac. Bare Linux machines have neither ps nor lsof, and
a Mac has no /proc. `linux_only` marks what only Linux has."""

import os
import pathlib
import subprocess
import sys

try:
    import pytest
except ImportError:  # a Python that has Ray need not have pytest, and marks no tests
    pytest = None

linux_only = pytest and pytest.mark.skipif(
    sys.platform == "darwin", reason="it needs /proc, /dev/full or prlimit, which macOS does not have"
)


class OfLinux:
    def _file(self, pid, name):
        try:
            return pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
        except OSError:  # it has ended, or is not ours to look at
            return ""

    def _fields(self, pid):
        return self._file(pid, "stat").rpartition(")")[2].split()

    def is_running(self, pid):
        return self._fields(pid)[:1] not in ([], ["Z"])

    def parents(self):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return {pid: int(fields[1]) for pid in pids if (fields := self._fields(pid))}

    def command_words(self, pid):
        return self._file(pid, "cmdline").split("\0")[:-1]

    def resident_bytes(self, pid):
        return int(self._file(pid, "statm").split()[1]) * os.sysconf("SC_PAGESIZE")

    def thread_count(self, pid):
        return len(os.listdir(f"/proc/{pid}/task"))

    def open_files(self, pid):
        found, folder = [], pathlib.Path(f"/proc/{pid}/fd")
        try:
            for link in folder.iterdir():
                found.append(os.readlink(link))
        except OSError:
            pass
        return found

    def mapped_files(self, pid):
        return {line[line.index("/") :] for line in self._file(pid, "maps").splitlines() if "/" in line}

    def listens_at(self, port):
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        found = [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
        return {".".join(str(byte) for byte in reversed(bytes.fromhex(address))) for address in found}


class OfMac:
    def _said(self, *words):
        return subprocess.run(words, capture_output=True, text=True).stdout

    def is_running(self, pid):
        return self._said("ps", "-o", "stat=", "-p", str(pid)).strip()[:1] not in ("", "Z")

    def parents(self):
        return dict(tuple(map(int, line.split())) for line in self._said("ps", "-axo", "pid=,ppid=").splitlines())

    def command_words(self, pid):
        return self._said("ps", "-ww", "-o", "command=", "-p", str(pid)).split()

    def resident_bytes(self, pid):
        return int(self._said("ps", "-o", "rss=", "-p", str(pid))) * 1024

    def thread_count(self, pid):
        return len(self._said("ps", "-M", "-p", str(pid)).splitlines()) - 1

    def _names(self, pid, wanted):
        """A file's fields follow one another, each on a line that begins with its letter: f is the descriptor, n the name."""
        found, kind = [], ""
        for line in self._said("lsof", "-n", "-P", "-p", str(pid), "-Ffn").splitlines():
            kind = line[1:] if line[:1] == "f" else kind
            if line[:1] == "n" and wanted(kind):
                found.append(line[1:])
        return found

    def open_files(self, pid):
        return self._names(pid, str.isdigit)

    def mapped_files(self, pid):
        return set(self._names(pid, lambda kind: kind in ("txt", "mem")))

    def listens_at(self, port):
        said = self._said("lsof", "-n", "-P", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fn").splitlines()
        return {line[1:].rpartition(":")[0].replace("*", "0.0.0.0") for line in said if line[:1] == "n"}


def _listed(pid, below):
    return [child for child, parent in below.items() if parent == pid]


_system = OfMac() if sys.platform == "darwin" else OfLinux()
is_running = _system.is_running  # a process that has ended and that nobody has waited for does not run
parents = _system.parents  # of every process
command_words = _system.command_words
resident_bytes = _system.resident_bytes
thread_count = _system.thread_count
open_files = _system.open_files  # names of what its descriptors lead to
mapped_files = _system.mapped_files
listens_at = _system.listens_at  # the addresses at which somebody listens on this port


def children_of(pid):
    return _listed(pid, parents())


def processes_below(root):
    """`root` and all that it started, and they in turn."""
    found, known = [root], parents()
    for pid in found:
        found += _listed(pid, known)
    return found


def holders(path):
    """Processes that have a file open."""
    return {pid for pid in parents() if str(path) in open_files(pid)}
