"""Values and the lines that name them, on their way to two files while the traced program goes on."""

import ctypes
import errno
import mmap
import os
import queue
import threading
import time

BLOCK = 4 << 20
MOST_BLOCKS = 8  # so much memory at most; the program waits for the disk only when all of them are full
_ALIGNED = max(4096, mmap.PAGESIZE)  # length, place and memory of what goes past the page cache
_zeros = (ctypes.c_char * 64)()
_zeros_at = ctypes.addressof(_zeros)


class _Block:
    def __init__(self):
        self.memory = mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.start = 0  # in the file
        self.used = 0
        self.lines = []  # may be written when this block is


class Spool:
    """Two files that grow: bytes, copied at once and written by a thread of its own, and lines that name their offsets.

    A line is written after the bytes before it, so what a killed program leaves can be read.

    Blocks go past the page cache. A gigabyte there takes as much fresh memory, which a system often needs longer to
    find than the disk does to write. Once the disk has kept the program waiting, each block goes the way on which the
    last one was faster.
    """

    def __init__(self, bytes_path, lines_path):
        self._cached = os.open(bytes_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        self._direct = _opened_past_the_cache(bytes_path)
        self._lines_file = open(lines_path, "w", encoding="utf-8")
        self._process = os.getpid()  # a forked child has the files, but not the thread
        self._blocks = 0
        self._free = queue.SimpleQueue()
        self._full = queue.SimpleQueue()
        self._thread = None
        self._waited = False
        self._seconds = {}  # file descriptor → what its last block took
        self._error = None
        self._current = self._free_block(0)

    @property
    def position(self):
        return self._current.start + self._current.used

    def append(self, pointer, size):
        """Copies so many bytes from there. OSError where earlier ones could not be written."""
        if self._error is not None:
            raise self._error
        done = 0
        while done < size:
            if self._current.used == BLOCK:
                self._pass_on()
            block = self._current
            part = min(size - done, BLOCK - block.used)
            ctypes.memmove(block.address + block.used, pointer + done, part)
            block.used += part
            done += part

    def pad(self, size):
        """So many zeros, at most 64."""
        self.append(_zeros_at, size)

    def line(self, text):
        self._current.lines.append(text)

    def flush(self):
        """Returns when everything is in the files. OSError where it is not."""
        if os.getpid() != self._process:
            return
        if self._thread is not None:
            self._full.put(None)
            self._thread.join()
            self._thread = None
        self._try_to_write(self._current)  # it stays, and is filled on
        if self._error is not None:
            raise self._error
        os.ftruncate(self._cached, self.position)

    def _pass_on(self):
        if os.getpid() != self._process:
            self._current.start, self._current.used = self.position, 0
            return
        full, self._current = self._current, self._free_block(self.position)
        if self._has_thread():
            self._full.put(full)
        else:
            self._try_to_write(full)
            self._free.put(full)

    def _has_thread(self):
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="lockstep-spool", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the program ends, or may start no more
                return False
            self._thread = thread
        return True

    def _free_block(self, start):
        try:
            block = self._free.get_nowait()
        except queue.Empty:
            if self._blocks < MOST_BLOCKS:
                self._blocks += 1
                block = _Block()
            else:
                self._waited = True
                block = self._free.get()
        block.start, block.used = start, 0
        return block

    def _work(self):
        while (block := self._full.get()) is not None:
            self._try_to_write(block)
            self._free.put(block)

    def _try_to_write(self, block):
        try:
            if self._error is None:
                self._write(block)
        except Exception as error:  # noqa: BLE001  the program hears of it with its next value
            self._error = error
        block.lines = []

    def _write(self, block):
        size = -(-block.used // _ALIGNED) * _ALIGNED
        block.memory[block.used : size] = bytes(size - block.used)
        way = self._way()
        started = time.monotonic()
        done = 0
        while done < size:
            try:
                done += os.pwrite(way, memoryview(block.memory)[done:size], block.start + done)
            except OSError as error:
                if way == self._cached or error.errno != errno.EINVAL:
                    raise
                self._direct = None  # a file system that opens such a file and does not write it
                way = self._cached
        if size == BLOCK:
            self._seconds[way] = time.monotonic() - started
        self._lines_file.writelines(block.lines)
        self._lines_file.flush()

    def _way(self):
        if self._direct is None:
            return self._cached
        if not self._waited:
            return self._direct
        return min((self._direct, self._cached), key=lambda way: self._seconds.get(way, 0))


def _opened_past_the_cache(path):
    flag = getattr(os, "O_DIRECT", None)
    try:
        return None if flag is None else os.open(path, os.O_WRONLY | flag)
    except OSError:  # a file system without that
        return None
