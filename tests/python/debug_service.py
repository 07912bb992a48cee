"""A home folder with its own service, for the tests of `lockstep debug`, REST and MCP."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.parse

from dap_client import DapClient
from program import PROGRAM, ROOT
from system import is_running as alive


def wait_until(condition, secs=30):
    until = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


class Home:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.python = sys.executable  # of the programs it starts
        self.home = self.folder / "home"
        self.environment = {**os.environ, "LOCKSTEP_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        self.environment.pop("VIRTUAL_ENV", None)
        self._editors = []

    def write(self, name, source):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
        return path

    def run(self, *words, check=True, timeout=120, cwd=None):
        command = [PROGRAM, *map(str, words)]
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def debug(self, *words, **options):
        """The JSON answer of `lockstep debug WORDS`."""
        done = self.run("--json", "debug", *words, **options)
        return json.loads(done.stdout) if done.stdout else None

    def error(self, *words, **options):
        done = self.run("--json", "debug", *words, check=False, **options)
        assert done.returncode != 0, done.stdout
        return json.loads(done.stdout)["error"]

    def start(self, script, *words, options=()):
        return self.debug("start", "--python", self.python, *options, script, *words)

    def call_started(self, script, **options):
        """A session started over HTTP."""
        self.ensure()
        return self.call("debug/start", script=str(script), python=self.python, cwd=str(self.folder), **options)

    def service(self):
        return json.loads((self.home / "service" / "service.json").read_text())

    def token(self):
        return (self.home / "service" / "token").read_text().strip()

    def ensure(self):
        self.debug("sessions")
        return self.service()

    def http(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, JSON or text) of one request with the right token, unless `headers` says otherwise."""
        where = self.service()
        connection = http.client.HTTPConnection("127.0.0.1", where["port"], timeout=timeout)
        sent = {"Authorization": f"Bearer {self.token()}"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        for name, value in (headers or {}).items():
            sent.pop(name, None)
            if value is not None:
                sent[name] = value
        connection.request(
            method, path, body=json.dumps(body) if isinstance(body, (dict, list)) else body, headers=sent
        )
        answer = connection.getresponse()
        text = answer.read().decode("utf-8")
        connection.close()
        parsed = (
            json.loads(text) if answer.getheader("Content-Type", "").startswith("application/json") and text else text
        )
        return answer.status, dict(answer.getheaders()), parsed

    def call(self, operation, **arguments):
        status, _, answer = self.http("POST", f"/v1/{operation}", arguments)
        assert status == 200, answer
        return answer

    def get(self, operation, **arguments):
        status, _, answer = self.http("GET", f"/v1/{operation}?{urllib.parse.urlencode(arguments)}")
        assert status == 200, answer
        return answer

    def editor(self, **options):
        """A client of `lockstep dap`, which it starts as an editor does."""
        self._editors.append(DapClient([PROGRAM, "dap"], cwd=self.folder, env=self.environment, **options))
        return self._editors[-1]

    @contextlib.contextmanager
    def adapter_at_a_port(self):
        """`lockstep dap --port`: the process and where it listens."""
        command = [PROGRAM, "--json", "dap", "--port", "0"]
        server = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True)
        try:
            yield server, json.loads(server.stdout.readline())
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) in (0, 130)

    def close(self):
        for editor in self._editors:
            editor.close()
        done = self.run("--json", "debug", "sessions", "--limit", "1000", check=False)
        if done.returncode == 0:
            for session in json.loads(done.stdout)["sessions"]:
                if session["state"] in ("stopped", "running", "starting", "detached"):
                    self.run("debug", "terminate", "--force", "--session", session["id"], check=False)
        self.run("serve", "--stop", check=False)


__all__ = ["Home", "PROGRAM", "ROOT", "alive", "wait_until"]
