"""A lost service is followed by another: the program keeps its stops and breakpoints, and calls the new one. In every Python found
and without the extension."""

import os
import shutil

from agent_start import SUM, start  # noqa: F401
from debug_service import wait_until

WAITS = {"on_disconnect": "wait"}


def test_a_stopped_program_stands_until_another_service_comes(start):
    s = start(SUM, options=WAITS)
    s.stopped()
    s.ask("break", where="work")
    s.go()
    s.lose()
    hello = s.take_over()
    assert (
        hello["again"] is True and hello["token"] == "secret" and hello["pid"] == s.process.pid and hello["stops"] == 2
    )
    (stop,) = hello["stopped"]
    assert stop["reason"] == "breakpoint" and stop["location"]["function"] == "work" and stop["count"] == 2
    assert s.eval("n") == 5
    assert s.ask("status")["state"] == "stopped"
    assert s.go("next")["location"]["line"] == stop["location"]["line"] + 1
    again = s.go()  # the breakpoint is still there
    assert again["breakpoints"] == [1] and again["count"] == 4 and s.eval("n") == 6
    assert s.finish()["how"] == "finished" and s.output() == "done 10 15\n"


def test_a_running_program_stops_at_its_breakpoint_without_a_service(start, tmp_path):
    s = start("""
        import os, time
        while not os.path.exists("go"):
            time.sleep(0.01)
        x = 7
        print("after")
    """, options=WAITS)  # fmt: skip
    s.stopped()
    s.ask("break", where=f"{s.script}:5")
    s.ask("continue")
    s.lose()
    (tmp_path / "go").touch()
    wait_until(lambda: any(line["kind"] == "stop" and line["reason"] == "breakpoint" for line in s.trace()))
    assert s.process.poll() is None and s.output() == ""
    hello = s.take_over()
    assert [one["location"]["line"] for one in hello["stopped"]] == [5] and s.eval("x") == 7
    assert s.finish()["how"] == "finished" and s.output() == "after\n"


def test_a_running_program_can_be_paused_by_the_next_service(start, tmp_path):
    # No call of a Python function in the loop: the pause is then in this frame, where the name is.
    s = start("""
        import time
        turns = 0
        open("began", "w").close()
        while True:
            turns += 1
            time.sleep(0.001)
    """, options={**WAITS, "run": True})  # fmt: skip
    wait_until((tmp_path / "began").exists)
    s.lose()
    assert s.take_over()["stopped"] == []
    s.ask("pause")
    assert s.stopped()["reason"] == "pause" and s.eval("turns") >= 0


def test_every_stopped_thread_is_told_the_current_one_last(start):
    s = start("""
        import threading
        def work(name):
            return name
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print("joined")
    """, options=WAITS)  # fmt: skip
    s.stopped()
    s.ask("break", where="work")
    s.ask("continue")
    first, last = s.stopped(), s.stopped()
    s.lose()
    told = s.take_over()["stopped"]
    assert [one["thread"]["id"] for one in told] == [first["thread"]["id"], last["thread"]["id"]]
    assert s.eval("name", thread=first["thread"]["id"]) != s.eval("name")
    assert s.finish()["how"] == "finished"


def test_an_answer_for_nobody_does_not_keep_the_thread_busy(start, tmp_path):
    s = start(SUM, options=WAITS)
    s.stopped()
    s.send(
        "eval",
        expression="import os, time\nopen('began', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n1",
    )
    wait_until((tmp_path / "began").exists)
    s.lose()
    s.take_over()
    (tmp_path / "go").touch()
    wait_until(lambda: s.ask("threads")["threads"][0]["state"] == "stopped")
    assert s.eval("2 + 3") == 5


def test_again_and_again(start):
    s = start(SUM, options=WAITS)
    s.stopped()
    for turn in range(5):
        s.lose()
        assert len(s.take_over()["stopped"]) == 1 and s.eval(f"{turn} + 1") == turn + 1
    assert s.finish()["how"] == "finished"


def test_without_its_folder_nobody_will_come_and_the_program_goes_on(start):
    s = start(SUM, options=WAITS)
    s.stopped()
    output = os.open(s.folder / "output.log", os.O_RDONLY)
    shutil.rmtree(s.folder)
    s.lose()
    assert s.process.wait(30) == 0
    assert os.read(output, 100) == b"done 10 15\n"
    os.close(output)


def test_told_to_leave_it_does_not_come_back(start):
    s = start(SUM, options=WAITS)
    s.stopped()
    s.ask("disconnect")
    assert s.process.wait(30) == 0 and s.output() == "done 10 15\n"
