"""The service is killed in the middle of a session: the program waits for the next one, goes on or ends as configured, the
trace is whole, and the next service takes over what is left."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from debug_service import PROGRAM, Home, alive, wait_until
from system import holders

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

WORK = """\
import pathlib, sys, time

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)

print("before")
wait_for("go")
print("after")
wait_for("end")
print("done", flush=True)
sys.exit(3)
"""


def kill_service(home):
    pid = home.service()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))


def left_alone(home, *options):
    """A program that has printed a line and lost its service; it goes on without, unless told otherwise."""
    options = options or ("--on-disconnect", "continue")
    began = home.start(home.write("work.py", WORK), "--size", "7", options=options)
    home.debug("break", "work.py:11", "--if", "1 + 1 == 2")
    home.debug("break", "work.py:9")
    home.debug("remove", "work.py:9")
    assert home.debug("continue", "--max-wait", "0.1")["state"] == "running"
    wait_until(lambda: home.debug("log")["lines"] == ["before"])
    kill_service(home)
    return began


def trace_of(began):
    return [json.loads(line) for line in pathlib.Path(began["trace"]).read_text().splitlines()]


def test_the_next_service_takes_the_program_over(home):
    began = left_alone(home)
    (home.folder / "go").touch()
    wait_until(lambda: "after" in pathlib.Path(began["output"]).read_text())
    status = home.debug("status")
    assert status["state"] == "detached" and status["pid"] == began["pid"] and status["session"] == "work"
    error = home.error("eval", "1")
    assert error["code"] == "conflict" and "debug terminate" in error["message"]
    wait_until(lambda: home.debug("log")["lines"] == ["before", "after"])
    (home.folder / "end").touch()
    ended = home.debug("wait")
    assert ended["state"] == "ended" and (ended["end"]["how"], ended["end"]["exit_code"]) == ("sys_exit", 3)
    lines = trace_of(began)
    assert [line["text"] for line in lines if line["kind"] == "output" and line["source"] == "service"] == [
        "before",
        "after",
        "done",
    ]
    assert [line["kind"] for line in lines][-1] == "end" and {
        "start",
        "stop",
        "breakpoint",
        "resume",
        "exit",
        "adopted",
    } <= {line["kind"] for line in lines}
    to = home.folder / "trace.json"
    home.debug("trace", "export", "--to", to)
    assert json.loads(to.read_text())["output"] == ["before", "after", "done"]


def test_it_can_be_restarted_with_its_breakpoints(home):
    left_alone(home)
    assert home.debug("status")["state"] == "detached"
    (home.folder / "go").touch()
    (home.folder / "end").touch()
    again = home.debug("restart")
    assert again["stop"]["reason"] == "entry" and again["arguments"] == ["--size", "7"] and again["session"] == "work"
    assert [one["where"].rsplit("/")[-1] for one in home.debug("breaks")["breakpoints"]] == ["work.py:11"]
    stopped = home.debug("continue")
    assert stopped["stop"]["location"]["line"] == 11 and stopped["stop"]["reason"] == "breakpoint"


def test_it_can_be_ended(home):
    began = left_alone(home)
    assert home.debug("terminate")["state"] == "ended"
    assert not alive(began["pid"])
    assert home.debug("status")["end"]["how"] == "terminated"


def test_an_end_that_nobody_saw_is_told_by_what_was_left(home):
    began = left_alone(home)
    (home.folder / "go").touch()
    (home.folder / "end").touch()
    wait_until(lambda: not alive(began["pid"]))
    wait_until(lambda: home.debug("status")["state"] == "ended")
    end = home.debug("status")["end"]
    assert (end["how"], end["exit_code"]) == ("sys_exit", 3)
    assert home.debug("log")["lines"] == ["before", "after", "done"]


def test_a_program_killed_meanwhile_has_no_exit_code(home):
    began = left_alone(home)
    os.kill(began["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(began["pid"]))
    wait_until(lambda: home.debug("status")["state"] == "ended")
    end = home.debug("status")["end"]
    assert end["how"] == "unseen" and "exit_code" not in end and end["location"]["file"].endswith("work.py")


def test_configured_to_end_it_ends(home):
    began = left_alone(home, "--on-disconnect", "terminate")
    wait_until(lambda: not alive(began["pid"]))
    assert pathlib.Path(began["output"]).read_text() == "before\n"
    wait_until(lambda: home.debug("status")["state"] == "ended")
    assert home.debug("status")["end"]["how"] == "terminated"


def test_another_process_of_the_same_number_is_left_alone(home):
    began = left_alone(home)
    os.kill(began["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(began["pid"]))
    record = pathlib.Path(began["trace"]).parent / "session.json"
    stranger = {**json.loads(record.read_text()), "pid": os.getpid()}  # as if the system had used the number again
    record.write_text(json.dumps(stranger))
    wait_until(lambda: home.debug("status")["state"] == "ended")
    home.debug("terminate", "--force")
    assert alive(os.getpid())


def test_a_damaged_record_does_not_stop_the_service(home):
    for name, text in (
        ("20260101-000000-torn", "{"),
        ("20260101-000001-list", "[]"),
        ("20260101-000002-odd", '{"state": 5, "pid": "x", "request": []}'),
    ):
        folder = home.home / "sessions" / name
        folder.mkdir(parents=True)
        (folder / "session.json").write_text(text)
    assert home.debug("sessions")["total"] == 3
    assert home.start(home.write("fine.py", "x = 1\n"))["state"] == "stopped"


def test_stopping_the_service_leaves_the_program(home):
    began = home.start(home.write("work.py", WORK), options=["--run"])
    home.run("serve", "--stop")
    assert alive(began["pid"])
    assert home.debug("status")["state"] == "running"
    home.debug("terminate", "--force")
    assert not alive(began["pid"])


INSIDE = """\
def scale(step):
    factor = 10 * step
    return factor

total = 0
for step in range(4):
    total += scale(step)
print("total", total)
"""


def test_a_stopped_program_is_looked_into_by_the_next_service(home):
    began = home.start(home.write("inside.py", INSIDE))
    home.debug("break", "inside.py:3", "--if", "step > 0")
    before = home.debug("continue")
    for _ in range(2):
        kill_service(home)
        status = home.debug("status")
        assert (status["state"], status["pid"], status["stops"]) == ("stopped", began["pid"], 2)
        assert status["stop"]["location"] == before["stop"]["location"] and status["stop"]["breakpoints"] == [1]
        assert home.debug("eval", "step + factor")["value"]["value"] == 11
    home.debug("set", "factor", "1000")
    assert [one["id"] for one in home.debug("breaks")["breakpoints"]] == [1]
    stopped = home.debug("continue")  # the same breakpoint, in the same program
    assert stopped["stop"]["reason"] == "breakpoint" and home.debug("eval", "step")["value"]["value"] == 2
    home.debug("remove", "1")
    ended = home.debug("continue")
    assert ended["end"]["how"] == "finished" and home.debug("log")["lines"] == ["total 1050"]
    kinds = [line["kind"] for line in trace_of(began)]
    assert (
        kinds.count("adopted") == kinds.count("reconnected") == 2 and kinds.count("start") == 1 and kinds[-1] == "end"
    )


def test_a_breakpoint_holds_while_there_is_no_service(home):
    began = left_alone(home, "--on-disconnect", "wait")
    (home.folder / "go").touch()
    (home.folder / "end").touch()
    wait_until(lambda: trace_of(began)[-1]["kind"] == "stop")
    assert pathlib.Path(began["output"]).read_text() == "before\nafter\n"
    waited = home.debug("wait")
    assert (
        waited["state"] == "stopped"
        and waited["stop"]["location"]["line"] == 11
        and waited["stop"]["reason"] == "breakpoint"
    )
    assert home.debug("continue")["end"]["how"] == "sys_exit"
    assert home.debug("log")["lines"] == ["before", "after", "done"]


def test_why_a_breakpoint_never_hit_is_known_after_an_end_that_nobody_saw(home):
    began = home.start(home.write("work.py", WORK))
    home.debug("break", "work.py:11", "--if", "1 + 1 == 3")
    assert home.debug("continue", "--max-wait", "0.1")["state"] == "running"
    kill_service(home)
    (home.folder / "go").touch()
    (home.folder / "end").touch()
    wait_until(lambda: not alive(began["pid"]))
    wait_until(lambda: home.debug("status")["state"] == "ended")
    assert home.debug("status")["end"]["how"] == "sys_exit"
    assert home.debug("why", "1")["causes"][0]["cause"] == "condition_false"
    assert home.debug("breaks")["breakpoints"][0]["reached"] == 1


def test_several_sessions_come_back_and_the_last_is_the_default(home):
    for name in ("one", "two"):
        home.start(home.write("inside.py", INSIDE), options=["--name", name])
    home.debug("next", "--session", "one")
    kill_service(home)
    assert {(one["session"], one["state"]) for one in home.debug("sessions")["sessions"]} == {
        ("one", "stopped"),
        ("two", "stopped"),
    }
    assert home.debug("status")["session"] == "two"
    assert home.debug("location", "--session", "one")["location"]["line"] == 5
    assert home.debug("next", "--session", "one")["stop"]["reason"] == "step"


def test_the_folder_s_name_may_be_too_long_for_a_socket(tmp_path):
    home = Home(tmp_path / ("long" * 30))
    home.folder.mkdir()
    try:
        began = home.start(home.write("inside.py", INSIDE))
        kill_service(home)
        assert home.debug("eval", "1 + 1")["value"]["value"] == 2
        assert sorted(path.name for path in pathlib.Path(began["trace"]).parent.glob("agent.*")) == ["agent.token"]
    finally:
        home.close()


def test_who_does_not_know_the_token_is_not_let_in(home):
    began = home.start(home.write("inside.py", INSIDE))
    kill_service(home)
    token = pathlib.Path(began["trace"]).parent / "agent.token"
    kept = token.read_text()
    token.write_text("another")
    wait_until(lambda: home.debug("status")["state"] == "detached")
    assert home.error("eval", "1")["code"] == "conflict"
    token.write_text(kept)
    kill_service(home)
    assert home.debug("status")["state"] == "stopped" and home.debug("eval", "1")["value"]["value"] == 1


def lost_before_it_called(home, *options):
    """A program whose Python was still starting when its service was killed; its session's folder."""
    slow = home.write(
        "slow_python", f'#!/bin/sh\nwhile [ ! -e start ]; do sleep 0.01; done\nexec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    home.ensure()
    asks = subprocess.Popen([PROGRAM, "debug", "start", "--python", str(slow), *options, str(home.write("inside.py", INSIDE))], cwd=home.folder,
                            env=home.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    wait_until(lambda: list((home.home / "sessions").glob("*/session.json")))
    kill_service(home)
    asks.wait(30)
    (home.folder / "start").touch()
    (folder,) = (home.home / "sessions").iterdir()
    return folder


def test_lost_before_it_called_the_program_waits_for_the_next_service(home):
    folder = lost_before_it_called(home)
    wait_until(lambda: "waits for the next one" in (folder / "output.log").read_text())
    status = home.debug("status")
    assert status["state"] == "stopped" and status["stop"]["reason"] == "entry"
    home.debug("break", "inside.py:3", "--if", "step == 2")
    home.debug("continue")
    assert home.debug("eval", "factor")["value"]["value"] == 20
    home.debug("clear")
    assert home.debug("continue")["end"]["how"] == "finished" and home.debug("log")["lines"][-1] == "total 60"


def test_lost_before_it_called_the_program_runs_or_ends_as_configured(home):
    for wanted, said in (("continue", "total 60"), ("terminate", "does not run without the debugger")):
        folder = lost_before_it_called(home, "--on-disconnect", wanted)
        pid = json.loads((folder / "session.json").read_text())["pid"]
        wait_until(lambda: not alive(pid))
        output = (folder / "output.log").read_text()
        assert said in output and ("total" in output) == (wanted == "continue")
        wait_until(lambda: home.debug("status")["state"] == "ended")
        home.debug("terminate", "--forget")
        (home.folder / "start").unlink()


def test_a_lost_connection_comes_back_to_the_same_service(home):
    """Not the service but the connection dies, at a stop and while the program runs: it calls again, and nothing is forgotten."""
    began = home.start(home.write("inside.py", INSIDE))
    service = home.service()["pid"]
    home.debug("break", "inside.py:3")
    home.debug("continue")
    cut = "import os, socket, stat\nfor fd in os.listdir('/dev/fd'):\n    try:\n        if stat.S_ISSOCK(os.fstat(int(fd)).st_mode): socket.socket(fileno=os.dup(int(fd))).shutdown(2)\n    except OSError: pass"
    for turn in range(3):
        error = home.error("eval", cut)
        assert error["code"] == "conflict" and "connection" in error["message"]
        assert home.debug("status")["state"] == "stopped"  # who asks waits until it has called again
        assert home.debug("eval", "step")["value"]["value"] == turn
        home.debug("continue")
    assert home.service()["pid"] == service and home.debug("status")["stops"] == 5
    kinds = [line["kind"] for line in trace_of(began)]
    assert kinds.count("reconnected") == 3 and "adopted" not in kinds
    home.debug("clear")
    assert home.debug("continue")["end"]["how"] == "finished" and home.debug("log")["lines"] == ["total 60"]


def test_a_service_that_has_not_quite_ended_is_waited_for(home):
    """It was older than the program, or idle: it has taken its files away and still holds the home."""
    folder = home.home / "service"
    folder.mkdir(parents=True)
    held = folder / "serving"
    with open(held, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asking = subprocess.Popen([PROGRAM, "--json", "debug", "sessions"], env=home.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)  # fmt: skip
        wait_until(lambda: asking.poll() is not None or holders(held) - {os.getpid()})
    said, _ = asking.communicate(timeout=60)
    assert asking.returncode == 0 and json.loads(said)["sessions"] == [], said
