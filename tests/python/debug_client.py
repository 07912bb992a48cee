"""A service of a few lines: starts a program under the debugger and speaks its protocol."""

import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOTSTRAP = ROOT / "python" / "lockstep" / "agent" / "bootstrap.py"
PATIENCE = float(os.environ.get("LOCKSTEP_TEST_PATIENCE", "60"))


def pythons():
    """One interpreter for each version from 3.10 on, this one first, then those that LOCKSTEP_TEST_PYTHONS names (paths, with colons
    between)."""
    found = {sys.version_info[:2]: sys.executable}
    candidates = os.environ.get("LOCKSTEP_TEST_PYTHONS", "").split(os.pathsep)
    candidates += [shutil.which(f"python3.{minor}") for minor in range(10, 15)]
    candidates += sorted(str(path) for path in pathlib.Path.home().glob(".pyenv/versions/3.1[0-4]*/bin/python3"))
    for path in candidates:
        if not path:
            continue
        done = subprocess.run(
            [path, "-c", "import sys; print(sys.version_info[0], sys.version_info[1])"], capture_output=True, text=True
        )
        if done.returncode == 0:
            major, minor = (int(part) for part in done.stdout.split())
            if (major, minor) >= (3, 10):
                found.setdefault((major, minor), path)
    return found


def forms():
    """What a test runs in: {id: arguments for Session}. Every Python found; this one and the newest also without
    the extension."""
    found = sorted(pythons().items())
    every = {f"{major}.{minor}": {"python": path} for (major, minor), path in found}
    pure = dict([(sys.version_info[:2], sys.executable), found[-1]])
    return {
        **every,
        **{f"{major}.{minor}-pure": {"python": path, "native": "0"} for (major, minor), path in pure.items()},
    }


class Failed(Exception):
    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']} ({error.get('hint')})")
        self.code, self.error = error["code"], error


class Session:
    """A program under the debugger. Use as a context manager."""

    def __init__(
        self,
        script,
        *args,
        python=sys.executable,
        module=False,
        options=None,
        native=None,
        cwd=None,
        env=None,
        stdin=None,
    ):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lsd-"))
        self.path = self.folder / "s"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(1)
        environment = {
            **os.environ,
            "LOCKSTEP_AGENT_SOCKET": str(self.path),
            "LOCKSTEP_AGENT_TOKEN": "secret",
            "LOCKSTEP_AGENT_SESSION": str(self.folder),
            "LOCKSTEP_AGENT_OPTIONS": json.dumps(options or {}),
            **(env or {}),
        }
        if native is not None:
            environment["LOCKSTEP_AGENT_NATIVE"] = native
        self._again = None  # a second listener
        self._output = open(self.folder / "output.log", "ab")
        target = ["-m", str(script)] if module else [str(script)]
        self.process = subprocess.Popen(
            [python, str(BOOTSTRAP), *target, *map(str, args)],
            stdout=self._output,
            stderr=self._output,
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            cwd=cwd,
            env=environment,
        )
        self.events = []
        self._numbers = 0
        self._rest = b""
        self._replies = {}
        self._accept(self._listener)

    def _accept(self, listener):
        end = time.monotonic() + PATIENCE
        ready = []
        while not ready and time.monotonic() < end and self.process.poll() is None:
            ready, _, _ = select.select([listener], [], [], 0.2)
        if not ready:
            raise AssertionError("the program never connected: " + self.output())
        self.socket, _ = listener.accept()
        self._rest = b""
        self.events.clear()
        self.hello = self.event("hello")

    def lose(self):
        """The service is gone."""
        self.socket.close()

    def take_over(self):
        """Another service is there; its hello."""
        path = self.folder / "agent.sock"
        path.unlink(missing_ok=True)
        if self._again is not None:
            self._again.close()
        self._again = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._again.bind(str(path))
        self._again.listen(1)
        self._accept(self._again)
        return self.hello

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.socket.close()
        self._listener.close()
        if self._again is not None:
            self._again.close()
        self._output.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def output(self):
        return (self.folder / "output.log").read_text(errors="replace")

    def trace(self):
        return [json.loads(line) for line in (self.folder / "trace.jsonl").read_text().splitlines()]

    def _read(self, seconds):
        ready, _, _ = select.select([self.socket], [], [], max(0.0, seconds))
        if not ready:
            return False
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError("the connection was closed; output: " + self.output()[-2000:])
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "event" in message:
                self.events.append(message)
            else:
                self._replies[message["id"]] = message
        return True

    def send(self, op, **args):
        self._numbers += 1
        self.socket.sendall(json.dumps({"id": self._numbers, "op": op, "args": args}).encode() + b"\n")
        return self._numbers

    def reply(self, number, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while number not in self._replies:
            if not self._read(end - time.monotonic()) and time.monotonic() > end:
                raise AssertionError(f"no answer to {number}; output: {self.output()[-2000:]}")
        message = self._replies.pop(number)
        if not message["ok"]:
            raise Failed(message["error"])
        return message["result"]

    def ask(self, op, /, seconds=PATIENCE, **args):
        return self.reply(self.send(op, **args), seconds)

    def event(self, name, seconds=PATIENCE):
        """The next event of that name; earlier ones are dropped."""
        end = time.monotonic() + seconds
        while True:
            while self.events:
                message = self.events.pop(0)
                if message["event"] == name:
                    return message
                self.passed = getattr(self, "passed", [])
                self.passed.append(message)
                if message["event"] == "exited":
                    raise AssertionError(f"the program ended, no {name}: {message}; output: {self.output()[-2000:]}")
            if not self._read(end - time.monotonic()) and time.monotonic() > end:
                raise AssertionError(f"no event {name}; output: {self.output()[-2000:]}")

    def stopped(self, seconds=PATIENCE):
        return self.event("stopped", seconds)

    def go(self, op="continue", **args):
        """Resumes and waits for the next stop."""
        self.ask(op, **args)
        return self.stopped()

    def eval(self, expression, **args):
        value = self.ask("eval", expression=expression, **args)["value"]
        return value.get("value", value["text"]) if value else None

    def finish(self, op="continue"):
        """Lets the program end; its `exited` event."""
        self.ask(op)
        return self.end()

    def end(self):
        gone = self.event("exited")
        self.process.wait(PATIENCE)
        return gone


def program(folder, text, name="program.py"):
    path = pathlib.Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def line_of(path, text):
    """Number of the first line that contains the text."""
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if text in line:
            return number
    raise AssertionError(f"no line with {text!r}")
