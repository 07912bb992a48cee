"""The whole way, from a client through the service into the program, on each Python found: the other tests of the service use this one."""

import os
import pathlib
import signal

import pytest
from debug_client import pythons
from debug_service import PROGRAM, Home, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
_PYTHONS = {f"{major}.{minor}": path for (major, minor), path in sorted(pythons().items())}

WORK = """\
import threading

def scale(step):
    factor = 10 * step
    return factor

def turns(n):
    for step in range(n):
        yield scale(step)

total = sum(turns(4))
thread = threading.Thread(target=scale, args=(7,), name="worker")
thread.start()
thread.join()
print("total", total)
"""


@pytest.fixture(params=_PYTHONS.values(), ids=_PYTHONS)
def home(request, tmp_path):
    made = Home(tmp_path)
    made.python = request.param
    yield made
    made.close()


def line(answer):
    return answer["stop"]["location"]["line"]


def value(home, expression, **more):
    return home.call("debug/eval", expression=expression, **more)["value"]["value"]


def test_a_session_from_start_to_end(home, request):
    began = home.call_started(home.write("work.py", WORK))
    assert (
        began["python"].startswith(request.node.callspec.id)
        and began["native"] is True
        and began["stop"]["reason"] == "entry"
    )
    home.call("debug/break", where="scale", once=True)
    home.call("debug/break", where="work.py:5", **{"if": "step == 2"})
    assert line(home.call("debug/continue")) == 4  # the function, once
    assert line(home.call("debug/continue")) == 5 and value(home, "factor") == 20 and value(home, "n", frame=1) == 4
    assert [one["location"]["function"] for one in home.get("debug/stack")["frames"]] == ["scale", "turns", "<module>"]
    home.call("debug/set", name="factor", value="1000")
    assert {one["name"] for one in home.get("debug/vars")["variables"]} == {"step", "factor"}
    back = home.call("debug/finish")
    assert back["stop"]["location"]["function"] == "turns" and back["stop"]["return_value"]["value"] == 1000
    assert line(home.call("debug/next")) in (8, 9)
    home.call("debug/break", where="return factor", **{"if": "step == 7"})
    assert home.call("debug/continue")["stop"]["thread"]["name"] == "worker"
    assert home.call("debug/continue")["end"]["how"] == "finished"
    assert home.get("debug/log")["lines"] == ["total 1040"]


def test_an_uncaught_exception_and_a_crash(home):
    script = home.write(
        "ends.py",
        "import sys\ndef inner(x):\n    y = x + 1\n    if y > 5: __import__('ctypes').string_at(0)\n    raise ValueError('bad')\ninner(int(sys.argv[1]))\n",
    )
    home.call_started(script, arguments=["4"], run=True)
    stopped = home.get("debug/wait")
    assert stopped["stop"]["reason"] == "exception" and line(stopped) == 5 and value(home, "y") == 5
    ended = home.call("debug/continue")["end"]
    assert (ended["how"], ended["exit_code"], ended["location"]["line"]) == ("exception", 1, 5)
    home.call_started(script, arguments=["5"], run=True)
    ended = home.get("debug/wait")["end"]
    assert (ended["how"], ended["signal"]) == ("signal", "SIGSEGV") and any(
        one["line"] == 4 for one in [ended["location"], *ended["stack"]]
    )


def test_a_pause_calls_counted_and_an_end(home):
    home.write("busy.py", "def f(n):\n    return n + 1\n")
    script = home.write("spin.py", "import busy\nn = 0\nwhile n >= 0:\n    n = busy.f(n)\nprint('out')\n")
    home.call_started(script, run=True)
    assert home.call("debug/pause")["stop"]["reason"] == "pause"
    assert (
        home.get("debug/files", filter="busy")["calls_counted"] is False
        and home.call("debug/count")["calls_counted"] is True
    )
    assert home.call("debug/continue", max_wait=0.2)["state"] == "running"
    wait_until(lambda: any(file["calls"] > 100 for file in home.get("debug/files", filter="busy")["files"]))
    home.call("debug/pause")
    (busy,) = home.get("debug/files", filter="busy")["files"]
    assert busy["calls"] > 100 and busy["functions_run"] == 1
    while home.get("debug/location")["location"]["function"] != "<module>":
        home.call("debug/finish")
    home.call("debug/set", name="n", value="-5")
    assert home.call("debug/continue")["end"]["how"] == "finished" and home.get("debug/log")["lines"] == ["out"]


def test_the_next_service_takes_the_program_over(home):
    home.call_started(home.write("work.py", WORK))
    home.call("debug/break", where="work.py:5")
    home.call("debug/continue")
    service = home.service()["pid"]
    os.kill(service, signal.SIGKILL)
    wait_until(lambda: not alive(service))
    home.ensure()
    assert home.get("debug/status")["stop"]["location"]["line"] == 5 and value(home, "factor") == 0
    assert line(home.call("debug/continue")) == 5 and value(home, "factor") == 10
    home.call("debug/terminate")
