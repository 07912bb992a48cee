"""Starts the peer, asks it, and ends it, whatever happens."""

import http.client
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

START_SECS, ANSWER_SECS = 120, 60


class DiffusersServer:
    def __init__(self, model, threads):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        program = pathlib.Path(__file__).with_name("diffusers_server.py")
        self.said = tempfile.TemporaryFile("w+")  # not a pipe: nobody would empty it while it draws
        self.process = subprocess.Popen(
            [sys.executable, program, str(self.port), str(model), str(threads)], stdout=self.said, stderr=self.said
        )

    def __enter__(self):
        until = time.monotonic() + START_SECS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                self.name = self.call("GET", "/name")
                return self
            except OSError:
                time.sleep(0.2)
        self.__exit__()
        raise SystemExit("the peer does not start: " + self.text())

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def text(self):
        self.said.seek(0)
        return self.said.read()[-2000:]

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECS)
        try:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            assert answer.status == 200, (answer.status, data[:500], self.text())
            return json.loads(data)
        finally:
            connection.close()

    def asked(self, body):
        """Seconds of a request, and of the pipeline in it."""
        began = time.perf_counter()
        answer = self.call("POST", "/v1/images/generations", body)
        return time.perf_counter() - began, answer["secs"]
