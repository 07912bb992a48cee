"""How sessions of the Debug Adapter Protocol begin and end: launched, attached to, restarted, left, refused."""

import pathlib
import socket
import sys

import pytest
from dap_client import LOOP, DapClient, Refused, finish, launched
from debug_service import PROGRAM, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def test_a_session_of_the_terminal_is_attached_to_and_left(home):
    script = home.write("loop.py", "import time\ncount = 0\nwhile True:\n    count += 1\n    time.sleep(0.001)\n")
    home.start(script)
    home.debug("break", "loop.py:4", "--if", "count == 3")
    client = home.editor()
    set_ = client.begin("attach", breakpoints={script: [{"line": 4, "condition": "count == 50"}]}, session="loop")
    stop = client.stopped()
    assert stop["reason"] == "entry" and client.top(stop)["line"] == 1
    # The terminal goes on, and the editor sees it.
    home.debug("continue")
    assert client.event("continued")["threadId"] == stop["threadId"]
    stop = client.stopped()
    assert client.request("evaluate", expression="count", frameId=client.top(stop)["id"])["result"] == "3"
    client.request("continue", threadId=stop["threadId"])
    stop = client.stopped()
    assert stop["hitBreakpointIds"] == [set_[script][0]["id"]]
    with pytest.raises(Refused, match="no session"):
        other = home.editor()
        other.request("initialize", adapterID="x")
        other.request("attach", processId=1)
    client.request("disconnect")
    assert client.close() == 0
    status = home.debug("status")
    assert status["state"] == "running" and alive(status["pid"])
    assert len(home.debug("breaks")["breakpoints"]) == 1, "the terminal's stays, the editor's is gone"
    client = home.editor()
    client.begin("attach", processId=status["pid"])
    client.request("disconnect", terminateDebuggee=True)
    wait_until(lambda: not alive(status["pid"]))


def test_restart_keeps_breakpoints_and_terminate_ends(home):
    client, script, set_ = launched(home, LOOP, breakpoints=[{"line": 5, "condition": "step == 1"}])
    stop = client.stopped()
    first = client.request("evaluate", expression="__import__('os').getpid()", frameId=client.top(stop)["id"])["result"]
    client.request("restart")
    stop = client.stopped()
    assert stop["hitBreakpointIds"] == [set_[script][0]["id"]]
    second = client.request("evaluate", expression="(step, __import__('os').getpid())", frameId=client.top(stop)["id"])[
        "result"
    ]
    assert "1, " in second and first not in second
    assert not client.seen("terminated"), "for the editor it is one debug session"
    told = [
        (message["event"], message["body"].get("reason"))
        for message in client.log
        if message.get("event") in ("stopped", "continued", "thread")
    ]
    assert told == [
        ("thread", "started"),
        ("stopped", "breakpoint"),
        ("continued", None),
        ("thread", "exited"),
        ("thread", "started"),
        ("stopped", "breakpoint"),
    ]
    assert stop["threadId"] == 1, "an editor that still has the old main thread in view finds the new one there"
    client.request("continue", threadId=stop["threadId"])
    client.event("terminated")
    client.request("restart")  # after the end too
    stop = client.stopped()
    client.request("terminate")
    client.event("terminated")
    client.request("disconnect")
    assert client.close() == 0


def test_an_editor_that_goes_away_ends_what_it_launched(home):
    client, script, _ = launched(home, "import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.01)\n")
    client.event("output", lambda body: body["output"] == "up\n")
    pid = client.seen("process")[0]["systemProcessId"]
    assert alive(pid)
    assert client.close() == 0
    assert not alive(pid)


def test_a_port_serves_several_clients_of_this_user_and_no_browser(home):
    script = home.write("loop.py", LOOP)
    with home.adapter_at_a_port() as (_, where):
        assert where["host"] == "127.0.0.1"
        clients = [DapClient(port=where["port"]) for _ in range(2)]
        for client in clients:
            client.begin(program=str(script), python=home.python, breakpoints={script: [5]})
        stops = [client.stopped() for client in clients]
        assert {client.top(stop)["line"] for client, stop in zip(clients, stops)} == {5}
        with socket.create_connection(("127.0.0.1", where["port"]), timeout=20) as browser:
            body = b'{"seq":1,"type":"request","command":"initialize"}'
            inner = b"Content-Length: %d\r\n\r\n" % len(body) + body
            browser.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner)
            assert browser.recv(100) == b"", "hung up without a word"
        for client, stop in zip(clients, stops):
            client.request("disconnect", terminateDebuggee=True)
            client.close()


def test_a_launch_that_cannot_be_is_refused_with_a_reason(home):
    client = home.editor()
    client.request("initialize", adapterID="lockstep")
    for arguments, reason in [
        ({"program": str(home.folder / "none.py")}, "no file"),
        ({}, "program or module"),
        ({"program": "a.py", "module": "b"}, "program or module"),
        ({"program": "a.py", "args": [1]}, "list of texts"),
    ]:
        with pytest.raises(Refused, match=reason):
            client.request("launch", python=sys.executable, **arguments)
    with pytest.raises(Refused, match="no request"):
        client.request("stepBack")
    with pytest.raises(Refused, match="nothing|no program"):
        client.request("threads")
    client.send_raw(b"GET / HTTP/1.1\r\n\r\n")
    assert client.process.wait(20) == 0


def test_without_debugging_nothing_stops(home):
    client, script, set_ = launched(home, LOOP, breakpoints=[5], noDebug=True)
    assert not set_[script][0]["verified"]
    assert finish(client) == 0
    assert client.output() == "6 steps\n" and not client.seen("stopped")
