"""A client of the Debug Adapter Protocol, as an editor is one: over a pipe or a socket, with every message checked for its form."""

import json
import queue
import socket
import subprocess
import threading

PATIENCE = 60
_NUMBERS = ("id", "threadId", "frameId", "variablesReference", "sourceReference", "hitBreakpointIds")

# A small program that both clients drive.
LOOP = """import math

def scale(step):
    sigma = math.exp(-step)
    kept = {"step": step, "pair": (step, sigma)}
    return sigma

values = []
for step in range(6):
    values.append(scale(step))
print(len(values), "steps")
"""


def check_numbers(value, name=""):
    """Clients may keep numbers in 32 bits."""
    if isinstance(value, dict):
        for key, inside in value.items():
            check_numbers(inside, key)
    elif isinstance(value, list):
        for inside in value:
            check_numbers(inside, name)
    elif name in _NUMBERS and isinstance(value, int):
        assert 0 <= value < 2**31, (name, value)


class Refused(Exception):
    """A request that the adapter answered with success: false."""

    def __init__(self, answer):
        super().__init__(answer.get("message"))
        self.answer = answer


class DapClient:
    def __init__(self, command=None, port=None, **options):
        self.process = self.socket = None
        if port is not None:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        else:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self._number = 0
        self._last_seq = 0
        self._arrived = queue.Queue()
        self.log = []  # all messages in the order of their arrival
        self._events, self._answers = [], {}
        self.capabilities = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        reader = self.process.stdout if self.socket is None else self.socket.makefile("rb")
        try:
            while True:
                size = None
                while True:
                    line = reader.readline()
                    if not line:
                        raise EOFError
                    if line == b"\r\n":
                        break
                    name, _, value = line.decode("ascii").partition(":")
                    assert name == "Content-Length", line
                    size = int(value)
                self._arrived.put(json.loads(reader.read(size)))
        except (EOFError, OSError, ValueError, AssertionError) as error:
            self._arrived.put(error)

    def send_raw(self, data):
        if self.socket is not None:
            self.socket.sendall(data)
        else:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def send(self, command, **arguments):
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self.send_raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self._number

    def _take(self, timeout=PATIENCE):
        message = self._arrived.get(timeout=timeout)
        if isinstance(message, Exception):
            self._arrived.put(message)
            raise message
        assert message["seq"] == self._last_seq + 1, "messages are numbered one after the other"
        self._last_seq = message["seq"]
        if not message.get("command", "").startswith("lockstep/"):
            check_numbers(message.get("body"))
        self.log.append(message)
        if message["type"] == "event":
            self._events.append(message)
        else:
            assert message["type"] == "response" and isinstance(message["success"], bool)
            self._answers[message["request_seq"]] = message
        return message

    def answer(self, number):
        while number not in self._answers:
            self._take()
        return self._answers.pop(number)

    def request(self, command, **arguments):
        answer = self.answer(self.send(command, **arguments))
        assert answer["command"] == command
        if not answer["success"]:
            raise Refused(answer)
        return answer.get("body")

    def event(self, name, fits=lambda body: True):
        """The next event of this name whose body fits; its body."""
        while True:
            for index, message in enumerate(self._events):
                if message["event"] == name and fits(message.get("body")):
                    return self._events.pop(index).get("body")
            self._take()

    def seen(self, name):
        return [message.get("body") for message in self.log if message.get("event") == name]

    # -- what an editor does in one go ----------------------------------------------------------------------------------
    def begin(self, how="launch", breakpoints=None, functions=None, exceptions=("uncaught",), **arguments):
        """initialize, launch or attach, breakpoints, configurationDone; the answers to setBreakpoints."""
        self.capabilities = self.request(
            "initialize",
            adapterID="lockstep",
            clientID="test",
            linesStartAt1=True,
            columnsStartAt1=True,
            pathFormat="path",
        )
        started = self.send(how, **arguments)
        self.event("initialized")
        set_ = {}
        for path, lines in (breakpoints or {}).items():
            lines = [one if isinstance(one, dict) else {"line": one} for one in lines]
            set_[path] = self.request("setBreakpoints", source={"path": str(path)}, breakpoints=lines)["breakpoints"]
        if functions:
            set_[None] = self.request("setFunctionBreakpoints", breakpoints=functions)["breakpoints"]
        self.request("setExceptionBreakpoints", filters=list(exceptions))
        self.request("configurationDone")
        answer = self.answer(started)
        if not answer["success"]:
            raise Refused(answer)
        return set_

    def stopped(self):
        return self.event("stopped")

    def top(self, stop, **arguments):
        return self.request("stackTrace", threadId=stop["threadId"], **arguments)["stackFrames"][0]

    def locals(self, frame, **arguments):
        scopes = self.request("scopes", frameId=frame["id"])["scopes"]
        return self.variables(scopes[0]["variablesReference"], **arguments)

    def variables(self, reference, **arguments):
        return {
            one["name"]: one
            for one in self.request("variables", variablesReference=reference, **arguments)["variables"]
        }

    def output(self):
        return "".join(body["output"] for body in self.seen("output") if body["category"] == "stdout")

    def close(self):
        try:
            if self.process is not None:
                self.process.stdin.close()
                return self.process.wait(PATIENCE)
            self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
        except OSError:
            pass
        return None


def launched(home, source, name="program.py", **options):
    """An editor that has launched this program: its client, the file, what was set."""
    script = home.write(name, source)
    client = home.editor()
    if "breakpoints" in options:
        options["breakpoints"] = {script: options["breakpoints"]}
    set_ = client.begin(program=str(script), python=home.python, **options)
    return client, script, set_


def finish(client):
    code = client.event("exited")["exitCode"]
    client.event("terminated")
    client.request("disconnect")
    assert client.close() == 0
    return code
