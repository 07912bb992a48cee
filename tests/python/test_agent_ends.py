"""How programs end under the debugger, in every Python found and without the extension."""

import os
import signal

import pytest
from agent_start import SUM, start  # noqa: F401
from debug_client import Session, program
from debug_service import wait_until


def test_uncaught_exception_stops_post_mortem(start):
    s = start("""
        def bad(values):
            index = 5
            return values[index]
        def caller():
            here = "yes"
            return bad([1])
        caller()
    """)
    s.stopped()
    stop = s.go()
    assert stop["reason"] == "exception" and stop["exception"]["type"] == "IndexError" and stop["location"]["line"] == 3
    assert s.eval("index") == 5 and s.eval("here", frame=1) == "yes"
    assert [f["location"]["function"] for f in s.ask("stack")["frames"]] == ["bad", "caller", "<module>"]
    gone = s.finish()
    assert (gone["how"], gone["code"]) == ("exception", 1) and s.process.returncode == 1
    assert s.output().splitlines()[0] == "Traceback (most recent call last):" and "bootstrap" not in s.output()
    assert s.output().rstrip().endswith("IndexError: list index out of range")


@pytest.mark.parametrize("code, status", [("3", 3), ("None", 0), ("'text'", 1)])
def test_sys_exit(start, code, status):
    s = start(f"""
        import sys
        def leave():
            sys.exit({code})
        leave()
    """)
    s.stopped()
    gone = s.finish()
    assert (gone["how"], gone["code"]) == ("sys_exit", status) and s.process.returncode == status
    assert gone["location"]["line"] == 3


def test_terminate_when_stopped_runs_finally(start):
    s = start("""
        try:
            x = 1
        finally:
            print("cleaned")
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:2")
    s.go()
    s.ask("terminate")
    assert s.end()["how"] == "terminated" and s.output() == "cleaned\n"


# As the program was started, and two that do not heed interrupts.
@pytest.mark.parametrize("handler", ["signal.getsignal(signal.SIGINT)", "signal.SIG_IGN", "lambda *_: None"])
def test_terminate_while_it_runs(start, tmp_path, handler):
    s = start(
        f"""
        import signal, time
        signal.signal(signal.SIGINT, {handler})
        open("began", "w").close()
        try:
            while True:
                time.sleep(0.01)
        finally:
            print("cleaned")
    """,
        options={"run": True},
    )
    wait_until((tmp_path / "began").exists)
    s.ask("terminate", code=4)
    gone = s.end()
    assert (gone["how"], gone["code"]) == ("terminated", 4) and s.process.returncode == 4 and s.output() == "cleaned\n"


def test_service_gone_the_program_goes_on(start):
    s = start(SUM)
    s.stopped()
    s.ask("break", where="work")
    s.go()
    s.socket.close()
    assert s.process.wait(30) == 0 and s.output() == "done 10 15\n"
    assert [line["kind"] for line in s.trace()][-1] == "exit"


def test_service_gone_the_program_ends_when_told_so(start):
    s = start(SUM, options={"on_disconnect": "terminate"})
    s.stopped()
    s.socket.close()
    s.process.wait(30)
    assert "done" not in s.output()


def test_killed_program_leaves_a_whole_trace(start):
    s = start(SUM)
    s.stopped()
    s.ask("break", where="work")
    s.go()
    s.eval("n + 1")
    os.kill(s.process.pid, signal.SIGKILL)
    s.process.wait(30)
    kinds = [line["kind"] for line in s.trace()]
    assert kinds == ["start", "stop", "breakpoint", "resume", "breakpoint", "stop", "evaluation"] or kinds == [
        "start",
        "stop",
        "breakpoint",
        "resume",
        "stop",
        "evaluation",
    ]
    stop = [line for line in s.trace() if line["kind"] == "stop"][-1]
    assert stop["variables"]["n"]["value"] == 5 and stop["code_context"]["current"].strip() == "total = 0"
    assert stop["call_stack"][1]["function"] == "<module>" and stop["step_type"] == "continue"


def test_module_form(start, tmp_path):
    program(tmp_path, "", "pkg/__init__.py")
    program(
        tmp_path,
        """
        import sys
        from . import other
        print(__name__, sys.argv[1:], other.f(2))
    """,
        "pkg/__main__.py",
    )
    program(
        tmp_path,
        """
        def f(x):
            return x + 1
    """,
        "pkg/other.py",
    )
    python = start(SUM)
    python.stopped()
    with Session("pkg", "a", module=True, cwd=tmp_path, python=python.process.args[0]) as s:
        s.stopped()
        assert s.ask("break", where="pkg/other.py:2")["breakpoint"]["state"] == "pending"
        assert s.go()["location"]["function"] == "f"
        assert s.finish()["code"] == 0 and s.output() == "__main__ ['a'] 3\n"


def test_an_exception_that_ends_a_thread_stops_post_mortem(start):
    s = start("""
        import threading
        def work(n):
            m = n * 2
            raise KeyError("lost")
        thread = threading.Thread(target=work, args=(21,), name="worker")
        thread.start()
        thread.join()
        print("went on")
    """)
    s.stopped()
    stop = s.go()
    assert stop["reason"] == "exception" and stop["location"]["line"] == 4 and stop["thread"]["name"] == "worker"
    assert s.eval("m") == 42 and not stop["not_run_yet"]
    assert s.finish()["code"] == 0 and s.output().endswith("went on\n") and "KeyError" in s.output()
