"""A picture server of its own for a test: `lockstep serve` in a home folder, on any port."""

import base64
import http.client
import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

from debug_service import wait_until
from program import PROGRAM
from PIL import Image

THREADS = ("--device", "cpu", "--threads", "1")  # several wait for each other on a busy machine


class ImageServer:
    def __init__(self, folder, *options, environment=None, threads=THREADS):
        self.folder = pathlib.Path(folder)
        self.home = self.folder / "home"
        self.options = (*threads, *options)
        self.environment = {**os.environ, "LOCKSTEP_HOME": str(self.home), **(environment or {})}
        self.process = None
        self.start()

    def start(self):
        facts = self.home / "service" / "service.json"
        facts.unlink(missing_ok=True)
        self.log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", *map(str, self.options)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

        def ready():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            return facts.exists()

        wait_until(ready)
        self.port = json.loads(facts.read_text())["port"]
        self.token = (self.home / "service" / "token").read_text().strip()
        self.url = f"http://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            finally:
                if self.process.poll() is None:
                    self.kill()
        self.log.close()

    def openai(self, **options):
        import openai

        return openai.OpenAI(
            base_url=f"{self.url}/v1", **{"api_key": self.token, "max_retries": 0, "timeout": 120, **options}
        )

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = {"Authorization": f"Bearer {self.token}"}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body)
            sent["Content-Type"] = "application/json"
        for name, value in (headers or {}).items():
            sent.pop(name, None)
            if value is not None:
                sent[name] = value
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), data

    def json(self, method, path, body=None, headers=None, status=200):
        got, _, data = self.request(method, path, body, headers)
        assert got == status, (got, data[:2000])
        return json.loads(data)

    def job(self, **fields):
        return self.json("POST", "/v1/jobs", fields)

    def ended(self, job_id, secs=60):
        until, state = time.monotonic() + secs, None
        while (left := until - time.monotonic()) > 0:
            status, headers, data = self.request("GET", f"/v1/jobs/{job_id}?max_wait={min(20, left):.3f}")
            if status == 503:  # too many wait already: it says when to come again
                time.sleep(min(left, int(headers["Retry-After"])))
                continue
            assert status == 200, (status, data[:2000])
            state = json.loads(data)
            if state["status"] in ("completed", "failed", "cancelled"):
                return state
        raise AssertionError(f"it did not end in {secs} s: {state}")

    def happened(self, topic, job_id=None, step=0):
        """Waits for an event, of now or before; returns its data."""
        stream = EventStream(self, headers=[("Last-Event-ID", "0")])
        try:
            while event := stream.next():
                data = event["data"]
                if event["event"] == topic and job_id in (None, data["id"]) and data.get("step", 0) >= step:
                    return data
        finally:
            stream.close()
        raise AssertionError(f"no {topic}")

    def metric(self, name):
        text = self.request("GET", "/metrics")[2].decode()
        return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


class EventStream:
    """Server-sent events of a raw connection, one at a time."""

    def __init__(self, server, path="/v1/events", method="GET", body=None, headers=(), timeout=60):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        for name, value in headers:
            head += f"{name}: {value}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        self.socket.sendall(head.encode() + b"\r\n" + data)
        self.rest = b""
        self.head = self._until(b"\r\n\r\n").decode()
        self.status = int(self.head.split()[1])
        self.raw = b""

    def _until(self, mark):
        while mark not in self.rest:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise EOFError(self.rest[:500])
            self.rest += piece
        found, self.rest = self.rest.split(mark, 1)
        return found

    def next(self):
        """The next event as a dict of its fields, comments left out; None at the end."""
        while True:
            try:
                block = self._until(b"\n\n")
            except EOFError:
                return None
            self.raw += block + b"\n\n"
            fields = {}
            for line in block.decode().splitlines():
                if line and not line.startswith(":"):
                    name, value = line.split(": ", 1)
                    fields[name] = value
            if fields:
                fields["data"] = json.loads(fields["data"])
                return fields

    def close(self):
        self.socket.close()


def picture_of(b64):
    return opened(base64.b64decode(b64))


def opened(data):
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture


def png(picture):
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def data_url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()
