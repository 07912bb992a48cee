"""REST: the table over HTTP, who is let in, and that no request makes it fall over."""

import http.client
import json
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from debug_service import PROGRAM, Home, wait_until
from image_service import EventStream
from system import listens_at, thread_count

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("rest"))
    made.ensure()
    yield made
    made.close()


def test_only_its_user_can_read_the_token(home):
    for path, mode in (
        (home.home / "service", 0o700),
        (home.home / "service" / "token", 0o600),
        (home.home / "service" / "service.json", 0o600),
    ):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert len(home.token()) == 64


def test_it_listens_on_loopback_only(home):
    assert listens_at(home.service()["port"]) == {"127.0.0.1"}


REFUSED = {
    "no token": ({"Authorization": None}, 401),
    "wrong token": ({"Authorization": "Bearer " + "0" * 64}, 401),
    "empty token": ({"Authorization": "Bearer "}, 401),
    "start of the token": ("cut", 401),
    "basic": ({"Authorization": "Basic dXNlcjpwYXNz"}, 401),
    "foreign host": ({"Host": "evil.example"}, 403),
    "rebound host": ({"Host": "127.0.0.1.evil.example"}, 403),
    "foreign origin": ({"Origin": "https://evil.example"}, 403),
    "null origin": ({"Origin": "null"}, 403),
    "other port's origin": ({"Origin": "http://localhost:1"}, 403),
    "https origin": ({"Origin": "https://127.0.0.1"}, 403),
}


@pytest.mark.parametrize("way", REFUSED)
@pytest.mark.parametrize(
    "path", ["/v1/health", "/v1/openapi.json", "/v1/debug/status", "/v1/debug/events", "/mcp", "/nothing"]
)
def test_nobody_gets_in(home, way, path):
    headers, expected = REFUSED[way]
    if headers == "cut":
        headers = {"Authorization": f"Bearer {home.token()[:-1]}"}
    status, _, answer = home.http("GET", path, headers=headers)
    assert status == expected and set(answer["error"]) == {"code", "message", "hint", "type", "param"}


def test_the_own_origin_is_let_in(home):
    port = home.service()["port"]
    assert home.http("GET", "/v1/health", headers={"Origin": f"http://127.0.0.1:{port}"})[0] == 200
    assert home.http("GET", "/v1/health", headers={"Host": f"localhost:{port}"})[0] == 200


def test_it_refuses_to_listen_elsewhere_without_a_token(tmp_path):
    other = Home(tmp_path)
    done = other.run("serve", "--host", "0.0.0.0", check=False, timeout=20)
    assert done.returncode == 2 and "--token-file" in done.stderr


def test_a_token_that_others_can_read_is_refused(tmp_path):
    other = Home(tmp_path)
    token = other.write("token", "0123456789abcdef0123456789abcdef\n")
    token.chmod(0o644)
    done = other.run("serve", "--host", "0.0.0.0", "--token-file", token, check=False, timeout=20)
    assert done.returncode == 2 and "chmod 600" in done.stderr
    token.write_text("short\n")
    token.chmod(0o600)
    done = other.run("serve", "--token-file", token, check=False, timeout=20)
    assert done.returncode == 2 and "too short" in done.stderr


def test_elsewhere_names_that_dns_can_give_are_refused(tmp_path):
    other = Home(tmp_path)
    token = other.write("token", "0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    process = subprocess.Popen(
        [PROGRAM, "serve", "--host", "0.0.0.0", "--token-file", token],
        env=other.environment,
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (other.home / "service" / "service.json").exists())
        port = other.service()["port"]
        assert other.token() == "0123456789abcdef0123456789abcdef"

        def status(**headers):
            return other.http("GET", "/v1/health", headers=headers)[0]

        assert status(Host=f"192.168.7.7:{port}") == 200 and status(Host=f"{socket.gethostname()}:{port}") == 200
        assert (
            status(Host="evil.example") == 403
            and status(Host=f"evil.example:{port}") == 403
            and status(Host="192.168.7.7.evil.example") == 403
        )
        assert status(Host=f"192.168.7.7:{port}", Origin=f"http://192.168.7.7:{port}") == 200
        assert status(Host=f"192.168.7.7:{port}", Origin=f"http://10.0.0.1:{port}") == 403  # another machine's page
        assert status(Host=f"192.168.7.7:{port}", Authorization=None) == 401
    finally:
        process.terminate()
        process.wait(20)


def raw(home, data, timeout=20):
    with socket.create_connection(("127.0.0.1", home.service()["port"]), timeout=timeout) as connection:
        try:
            connection.sendall(data)
        except OSError:
            pass
        received = b""
        try:
            while piece := connection.recv(65536):
                received += piece
        except OSError:
            pass
        return received


def head(home, method="POST", path="/v1/debug/clear"):
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {home.token()}\r\n".encode()


BAD = {
    "chunked": (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b" 411 "),
    "no length": (b"\r\n", b" 411 "),
    "huge length": (b"Content-Length: 99999999999\r\n\r\n", b" 413 "),
    "negative length": (b"Content-Length: -1\r\n\r\n", b" 411 "),
    "compressed": (b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", b" 411 "),
    "range": (b"Range: bytes=0-1,2-3\r\nContent-Length: 2\r\n\r\n{}", b" 400 "),
    "no json": (b"Content-Type: application/json\r\nContent-Length: 3\r\n\r\n{\xff}", b" 400 "),
    "deep json": (b"Content-Type: application/json\r\nContent-Length: 20000\r\n\r\n" + b"[" * 20000, b" 400 "),
    "text": (b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", b" 415 "),
}


@pytest.mark.parametrize("way", BAD)
def test_bad_requests_are_refused(home, way):
    rest, expected = BAD[way]
    # Otherwise the connection stays open for the next request, and `raw` reads until its end.
    assert expected in raw(home, head(home) + b"Connection: close\r\n" + rest).split(b"\r\n")[0]
    assert home.http("GET", "/v1/health")[0] == 200


def test_headers_without_end_are_cut_off(home):
    received = raw(
        home,
        b"GET /v1/health HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 4000) for i in range(5000)),
        timeout=30,
    )
    assert b" 200 " not in received
    assert home.http("GET", "/v1/health")[0] == 200


def answers_on(connection, count):
    """Status lines of so many answers on one connection."""
    data, found = b"", []
    while len(found) < count:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
        found = re.findall(rb"HTTP/1\.1 [^\r]*", data)  # the second one follows the first one's body without a break
    return found


def test_a_connection_serves_several_requests(home):
    with socket.create_connection(("127.0.0.1", home.service()["port"]), timeout=20) as connection:
        for _ in range(3):
            connection.sendall(head(home, "GET", "/v1/health") + b"\r\n")
            assert answers_on(connection, 1) == [b"HTTP/1.1 200 OK"]
        connection.sendall((head(home, "GET", "/v1/health") + b"\r\n") * 2)  # without waiting for the first answer
        assert len(answers_on(connection, 2)) == 2


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(home):
    body = b'{"session": "nothing"}'
    with socket.create_connection(("127.0.0.1", home.service()["port"]), timeout=20) as connection:
        connection.sendall(
            head(home)
            + b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert answers_on(connection, 1)[0].startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert answers_on(connection, 1)[0].startswith(b"HTTP/1.1 404")


HIDDEN = {
    "behind a refused one": lambda home: head(home).replace(b"Bearer ", b"Bearer x") + b"Content-Length: 200\r\n\r\n",
    "in the body of a GET": lambda home: head(home, "GET", "/v1/health") + b"Content-Length: 200\r\n\r\n",
    "behind a chunked one": lambda home: head(home) + b"Transfer-Encoding: chunked\r\n\r\n",
    "behind a range": lambda home: head(home, "GET", "/v1/health") + b"Range: bytes=0-1\r\n\r\n",
}


@pytest.mark.parametrize("way", HIDDEN)
def test_what_follows_a_request_that_was_not_read_is_no_request(home, way):
    received = raw(home, HIDDEN[way](home) + head(home, "GET", "/v1/health") + b"\r\n")
    assert received.count(b"HTTP/1.1 ") == 1, received


def test_idle_connections_make_room(home):
    port = home.service()["port"]
    idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(70)]
    try:
        assert home.http("GET", "/v1/health", timeout=20)[0] == 200
    finally:
        for connection in idle:
            connection.close()


def test_a_request_that_never_ends_is_given_up(home):
    with socket.create_connection(("127.0.0.1", home.service()["port"]), timeout=60) as connection:
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: 127")
        while connection.recv(4096):  # times out, and fails, where nobody hangs up
            pass


def test_unknown_things_name_the_nearest(home):
    status, _, answer = home.http("POST", "/v1/debug/break", {"were": "x.py:1"})
    assert status == 400 and answer["error"]["hint"] == "where"
    assert home.http("GET", "/v1/debug/statsu")[0] == 404
    status, headers, _ = home.http("DELETE", "/v1/debug/status", "")
    assert status == 405 and headers["Allow"] == "GET"


@pytest.mark.parametrize("method, query, body", [("GET", "?sessoin=x", None), ("POST", "", {"sessoin": "x"})])
def test_a_wrong_argument_lists_the_right_ones(home, method, query, body):
    operation = "debug/stack" if method == "GET" else "debug/continue"
    status, _, answer = home.http(method, f"/v1/{operation}{query}", body)
    expected = "session, thread, from, limit" if method == "GET" else "session, thread, max_wait"
    assert status == 400 and answer["error"]["message"].endswith(
        f'there is no argument "sessoin"; expected {expected}'
    ), answer
    assert answer["error"]["hint"] == "session"


def test_a_missing_argument_lists_them_all(home):
    status, _, answer = home.http("GET", "/v1/compare?reference=a")
    assert (
        status == 400
        and "argument 'candidate' is missing" in answer["error"]["message"]
        and "reference, candidate, only" in answer["error"]["hint"]
    )


def test_a_session_over_http_with_events(home):
    script = home.write("steps.py", "import time\nx = 1\nprint('hello')\nx = 2\n")
    began = home.call("debug/start", script=str(script), python=sys.executable, cwd=str(home.folder))
    session = began["id"]
    seen = []

    def listen():
        where = home.service()
        connection = http.client.HTTPConnection("127.0.0.1", where["port"], timeout=60)
        connection.request(
            "GET", f"/v1/debug/events?session={session}", headers={"Authorization": f"Bearer {home.token()}"}
        )
        answer = connection.getresponse()
        assert answer.getheader("Content-Type").startswith("text/event-stream")
        seen.extend(
            line.removeprefix("event: ") for line in answer.read().decode().splitlines() if line.startswith("event: ")
        )

    listener = threading.Thread(target=listen)
    listener.start()
    home.call("debug/break", where=f"{script}:4", session=session)
    assert home.call("debug/continue", session=session)["stop"]["location"]["line"] == 4
    assert home.get("debug/vars", session=session)["variables"]
    assert home.http("GET", "/v1/debug/vars?limit=nothing")[0] == 400
    assert home.call("debug/continue", session=session)["state"] == "ended"
    listener.join(30)
    assert not listener.is_alive() and {"hello", "stopped", "output", "ended"} <= set(seen)


def test_streams_of_a_session_cost_no_thread(home):
    script = home.write("waits.py", "import time\ntime.sleep(600)\n")
    session = home.call("debug/start", script=str(script), python=sys.executable, cwd=str(home.folder), run=True)["id"]
    where = SimpleNamespace(port=home.service()["port"], token=home.token())
    home.get("debug/status", session=session)
    service = home.service()["pid"]
    threads = thread_count(service)
    streams = [EventStream(where, f"/v1/debug/events?session={session}") for _ in range(100)]
    assert {stream.status for stream in streams} == {200} and thread_count(service) <= threads
    home.call("debug/terminate", session=session, force=True)
    for stream in streams:
        last = None
        while event := stream.next():
            last = event
        assert last["event"] == "ended", "the stream ends with the program"
        stream.close()
    again = EventStream(
        where, f"/v1/debug/events?session={session}", headers=[("Last-Event-ID", str(int(last["id"]) - 1))]
    )
    assert again.next()["id"] == last["id"] and again.next() is None
    again.close()


def test_a_long_poll_answers_in_time_and_is_bounded(home):
    script = home.write("sleeps.py", "import time\ntime.sleep(600)\n")
    session = home.call("debug/start", script=str(script), python=sys.executable, cwd=str(home.folder), run=True)["id"]
    assert home.get("debug/wait", session=session, max_wait=0.2)["state"] == "running"
    answers = []
    threads = [
        threading.Thread(
            target=lambda: answers.append(home.http("GET", f"/v1/debug/wait?session={session}&max_wait=20")[0])
        )
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    assert home.http("GET", "/v1/health")[0] == 200  # the waiting ones do not take all threads
    home.call("debug/terminate", session=session, force=True)
    for thread in threads:
        thread.join(40)
    assert sorted(set(answers)) in ([200], [200, 503]) and len(answers) == 40


@pytest.mark.parametrize("query", ["after=-1", "after=x", "session=nothing", "what=1", "after=99999999999999999999"])
def test_events_refuse_what_they_do_not_understand(home, query):
    status, _, answer = home.http("GET", f"/v1/debug/events?{query}")
    assert status in (400, 404) and answer["error"]["message"]


def test_a_recording_ends_with_its_time_or_its_client(home):
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert home.call("record", program=sleeps, cwd=str(home.folder), timeout=0.3)["status"] == "killed"
    connection = http.client.HTTPConnection("127.0.0.1", home.service()["port"], timeout=60)
    body = json.dumps({"program": sleeps, "cwd": str(home.folder), "name": "left"})
    connection.request(
        "POST", "/v1/record", body, {"Authorization": f"Bearer {home.token()}", "Content-Type": "application/json"}
    )
    wait_until(lambda: home.get("runs/list")["runs"][0]["status"] == "running")
    connection.close()
    wait_until(lambda: home.get("runs/list")["runs"][0]["status"] == "killed")


def test_comparing_is_there_too(home):
    np = pytest.importorskip("numpy")
    for name, value in (("a", 1.0), ("b", 2.0)):
        folder = home.folder / name
        folder.mkdir(exist_ok=True)
        np.save(folder / "latents.npy", np.full((2, 3), value, np.float32))
    assert home.get("tensors/list", path=str(home.folder / "a"))["tensors"][0]["shape"] == [2, 3]
    assert home.get("tensors/info", path=str(home.folder / "a/latents.npy"))["stats"]["max"] == 1.0
    assert home.get("tensors/show", path=str(home.folder / "b/latents.npy"), slice="[0]")["values"] == [2.0, 2.0, 2.0]
    assert (
        home.get("tensors/diff", reference=str(home.folder / "a"), candidate=str(home.folder / "b"))["verdict"]
        == "mismatch"
    )
    assert (
        home.get("compare", reference=str(home.folder / "a"), candidate=str(home.folder / "b"))["verdict"] == "mismatch"
    )
    recorded = home.call("record", program=[sys.executable, "-c", "print(1)"], cwd=str(home.folder), name="nothing")
    assert recorded["status"] == "finished"
    assert home.get("runs/list")["runs"][0]["id"] == recorded["run"]
    assert home.get("runs/show", run=recorded["run"])["summary"]["records"] == 0


def test_no_generated_request_makes_it_fall_over(home, tmp_path):
    pytest.importorskip("schemathesis")
    # A session that stands, so that more than "there is no session" is reached.
    script = home.write("stands.py", "x = 1\ny = 2\n")
    home.call("debug/start", script=str(script), python=sys.executable, cwd=str(home.folder))
    # One worker: compile() of CPython 3.11 counts its depth for all threads together and fails now and then with two.
    command = [
        str(pathlib.Path(sys.executable).parent / "schemathesis"),
        "run",
        f"http://127.0.0.1:{home.service()['port']}/v1/openapi.json",
        "-H",
        f"Authorization: Bearer {home.token()}",
        "--checks",
        "not_a_server_error,content_type_conformance,response_schema_conformance",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "5",
        "--workers",
        "1",
        "--seed",
        "1",
        "--exclude-path",
        "/v1/debug/events",  # it has no end
        "--exclude-path-regex",
        "^(/v1/(images|jobs|models|events)|/metrics)",  # test_image_openapi.py
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "60",
        "--no-color",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert home.http("GET", "/v1/health")[0] == 200
