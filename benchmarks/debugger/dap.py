"""debugpy, driven over its protocol as an editor does."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time


class DebugpySession:
    def __init__(self, script, *args, python=sys.executable, breakpoints=()):
        for chance in range(3):  # its adapter sometimes closes the connection of an early client
            try:
                self._open(script, args, python, breakpoints)
                return
            except (EOFError, ConnectionError):
                self.close()
                if chance == 2:
                    raise

    def _open(self, script, args, python, breakpoints):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [
                python,
                "-Xfrozen_modules=off",
                "-m",
                "debugpy",
                "--listen",
                f"127.0.0.1:{port}",
                "--wait-for-client",
                str(script),
                *args,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        )
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.005)
        self.file = self.socket.makefile("rb")
        self._number = 0
        self.events = []
        self.request("initialize", adapterID="bench", pathFormat="path", linesStartAt1=True)
        attach = self.send("attach", justMyCode=False)
        self.event("initialized")
        by_file = {}
        for file, line, condition in breakpoints:
            by_file.setdefault(str(file), []).append({"line": line, **({"condition": condition} if condition else {})})
        for file, lines in by_file.items():
            self.request("setBreakpoints", source={"path": file}, breakpoints=lines)
        self.request("configurationDone")
        self.response(attach)

    def send(self, command, **arguments):
        self._number += 1
        body = json.dumps({"seq": self._number, "type": "request", "command": command, "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self._number

    def _read(self):
        size = 0
        while line := self.file.readline().strip():
            size = int(line.split(b":")[1])
        if size == 0:
            raise EOFError
        return json.loads(self.file.read(size))

    def response(self, number):
        while True:
            message = self._read()
            if message["type"] == "event":
                self.events.append(message)
            elif message.get("request_seq") == number:
                return message.get("body")

    def request(self, command, **arguments):
        return self.response(self.send(command, **arguments))

    def event(self, name):
        while True:
            for index, message in enumerate(self.events):
                if message["event"] == name:
                    return self.events.pop(index)
            message = self._read()
            if message["type"] == "event":
                self.events.append(message)

    def stopped(self):
        return self.event("stopped")["body"]["threadId"]

    def output(self, last):
        """What the program printed up to a line that begins with `last`: its adapter keeps the pipe open."""
        text = ""
        for line in self.process.stdout:
            text += line.decode()
            if line.startswith(last.encode()):
                break
        return text

    def close(self):
        self.process.kill()
        self.process.wait()
        self.socket.close()


def line_of(path, text):
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if text in line:
            return number
    raise LookupError(text)
