"""A debugged program that writes to its service what no part of us ever says: the service lives, and answers the next one."""

import http.client
import json
import pathlib

import pytest
from debug_service import PROGRAM, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

SPEAKS_FOR_ITS_AGENT = """
import os, stat, threading, time

def sockets():
    for name in os.listdir("/dev/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            pass

LINES = [
    '{"event": 5}', '{"event": null, "thread": []}', '{"event": {"a": 1}}', '{"event": "stopped", "thread": "x", "count": "many"}',
    '{"event": "breakpoint", "change": 3, "breakpoint": []}', '{"event": "output", "category": 1, "text": {}}', '[]', '5', '"x"', '{',
    '{"event": "x\\\\nevent: exited\\\\ndata: {}\\\\n\\\\n"}', '{"event": "odd", "number": "first"}', '{"event": "odd", "number": -5}',
] + ['{"id": %d, "ok": "yes", "result": {"resumed": "all"}}' % i for i in range(60)] + ['{"id": "1", "ok": []}']
ours = list(sockets())

def speak():
    while True:
        for fd in ours:
            try:
                os.write(fd, ("\\n".join(LINES) + "\\n").encode())
            except OSError:
                pass
        time.sleep(0.0005)

threading.Thread(target=speak, daemon=True).start()
while True:
    time.sleep(0.01)
"""


def test_a_program_that_speaks_for_its_agent_ends_no_service(home):
    home.debug(
        "start",
        "--python",
        home.python,
        "--run",
        home.write("speaks.py", SPEAKS_FOR_ITS_AGENT),
        "--max-wait",
        "1",
        check=False,
    )
    pid = home.service()["pid"]
    for words in (
        ("pause", "--max-wait", "1"),
        ("continue", "--max-wait", "0.2"),
        ("next", "--max-wait", "0.2"),
        ("continue", "--max-wait", "0.2"),
        ("eval", "1+1"),
        ("status",),
    ):
        home.run("--json", "debug", *words, check=False)  # whatever it says, in the program's name
    for after in range(3):
        home.run("--json", "debug", "continue", "--max-wait", "0.1", check=False)
    assert home.http("GET", "/v1/health")[0] == 200 and home.service()["pid"] == pid, "the same service still answers"
    home.run("debug", "terminate", "--force", check=False)
    assert home.http("GET", "/v1/health")[0] == 200 and home.service()["pid"] == pid


def test_its_events_are_numbered_and_named_by_the_service(home):
    home.debug(
        "start",
        "--python",
        home.python,
        "--run",
        home.write("speaks.py", SPEAKS_FOR_ITS_AGENT),
        "--max-wait",
        "1",
        check=False,
    )
    connection = http.client.HTTPConnection("127.0.0.1", home.service()["port"], timeout=60)
    connection.request("GET", "/v1/debug/events", headers={"Authorization": f"Bearer {home.token()}"})
    answer = connection.getresponse()
    kinds, numbers = set(), []
    while len(numbers) < 500 or not any(kind.startswith("x") for kind in kinds):
        line = answer.readline().decode()
        assert line, "the service has hung up"
        if line.startswith("event: "):
            kinds.add(line.removeprefix("event: ").rstrip("\n"))
        elif line.startswith("data: "):
            numbers.append(json.loads(line.removeprefix("data: "))["number"])
    connection.close()
    assert (
        numbers == sorted(set(numbers))
        and "exited" not in kinds
        and "x\\x0aevent: exited\\x0adata: {}\\x0a\\x0a" in kinds
    ), kinds
    home.run("debug", "terminate", "--force", check=False)


@pytest.mark.parametrize("native", ["", "0"], ids=["extension", "pure"])
def test_a_program_that_heeds_nothing_is_ended_all_the_same(home, native):
    if native:
        home.environment["LOCKSTEP_AGENT_NATIVE"] = native
    script = home.write(
        "deaf.py",
        """import signal, time
for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    try:
        while True:
            time.sleep(0.01)
    except BaseException:
        pass
""",
    )
    pid = home.start(script)["pid"]
    home.debug("continue", "--max-wait", "0")
    wait_until(lambda: "deaf" in home.run("debug", "log").stdout)
    home.debug("terminate")
    assert not alive(pid)
    assert home.debug("status")["end"]["how"] == "terminated"
