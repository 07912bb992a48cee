"""Readers that go away: whoever serves others goes on or ends in order, and a command in a pipe ends as any other does."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

import pytest
from dap_client import DapClient
from debug_service import PROGRAM, ROOT, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def framed(message):
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


FIRST, *OTHERS = (
    framed({"seq": number, "type": "request", "command": "initialize", "arguments": {"adapterID": "x"}})
    for number in range(1, 200)
)
REQUESTS = b"".join(OTHERS)


AT_ONCE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(port, data, first=b""):
    """Says something, once it is heard, and leaves, in order and not, without reading a word of the answer."""
    for at_once in (False, True):
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            if first:
                client.sendall(first)
                client.recv(1 << 20)  # nothing, where as many as there may be have not been let go yet
            if at_once:
                client.setsockopt(*AT_ONCE)
            client.sendall(data)


def test_clients_of_the_adapter_that_hang_up_end_only_themselves(home):
    with home.adapter_at_a_port() as (server, where):
        port = where["port"]
        for _ in range(15):
            hang_up(port, REQUESTS, first=FIRST)
            hang_up(port, REQUESTS + b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", first=FIRST)

        def served():
            client = DapClient(port=port)
            try:
                return client.request("initialize", adapterID="lockstep")["supportsConfigurationDoneRequest"]
            except Exception:  # as many as there may be are still being let go
                return server.poll() is not None
            finally:
                client.close()

        wait_until(served)
        assert server.poll() is None


def test_clients_of_the_service_that_hang_up_end_only_themselves(home):
    service = home.ensure()
    for data in (
        b"GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
        b"GET / HTTP/1.1\r\nBad Header: 1\r\n\r\n" * 50,
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\n12",
    ):
        for _ in range(15):
            hang_up(service["port"], data)
    assert home.service()["pid"] == service["pid"] and alive(service["pid"])


@pytest.mark.parametrize("command", ["dap", "mcp"])
@pytest.mark.parametrize("kind", ["a pipe", "a socket"])
def test_an_editor_or_agent_that_is_gone_ends_its_server_in_order(home, command, kind):
    """Its answers go nowhere, it is asked on, and then its input ends."""
    asked = REQUESTS
    if command == "mcp":
        asked = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number for number in range(1, 200))
    if kind == "a pipe":
        read_end, write_end = os.pipe()
    else:
        ours, theirs = socket.socketpair()
        read_end, write_end = ours.detach(), theirs.detach()
    server = subprocess.Popen(
        [PROGRAM, command],
        cwd=home.folder,
        env=home.environment,
        stdin=subprocess.PIPE,
        stdout=write_end,
        stderr=subprocess.PIPE,
    )
    os.close(write_end)
    os.close(read_end)
    _, words = server.communicate(asked, timeout=60)
    assert (server.returncode, words) == (0, b"")


@pytest.mark.parametrize("words", [("--help",), ("docs",), ("--json", "doctor"), ("debug", "--help")])
def test_a_command_in_a_pipe_ends_quietly(home, words):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [PROGRAM, *words], cwd=home.folder, env=home.environment, stdout=write_end, stderr=subprocess.PIPE, timeout=60
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def in_a_closed_pipe(home, *words, **options):
    """The status, as a shell says it, of a program that prints for ever into a pipe from which one line is read."""
    program = subprocess.Popen(
        [*map(str, words)],
        cwd=home.folder,
        env=home.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    assert program.stdout.readline() == b"line\n"
    program.stdout.close()
    words = program.stderr.read()
    program.stderr.close()
    status = program.wait(60)
    return (status if status >= 0 else 128 - status), words


ENDLESS = {
    "yes": ("sh", "-c", "while echo line; do :; done"),
    "Python": (sys.executable, "-c", "import sys\nwhile True: print('line', flush=True)"),
    "SIGPIPE as in C": (
        sys.executable,
        "-c",
        "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: print('line', flush=True)",
    ),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("program", ENDLESS)
def test_a_recorded_program_meets_the_closed_pipe_itself(home, program, unbuffered):
    home.environment["PYTHONUNBUFFERED"] = unbuffered  # Python takes an empty one for none
    plain = in_a_closed_pipe(home, *ENDLESS[program])
    status, words = in_a_closed_pipe(home, PROGRAM, "record", "--", *ENDLESS[program])
    words = b"".join(line for line in words.splitlines(keepends=True) if not line.startswith(b"lockstep: "))
    assert (status, words) == plain
    (run,) = json.loads(home.run("--json", "runs", "list").stdout)["runs"]
    assert run["status"] in ("killed", "failed"), "and its run is finished"


BY_SIGPIPE = "kill -PIPE $$; echo still here"


@pytest.mark.parametrize("ignored", [False, True])
def test_started_programs_find_the_signal_as_without_us(home, ignored):
    def inherit():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL)

    options = dict(
        cwd=home.folder, env=home.environment, capture_output=True, preexec_fn=inherit, restore_signals=False
    )
    plain = subprocess.run(["sh", "-c", BY_SIGPIPE], **options)
    recorded = subprocess.run([PROGRAM, "record", "--", "sh", "-c", BY_SIGPIPE], **options)
    assert plain.stdout == recorded.stdout == (b"still here\n" if ignored else b"")


def test_programs_of_the_service_find_the_signal_as_without_it(home):
    home.ensure()
    recorded = home.call("record", program=["sh", "-c", BY_SIGPIPE], cwd=str(home.folder))
    assert recorded["status"] == "killed", recorded


LEFT_ALONE = """\
import signal, socket, sys

from lockstep.agent import channel, native

if sys.argv[1] == "pure":
    native.module = None
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
listener = socket.socket(socket.AF_UNIX)
listener.bind("here")
listener.listen()
line = channel.Channel("here")
listener.accept()[0].close()
print([line.send({"event": "output", "text": "x" * 1000}) for _ in range(10)][-1])
"""


@pytest.mark.parametrize("form", ["pure", "extension"])
def test_a_program_outlives_its_service_whatever_it_does_with_the_signal(home, form):
    home.environment["PYTHONPATH"] = str(ROOT / "python")
    words = [sys.executable, home.write("alone.py", LEFT_ALONE), form]
    done = subprocess.run(words, cwd=home.folder, env=home.environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
