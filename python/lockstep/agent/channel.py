"""The connection to the service and the trace file."""

import _thread
import os
import time

from . import native

MOST_MESSAGE = 1 << 20
_SEND_SECONDS = 5.0
_SO_NOSIGPIPE = 0x1022  # macOS has it, and Python has no name for it


def _codec():
    if native.module is not None:
        return native.module.dumps, native.module.loads
    import json  # the pure-Python agent says in `hello` that it imports this

    def strict(value):
        if isinstance(value, float) and not (value - value == 0.0):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return str(value)
        if isinstance(value, dict):
            return {str(key): strict(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [strict(item) for item in value]
        return value

    def dumps(value):
        return json.dumps(strict(value), separators=(",", ":"), default=str, allow_nan=False).encode("ascii")

    return dumps, json.loads


class NobodyListens(Exception):
    """The service was gone before the program could call it."""


class Channel:
    def __init__(self, path, later=False):
        """later: where nobody listens yet, somebody will."""
        self.dumps, self.loads = _codec()
        self.open = False
        self._lock = _thread.allocate_lock()
        self._sequence = 0
        self._rest = b""
        self._skipping = False
        self._socket = None
        self._fd = -1
        try:
            self._connect(path)
            self.open = True
        except OSError as error:
            if not later:
                raise NobodyListens(f"no service listens at {path}: {error}") from None

    def _connect(self, path):
        if native.module is not None:
            self._fd = native.module.connect(path)
            return
        import socket

        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A program may have given SIGPIPE its usual effect, and must not end because the service has.
        self._flags = getattr(socket, "MSG_NOSIGNAL", 0)
        if not self._flags:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)
        self._socket.connect(path)
        self._fd = self._socket.fileno()

    def call_again(self, path, hello):
        """Connects anew, and is open to others only once `hello` has gone out. False: nobody listens there."""
        with self._lock:
            self._close()
            self._rest, self._skipping = b"", False
            try:
                self._connect(path)
                self._sequence += 1
                self.open = self._write(
                    self._line({"event": "hello", "seq": self._sequence, "time": time.time(), **hello})
                )
            except OSError:
                self.open = False
            return self.open

    def _line(self, message):
        data = self.dumps(message)
        if len(data) >= MOST_MESSAGE:
            data = self.dumps(self._too_large(message, len(data)))
        return data + b"\n"

    def _write(self, data):
        if self._socket is None:
            return native.module.send_all(self._fd, data, _SEND_SECONDS)
        self._socket.settimeout(_SEND_SECONDS)
        self._socket.sendall(data, self._flags)
        return True

    def send(self, message):
        """True when it went out. Never raises: the program comes first."""
        try:
            data = self._line(message)
            with self._lock:
                if self.open:
                    self.open = self._write(data)
                    return self.open
                return False
        except OSError:
            self.open = False
            return False

    @staticmethod
    def _too_large(message, size):
        if "id" in message:
            error = {
                "code": "too_large",
                "message": f"the answer has {size} bytes",
                "hint": "ask for less: a slice, a smaller limit",
            }
            return {"id": message["id"], "ok": False, "error": error}
        kept = {
            key: value
            for key, value in message.items()
            if not isinstance(value, (dict, list)) or key in ("location", "thread")
        }
        return {**kept, "truncated": True}

    def event(self, name, fields):
        with self._lock:
            self._sequence += 1
            number = self._sequence
        return self.send({"event": name, "seq": number, "time": time.time(), **fields})

    def receive(self, seconds):
        """Messages that came; None when the other side is gone."""
        if self._socket is None:
            data = native.module.receive(self._fd, seconds)
        else:
            import select

            try:
                ready, _, _ = select.select([self._fd], [], [], seconds if seconds >= 0 else None)
                data = os.read(self._fd, 65536) if ready else None
            except (OSError, ValueError):  # the program's end closes it while this thread waits
                data = b""
        if data is None:
            return []
        if not data:
            self.open = False
            return None
        self._rest += data
        if len(self._rest) > MOST_MESSAGE and b"\n" not in self._rest:
            self._rest, self._skipping = b"", True
            self.send(
                {
                    "id": None,
                    "ok": False,
                    "error": {"code": "too_large", "message": "a request of more than 1 MiB", "hint": ""},
                }
            )
            return []
        *lines, self._rest = self._rest.split(b"\n")
        if lines and self._skipping:
            lines, self._skipping = lines[1:], False
        messages = []
        for line in lines:
            if line.strip():
                try:
                    messages.append(self.loads(line))
                except ValueError as error:
                    self.send(
                        {
                            "id": None,
                            "ok": False,
                            "error": {"code": "bad_request", "message": str(error), "hint": "one JSON object a line"},
                        }
                    )
        return messages

    def hang_up(self):
        """The other side and the thread that waits here see the end. The number stays taken: that thread must not read from
        what the program opens next."""
        with self._lock:
            self.open = False
            try:
                if self._socket is not None:
                    self._socket.shutdown(2)
                elif self._fd >= 0:
                    native.module.hang_up(self._fd)
            except OSError:
                pass

    def close_in_child(self):
        """After a fork: the parent's connection stays. The lock may have been held by a thread that is not here."""
        self._lock = _thread.allocate_lock()
        self._close()

    def _close(self):
        if self._fd < 0:
            return
        self.open = False
        try:
            if self._socket is not None:
                self._socket.close()
            else:
                os.close(self._fd)
        except OSError:
            pass
        self._fd = -1


class Trace:
    """trace.jsonl: each line is one write to a file opened for appending, so that nothing is lost when the program is killed."""

    def __init__(self, folder, dumps):
        self._dumps = dumps
        self._fd = -1
        self._sequence = 0
        if folder:
            try:
                self._fd = os.open(
                    os.path.join(folder, "trace.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            except OSError:
                pass

    def write(self, kind, fields):
        if self._fd < 0:
            return
        self._sequence += 1
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}+00:00"
        try:
            os.write(
                self._fd,
                self._dumps({"time": stamp, "seq": self._sequence, "source": "agent", "kind": kind, **fields}) + b"\n",
            )
        except OSError:
            pass

    def close(self):
        if self._fd >= 0:
            try:
                os.close(self._fd)
            except OSError:
                pass
            self._fd = -1
