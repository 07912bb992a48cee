"""What two threads do at the same moment: requests for a thread that already goes on, a pause as it stops, a fork while another
thread tells something, an evaluation that ends as its time is up. In every Python found and without the extension."""

import json
import time

import pytest
from agent_start import SUM, start  # noqa: F401
from debug_client import Failed, program
from debug_service import wait_until


def send_together(session, *requests):
    """The agent reads them in one go: it comes to the second before the thread has done what the first asks. Their numbers."""
    first = session._numbers + 1
    session._numbers += len(requests)
    lines = [json.dumps({"id": first + at, "op": op, "args": args}) + "\n" for at, (op, args) in enumerate(requests)]
    session.socket.sendall("".join(lines).encode())
    return range(first, first + len(requests))


def refused(session, number):
    with pytest.raises(Failed) as caught:
        session.reply(number, 20)
    return caught.value.code


def test_nothing_more_is_asked_of_a_thread_that_goes_on(start):
    s = start(SUM)
    s.stopped()
    gone, asked, again = send_together(
        s, ("continue", {}), ("eval", {"expression": "1", "timeout": 0.05}), ("continue", {})
    )
    assert s.reply(gone)["resumed"]
    assert refused(s, asked) == "not_stopped" and refused(s, again) == "not_stopped"
    assert s.end()["how"] == "finished" and s.output() == "done 10 15\n"


def test_a_pause_right_after_continue_is_kept(start):
    s = start("""
        n = 0
        while n >= 0:
            n += 1
    """)
    s.stopped()
    for _ in range(3):
        gone, paused = send_together(s, ("continue", {}), ("pause", {}))
        assert s.reply(gone)["resumed"] and s.reply(paused)["pausing"]
        assert s.stopped()["reason"] == "pause" and s.ask("status")["pausing"] == []
    s.ask("set", name="n", value="-5")
    assert s.finish()["code"] == 0


def test_two_threads_are_paused_together(start, tmp_path):
    s = start("""
        import os, threading
        def spin():
            n = 0
            while not os.path.exists("go"):
                n += 1
        other = threading.Thread(target=spin)
        other.start()
        open("began", "w").close()
        spin()
        other.join()
    """, options={"run": True})  # fmt: skip
    wait_until((tmp_path / "began").exists)
    wait_until(lambda: len(s.ask("threads")["threads"]) == 2)
    idents = {one["id"] for one in s.ask("threads")["threads"]}
    send_together(s, *(("pause", {"thread": ident}) for ident in idents))
    assert {s.stopped()["thread"]["id"] for _ in idents} == idents and s.ask("status")["pausing"] == []
    (tmp_path / "go").touch()
    assert s.finish()["code"] == 0


def test_a_thread_that_ends_before_its_pause_is_told(start, tmp_path):
    s = start("""
        import _thread, os, time
        lock = _thread.allocate_lock()
        lock.acquire()
        def wait(): open("began", "w").close(); lock.acquire()
        _thread.start_new_thread(wait, ())
        while not os.path.exists("go"):
            time.sleep(0.001)
        lock.release()
        while not os.path.exists("end"):
            time.sleep(0.001)
    """, options={"run": True})  # fmt: skip
    wait_until((tmp_path / "began").exists)
    wait_until(lambda: len(s.ask("threads")["threads"]) == 2)
    (other,) = [one["id"] for one in s.ask("threads")["threads"] if not one["main"]]
    s.ask("pause", thread=other)
    (tmp_path / "go").touch()
    while "ended before" not in s.event("output")["text"]:
        pass
    assert s.ask("status")["pausing"] == []
    (tmp_path / "end").touch()
    assert s.end()["code"] == 0


def test_counting_calls_of_a_running_program_changes_no_thread_of_it(start, tmp_path):
    """What counts new threads must not make the debugger's own thread the main one: Python waits for the main thread at its end."""
    s = start("""
        import os
        def f(n):
            return n + 1
        n = 0
        open("began", "w").close()
        while not os.path.exists("go"):
            n = f(n)
        import threading
        thread = threading.Thread(target=lambda: [f(1) for _ in range(100)])
        thread.start()
        thread.join()
        print(threading.main_thread() is threading.current_thread(), threading.main_thread().name)
    """, options={"run": True})  # fmt: skip
    wait_until((tmp_path / "began").exists)
    if s.pure:
        with pytest.raises(Failed):
            s.ask("count")
    else:
        assert s.ask("count")["calls_counted"] is True
        wait_until(lambda: s.ask("files", filter="program.py")["files"][0]["calls"] > 100)
        (file,) = s.ask("files", filter="program.py")["files"]
        assert file["functions_run"] >= 1
    (tmp_path / "go").touch()
    assert s.end()["code"] == 0 and s.output() == "True MainThread\n"


def test_a_pause_as_a_breakpoint_stops_is_one_stop(start):
    """A pause that comes too late is refused or withdrawn: it must not stop the program again after it has gone on."""
    s = start("""
        import sys
        sys.setswitchinterval(1e-5)
        def tick(n):
            return n + 1
        n = 0
        while n >= 0:
            n = tick(n)
    """)
    s.stopped()
    s.ask("break", where="tick")
    s.go()
    for turn in range(25):
        s.ask("continue")
        time.sleep(turn % 5 * 0.0002)
        try:
            s.ask("pause")
        except Failed as error:
            assert error.code == "bad_request"
        assert s.stopped()["reason"] in ("breakpoint", "pause")
        assert s.ask("status")["pausing"] == [] and not [event for event in s.events if event["event"] == "stopped"]
    s.ask("clear")
    while s.ask("location")["location"]["function"] != "<module>":
        s.go("finish")
    s.ask("set", name="n", value="-5")
    assert s.finish()["code"] == 0


def test_an_evaluation_that_ends_as_its_time_is_up_does_not_hurt_the_program(start):
    s = start(SUM)
    s.stopped()
    s.ask("eval", expression="import time")
    for turn in range(25):
        try:
            s.ask("eval", expression=f"time.sleep({0.02 + turn * 0.001})", timeout=0.03)
        except Failed as error:
            assert error.code in ("timeout", "busy")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            assert s.eval("6 * 7") == 42
            break
        except Failed as error:  # the last one still sleeps, in the form that cannot be interrupted
            assert error.code == "busy"
    assert s.finish()["how"] == "finished" and s.output() == "done 10 15\n"


def test_a_fork_while_another_thread_tells_something(start):
    s = start("""
        import os, sys, threading
        sys.setswitchinterval(1e-5)
        done = False
        def tell():
            n = 0
            while not done:
                n += 1  # LOG
        threads = [threading.Thread(target=tell) for _ in range(2)]
        for thread in threads: thread.start()
        statuses = set()
        for number in range(30):
            child = os.fork()
            if child == 0:
                os._exit(7)
            statuses.add(os.waitpid(child, 0)[1] >> 8)
        done = True
        for thread in threads: thread.join()
        print(statuses)
    """)
    s.stopped()
    s.ask("break", where="n += 1  # LOG", log="n")
    assert s.finish()["code"] == 0 and s.output().endswith("{7}\n")  # later Pythons warn of the threads


def test_stops_are_told_in_the_order_of_their_numbers(start):
    """The last one told is the current thread, here and in the service."""
    s = start("""
        import sys, threading
        sys.setswitchinterval(1e-5)
        def work(n):
            return n
        for turn in range(5):
            threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
    """)
    s.stopped()
    s.ask("break", where="work")
    s.ask("continue")
    for turn in range(5):
        told = [s.stopped() for _ in range(6)]
        assert [one["count"] for one in told] == [2 + turn * 6 + at for at in range(6)]
        assert s.ask("status")["current"] == told[-1]["thread"]["id"]
        s.ask("continue")
    assert s.end()["code"] == 0


def test_an_end_in_the_middle_of_stops_leaves_no_thread_behind(start):
    s = start("""
        import threading, time
        def work():
            while True:
                n = 1
                time.sleep(0.001)
        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads: thread.start()
        while True:
            n = 2
            time.sleep(0.001)
    """)
    s.stopped()
    s.ask("break", where="n = 1")
    s.ask("break", where="n = 2")
    s.ask("continue")
    for _ in range(4):
        s.stopped()
    for _ in range(5):
        try:
            s.ask("continue")
        except Failed as error:
            assert error.code == "not_stopped"
    s.ask("terminate")
    assert s.end()["how"] == "terminated"


def test_losing_the_service_in_the_middle_of_stops_lets_everything_go(start):
    s = start("""
        import sys, threading
        sys.setswitchinterval(1e-5)
        def work():
            for n in range(300):
                m = n
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print("joined")
    """)
    s.stopped()
    s.ask("break", where="m = n")
    s.ask("continue")
    s.stopped()
    s.send("continue")
    s.lose()
    assert s.process.wait(30) == 0 and s.output() == "joined\n"


def test_the_program_s_end_takes_the_debugger_s_thread_along(start, tmp_path):
    """What runs after it is the program's: the waiting thread must not read from what that opens, nor run on while Python is taken down."""
    program(
        tmp_path,
        """
        import atexit, socket, sys
        def late():
            left, right = socket.socketpair()
            right.sendall(b"x" * 1000)
            left.settimeout(5)
            print(len(sys._current_frames()), len(left.recv(1000)))
        atexit.register(late)
    """,
        "site/sitecustomize.py",
    )
    s = start("x = 1\n", env={"PYTHONPATH": str(tmp_path / "site")})
    s.stopped()
    s.finish()
    assert s.output() == "1 1000\n"


FINDER = """
    import os, sys, time
    class Slow:
        def find_spec(self, name, path=None, target=None):
            if name == "wanted":
                open("asked", "w").close()
                while not os.path.exists("go"):
                    time.sleep(0.001)
                found = name  # HERE
            return None
    sys.meta_path.insert(0, Slow())
    try:
        import wanted
    except ImportError:
        pass
    open("began", "w").close()
    n = 0
    while n >= 0:
        n += 1
"""


def test_no_pause_in_a_finder(start, tmp_path):
    """The import system asks it under the lock of all imports: the debugger's thread, which loads a part of itself now and then, would wait for ever."""
    s = start(FINDER)
    s.stopped()
    s.ask("continue")
    wait_until((tmp_path / "asked").exists)
    s.ask("pause")
    (tmp_path / "go").touch()
    stop = s.stopped()
    assert stop["reason"] == "pause" and stop["location"]["function"] != "Slow.find_spec"
    assert s.ask("why", where="nowhere.py:1")["causes"] is not None
    s.ask("terminate")


def test_a_breakpoint_in_a_finder_leaves_the_debugger_answering(start, tmp_path):
    (tmp_path / "go").touch()
    s = start(FINDER)
    s.stopped()
    s.ask("break", where="found = name")
    assert s.go()["location"]["function"] == "Slow.find_spec"
    assert s.ask("why", where="nowhere.py:1")["causes"] is not None
    assert s.ask("break", where="n += 1", condition="n == 7 and sum([n]) == 7")["breakpoint"]["state"] in (
        "verified",
        "pending",
    )
    s.go()
    assert s.eval("n") == 7
    s.ask("terminate")
