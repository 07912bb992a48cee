"""What a traced program writes: the same bytes whatever the disk does, and readable when the program is killed."""

import ctypes
import errno
import os
import random
import sys
import threading
import time

import pytest
from program import ROOT
from zoom_place import REFERENCE, Place

sys.path.insert(0, str(ROOT / "python"))
from lockstep.operations import spool as spool_module  # noqa: E402

BLOCK = spool_module.BLOCK


class Files:
    def __init__(self, folder):
        self.bytes, self.lines = folder / "operations.bin", folder / "operations.jsonl"
        self.spool = spool_module.Spool(self.bytes, self.lines)

    def append(self, data):
        kept = ctypes.create_string_buffer(data, len(data))
        self.spool.append(ctypes.addressof(kept), len(data))


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def on_each_write(monkeypatch, what):
    """what(is_direct) before each write."""
    write = os.pwrite
    monkeypatch.setattr(
        os,
        "pwrite",
        lambda file, data, at: what(bool(flags(file) & getattr(os, "O_DIRECT", 0))) or write(file, data, at),
    )


def flags(file):
    import fcntl

    return fcntl.fcntl(file, fcntl.F_GETFL)


@pytest.mark.parametrize("seed", range(3))
def test_the_bytes_are_those_that_were_appended(files, seed):
    draw = random.Random(seed)
    whole = bytearray()
    for _ in range(40):
        data = draw.randbytes(draw.choice([0, 1, 64, 4096, 100_000, BLOCK - 1, BLOCK, 2 * BLOCK + 3]))
        assert files.spool.position == len(whole)
        files.append(data)
        whole += data
        if draw.random() < 0.1:
            files.spool.flush()
            assert files.bytes.read_bytes() == whole
    files.spool.flush()
    assert files.bytes.read_bytes() == whole


def test_what_changes_after_it_was_appended_is_written_as_it_was(files, monkeypatch):
    changed = threading.Event()
    on_each_write(monkeypatch, lambda direct: not changed.wait(60))
    data = ctypes.create_string_buffer(b"a" * (2 * BLOCK), 2 * BLOCK)
    files.spool.append(ctypes.addressof(data), len(data))
    data.raw = b"b" * (2 * BLOCK)
    changed.set()
    files.spool.flush()
    assert files.bytes.read_bytes() == b"a" * (2 * BLOCK)


def test_a_line_is_never_in_its_file_before_the_bytes_it_names(files, monkeypatch):
    seen = []
    on_each_write(
        monkeypatch, lambda direct: seen.append((len(files.lines.read_text().splitlines()), files.bytes.stat().st_size))
    )
    for number in range(6):
        files.append(b"x" * (BLOCK // 2))
        files.spool.line(f"{number}\n")
    files.spool.flush()
    assert files.lines.read_text().split() == list("012345")
    assert all(lines * (BLOCK // 2) <= size for lines, size in seen) and seen[-1][0] >= 3


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="the page cache cannot be passed by")
def test_a_slow_disk_is_left_to_the_page_cache(files, monkeypatch):
    if files.spool._direct is None:
        pytest.skip("the page cache cannot be passed by on this file system")
    ways = []

    def slow(direct):
        ways.append(direct)
        if direct:
            time.sleep(0.2)

    on_each_write(monkeypatch, slow)
    count = 4 * spool_module.MOST_BLOCKS
    data = random.Random(0).randbytes(BLOCK)
    for _ in range(count):
        files.append(data)
    files.spool.flush()
    assert files.bytes.read_bytes() == data * count
    assert ways[0] and sum(ways) <= 3  # those before the program had to wait


def test_a_file_system_that_must_go_through_the_cache(files, monkeypatch):
    def refuse(direct):
        if direct:
            raise OSError(errno.EINVAL, "no such thing here")

    on_each_write(monkeypatch, refuse)
    files.append(b"x" * (3 * BLOCK + 5))
    files.spool.flush()
    assert files.bytes.read_bytes() == b"x" * (3 * BLOCK + 5)


def test_a_full_disk_is_told_and_no_line_names_what_is_not_there(files, monkeypatch):
    files.append(b"x" * BLOCK)
    files.spool.line("first\n")
    files.spool.flush()

    def full(direct):
        raise OSError(errno.ENOSPC, "No space left on device")

    on_each_write(monkeypatch, full)
    files.append(b"x" * BLOCK)
    files.spool.line("second\n")
    with pytest.raises(OSError, match="No space left"):
        files.spool.flush()
    with pytest.raises(OSError, match="No space left"):
        files.append(b"x")
    assert files.lines.read_text() == "first\n"


def test_a_program_that_may_start_no_thread(files, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    data = random.Random(0).randbytes(BLOCK)
    for _ in range(2 * spool_module.MOST_BLOCKS):
        files.append(data)
    files.spool.flush()
    assert files.bytes.read_bytes() == data * (2 * spool_module.MOST_BLOCKS)


def test_a_forked_child_leaves_the_files_alone(files):
    files.append(b"x" * 10)
    files.spool.line("parent\n")
    child = os.fork()
    if child == 0:
        try:
            files.append(b"y" * (20 * BLOCK))
            files.spool.line("child\n")
            files.spool.flush()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    files.append(b"z" * 10)
    files.spool.flush()
    assert files.bytes.read_bytes() == b"x" * 10 + b"z" * 10 and files.lines.read_text() == "parent\n"


KILLED = """
import os, signal, torch
from reference import Block

class Ending(Block):
    ends = False

    def forward(self, x, condition):
        result = super().forward(x, condition)
        if self.ends:
            few = result[0, 0, :1]
            for _ in range(400):
                few = few + 1
            os.kill(os.getpid(), signal.SIGKILL)
        return result

torch.manual_seed(0)
model = Ending()
x, condition = torch.randn(2, 6, 16), torch.randn(2, 16)
with torch.no_grad():
    model(x, condition)
    model.ends = True
    model(x, condition)
"""


def test_a_program_killed_in_a_call_leaves_the_call_before(tmp_path):
    pytest.importorskip("torch")
    place = Place(tmp_path)
    place.write("reference", REFERENCE)
    place.record("reference", "--operations", "Block")
    place.write("killed", KILLED)
    place.run(
        "record",
        "--inputs",
        "--operations",
        "Ending",
        "--name",
        "killed",
        "--",
        sys.executable,
        "killed.py",
        status=137,
    )
    answer = place.zoom("killed", "--stage", "Block", "--candidate-stage", "Ending", status=0)
    assert answer["regions"] == []
