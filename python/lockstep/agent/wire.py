"""The way between the two programs of a twin session: two pipes for messages, and memory of the reference that the candidate reads.

A message is a line of JSON, with bytes after it where it says so. One that a side was called away from is finished with the next one, sent or read, so that
both always read what was written from where it begins. Every message bears the turn in which it was sent; those of an earlier turn are for nobody."""

import mmap
import os
import select
from time import perf_counter

SPIN_SECS = (
    0.0002  # looked for in place of sleeping: to be woken takes a tenth of that, and the other side is often close
)
LOOK_UP_MS = 100


class Alone(Exception):
    """The other side is gone, or nobody wants the comparison any more."""


class Held(Exception):
    """The other side stands, and this one shall stand where it waits."""


class Again(Exception):
    """Both have been told anew how to go on: the meeting begins once more."""


class Wire:
    def __init__(self, agent, folder, reference):
        self._agent = agent
        names = ("to_candidate", "to_reference") if reference else ("to_reference", "to_candidate")
        self._out, self._in = (
            os.open(os.path.join(folder, name), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for name in names
        )
        for end in (self._out, self._in):
            try:
                import fcntl

                fcntl.fcntl(end, 1031, 1 << 20)  # F_SETPIPE_SZ: a tensor in fewer pieces
            except (ImportError, OSError):
                pass
        self._ends = [(end, _identity(end)) for end in (self._out, self._in)]
        self._unsent = []  # the rest of a message
        self._rest, self._values, self._message, self._at = bytearray(), bytearray(), None, 0
        self._early = None  # a message of a turn that this side has not been told of yet
        self._wait_in, self._wait_out = select.poll(), select.poll()
        self._wait_in.register(self._in, select.POLLIN)
        self._wait_out.register(self._out, select.POLLOUT)

    def check(self):
        """A program that closes descriptors which it does not know may have got their numbers for files of its own."""
        for end, identity in self._ends:
            if _identity(end) != identity:
                raise Alone

    def _look_up(self, gate, turn, may_hold):
        if gate.mode == "off" or self._agent.dead or self._agent.endings.status is not None:
            raise Alone
        if gate.turn != turn:
            raise Again
        if gate.hold and may_hold:
            raise Held

    def _when_ready(self, gate, turn, may_hold, poll, act):
        """What act() gives once the pipe lets it; whoever waits looks up ten times a second."""
        until = None
        while True:
            try:
                return act()
            except BlockingIOError:
                now = perf_counter()
                until = until or now + SPIN_SECS
                if now < until:
                    continue
                while not poll.poll(LOOK_UP_MS):
                    self._look_up(gate, turn, may_hold)
                    self.check()

    def send(self, gate, turn, message, data=b""):
        self._unsent += [
            memoryview(self._agent.channel.dumps({**message, "turn": turn, "bytes": len(data)}) + b"\n"),
            memoryview(data),
        ]
        try:
            self._flush(gate, turn)
        except BaseException:
            self._unsent = [memoryview(bytes(part)) for part in self._unsent]  # the program may write to its tensor
            raise

    def _flush(self, gate, turn):
        parts = self._unsent
        while parts:
            written = self._when_ready(gate, turn, False, self._wait_out, lambda: os.writev(self._out, parts[:8]))
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]

    def take(self, gate, turn, may_hold=False):
        """(message, the bytes that belong to it, which the next message takes the place of)"""
        while True:
            if self._early is not None:
                message, data = self._early
                self._early = None
            else:
                message, data = self._next(gate, turn, may_hold)
            if message["turn"] == turn:
                return message, data
            if message["turn"] > turn:  # the other side was told first
                self._early = message, bytes(data)
                while True:
                    self._look_up(gate, turn, may_hold)
                    select.select((), (), (), 0.001)

    def _next(self, gate, turn, may_hold):
        def some():
            return os.read(self._in, 4096)  # values that follow are not read twice

        while self._message is None:
            end = self._rest.find(b"\n")
            if end < 0:
                self._rest += self._when_ready(gate, turn, may_hold, self._wait_in, some)
                continue
            self._message = self._agent.channel.loads(bytes(self._rest[:end]))
            del self._rest[: end + 1]
            size = self._message["bytes"]
            if len(self._values) < size:
                self._values = bytearray(size)
            self._at = min(size, len(self._rest))
            self._values[: self._at] = self._rest[: self._at]
            del self._rest[: self._at]
        data = memoryview(self._values)[: self._message["bytes"]]
        while self._at < len(data):
            self._at += self._when_ready(
                gate, turn, False, self._wait_in, lambda: os.readv(self._in, [data[self._at :]])
            )
        message, self._message = self._message, None
        return message, data


def _identity(descriptor):
    try:
        about = os.fstat(descriptor)
    except OSError:
        return None
    return about.st_dev, about.st_ino


class Shelf:
    """Memory of the reference's program, where values lie for the candidate to read: nothing is copied through a pipe. Where the candidate cannot
    open it, values go through the pipe."""

    def __init__(self, reference):
        self._file, self._memory, self._known = -1, None, None
        if reference:
            try:
                self._file = os.memfd_create("lockstep-twin")
            except (AttributeError, OSError):
                pass
        self._identity = _identity(self._file)

    def place(self):
        """What tells the other side where it is."""
        return [os.getpid(), self._file] if self._file >= 0 else None

    def put(self, array):
        """The values of an array lie here from now on; False where there is no room."""
        if self._file < 0:
            return False
        try:
            if self._memory is None or len(self._memory) < array.nbytes:
                if _identity(self._file) != self._identity:  # a file of the program's own by now
                    raise OSError
                size = max(1 << 20, 1 << max(0, array.nbytes - 1).bit_length())
                os.ftruncate(self._file, size)
                self._memory = mmap.mmap(self._file, size)
            import numpy

            numpy.frombuffer(self._memory, array.dtype, array.size)[:] = array.reshape(-1)
        except (OSError, ValueError, MemoryError):
            self._file, self._memory = -1, None
            return False
        return True

    def open(self, place):
        """On the candidate's side; True where values can be read from now on."""
        if place is None or place == self._known:
            return self._file >= 0
        self._known = place
        try:
            self._file = os.open(f"/proc/{int(place[0])}/fd/{int(place[1])}", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError, IndexError, TypeError):
            self._file = -1
        self._identity = _identity(self._file)
        return self._file >= 0

    def look(self, size):
        """The values that lie here, until the other side is told to go on."""
        if self._memory is None or len(self._memory) < size:
            if _identity(self._file) != self._identity:
                raise Alone
            self._memory = mmap.mmap(self._file, os.fstat(self._file).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
        return memoryview(self._memory)[:size]
