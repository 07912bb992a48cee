"""What a client without the token can make the service do: nothing that lasts."""

import json
import pathlib
import resource
import socket
import subprocess
import threading
import time

import pytest
from debug_service import PROGRAM, Home, wait_until
from system import resident_bytes

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("bounds"))
    made.ensure()
    yield made
    made.close()


def answer(home, data, timeout=20):
    """Everything that the service sends until it hangs up."""
    with socket.create_connection(("127.0.0.1", home.service()["port"]), timeout=timeout) as connection:
        try:
            connection.sendall(data)
        except OSError:  # it has stopped reading
            pass
        received = b""
        try:
            while piece := connection.recv(65536):
                received += piece
        except OSError:
            pass
        return received


def request_line(method="GET", path="/v1/health"):
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()


def test_headers_end_at_64_kib_without_a_token(home):
    few = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 3000) for i in range(20))  # 60 KB
    assert b" 401 " in answer(home, request_line() + few + b"\r\n").split(b"\r\n")[0]
    many = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 3000) for i in range(25))  # 75 KB
    assert b" 431 " in answer(home, request_line() + many + b"\r\n").split(b"\r\n")[0]
    small = b"".join(b"a:b\r\n" for _ in range(101))  # a node of memory each
    assert b" 431 " in answer(home, request_line() + small + b"\r\n").split(b"\r\n")[0]


def test_large_headers_take_no_memory(home):
    """Four megabytes of tiny headers on forty connections at once cost the service 1.4 GB once."""
    pid = home.service()["pid"]
    assert home.http("GET", "/v1/health")[0] == 200
    before = resident_bytes(pid)
    assert before < 300e6, "an idle service is small"
    data = request_line() + b"a:b\r\n" * 800_000
    threads = [threading.Thread(target=answer, args=(home, data)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert home.http("GET", "/v1/health")[0] == 200
    wait_until(lambda: resident_bytes(pid) - before < 64e6)


def test_memory_of_large_calls_is_given_back(home):
    pid = home.service()["pid"]
    assert home.http("GET", "/v1/health")[0] == 200
    wait_until(lambda: resident_bytes(pid) < 300e6)
    before = resident_bytes(pid)
    body = "[" + ",".join(["{}"] * 1_000_000) + "]"  # just below 4 MiB, and many times that as a tree
    for _ in range(2):
        assert home.http("POST", "/v1/debug/clear", body, {"Content-Type": "application/json"})[0] == 400
    wait_until(lambda: resident_bytes(pid) - before < 100e6, 30)


def test_a_burst_of_clients_is_answered(home):
    """All connect before any of them speaks, as on a busy machine: a newcomer is not sent away for the next one."""
    port = home.service()["port"]
    head = f"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {home.token()}\r\nConnection: close\r\n\r\n".encode()
    connections = []
    for _ in range(200):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        connections.append(connection)
    time.sleep(0.1)  # what the test is about: clients that are slow to speak, not a wait for the service
    answered = 0
    for connection in connections:
        connection.settimeout(30)
        connection.sendall(head)
    for connection in connections:
        answered += b" 200 " in connection.recv(65536)
        connection.close()
    assert answered == 200


STRICT = {
    "a space before the colon": b"Content-Length : 2\r\n\r\n{}",
    "a tab before the colon": b"Content-Length\t: 2\r\n\r\n{}",
    "a folded header": b"X-Long: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "bare LF": b"X: y\nContent-Length: 2\r\n\r\n{}",
    "an end of bare LF": b"X: y\n\n",
    "a CR inside": b"X: y\rz\r\nContent-Length: 2\r\n\r\n{}",
    "an empty Origin": b"Origin: \r\nContent-Length: 2\r\n\r\n{}",
    "both lengths": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    "two encodings": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": b"Host: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
    "no name": b": x\r\nContent-Length: 2\r\n\r\n{}",
    "no colon": b"Whatever\r\nContent-Length: 2\r\n\r\n{}",
    "a zero byte": b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "an escape": b"X: a\x1b[31m\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("way", STRICT)
@pytest.mark.parametrize("token", [True, False])
def test_what_two_readers_could_read_differently_is_refused(home, way, token):
    authorization = f"Authorization: Bearer {home.token()}\r\n".encode() if token else b""
    # A second request behind it, which must never be answered.
    data = request_line("POST", "/v1/debug/clear") + authorization + b"Content-Type: application/json\r\n" + STRICT[way]
    received = answer(home, data + request_line() + authorization + b"\r\n")
    assert received.startswith(b"HTTP/1.1 400 ") and received.count(b"HTTP/1.1 ") == 1, received
    assert b"Connection: close" in received


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v1/health",
        b"GET  /v1/health HTTP/1.1",
        b"GET /v1/\x01 HTTP/1.1",
        b" / HTTP/1.1",
        b"G(T / HTTP/1.1",
        b"\x80",
    ],
)
def test_request_lines_are_strict(home, line):
    received = answer(home, line + b"\r\nHost: 127.0.0.1\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 400 ") and received.count(b"HTTP/1.1 ") == 1, received


def test_a_refused_expectation_has_one_answer(home):
    expecting = b"Expect: 100-continue\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n"
    received = answer(home, request_line("POST", "/v1/debug/clear") + expecting)
    assert received.count(b"HTTP/1.1 ") == 1 and received.startswith(b"HTTP/1.1 401 "), received
    received = answer(
        home, request_line("POST", "/v1/debug/clear") + b"Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert received.count(b"HTTP/1.1 ") == 1 and received.startswith(b"HTTP/1.1 417 "), received


@pytest.mark.parametrize("token", [True, False])
def test_no_answer_is_cut_into_ranges(home, token):
    """A line of ranges was answered with forty times as much."""
    authorization = f"Authorization: Bearer {home.token()}\r\n".encode() if token else b""
    ranges = b"Range: bytes=" + b",".join([b"0-70"] * 1500) + b"\r\n\r\n"
    received = answer(home, request_line() + authorization + ranges)
    assert received.split(b"\r\n")[0].split()[1] == (b"400" if token else b"401"), received[:200]
    assert len(received) < 2000 and json.loads(received.partition(b"\r\n\r\n")[2])["error"], received[:500]


def test_those_who_dawdle_make_room(home):
    """Heads that never end, none with a token, on all threads three times over: whoever has one does not wait for their ten seconds each."""
    port = home.service()["port"]
    slow = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(150)]
    try:
        for connection in slow:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nX-Slow: ")
        assert home.http("GET", "/v1/health", timeout=25)[0] == 200
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize("megabytes", [300, 350, 400, 500, 700])
def test_a_service_that_cannot_start_its_threads_says_so(tmp_path, megabytes):
    """It announces itself and answers, or it ends with words: never one without the other."""
    other = Home(tmp_path)

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    process = subprocess.Popen(
        [PROGRAM, "serve"],
        env=other.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    try:
        described = other.home / "service" / "service.json"
        wait_until(lambda: described.exists() or process.poll() is not None, 60)
        if process.poll() is None:
            assert other.http("GET", "/v1/health")[0] == 200
            process.terminate()
            assert process.wait(20) == 0
        else:
            assert process.returncode in (3, 127), process.stderr.read()  # 127: the loader itself has no room
            assert process.returncode == 127 or "lockstep: [" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
