"""`lockstep debug` end to end: sessions over real programs, how they stop and how they end."""

import json
import os
import pathlib
import signal
import sys
import tempfile

import pytest
from debug_service import PROGRAM, alive, wait_until
from system import command_words, linux_only, open_files, parents

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

COUNT = """\
import sys

def double(n):
    result = n * 2
    return result

total = 0
for i in range(5):
    value = double(i)
    total += value
print("total", total, sys.argv[1:])
"""


def line(answer):
    return answer["stop"]["location"]["line"]


def test_a_session_from_start_to_end(home):
    script = home.write("count.py", COUNT)
    began = home.start(script, "--json", "x y")  # what stands after the script is the program's own
    assert began["state"] == "stopped" and began["stop"]["reason"] == "entry"
    assert began["stop"]["not_run_yet"] is True
    assert began["arguments"] == ["--json", "x y"] and began["session"] == "count"
    assert pathlib.Path(began["output"]).exists()
    made = home.debug("break", "count.py:4", "--if", "n == 3")["breakpoint"]
    assert made["state"] in ("verified", "pending") and made["line"] == 4
    stopped = home.debug("continue")
    assert stopped["state"] == "stopped" and stopped["stop"]["reason"] == "breakpoint" and line(stopped) == 4
    assert (
        stopped["stop"]["code"]["lines"][stopped["stop"]["code"]["current"] - stopped["stop"]["code"]["first"]].strip()
        == "result = n * 2"
    )
    assert home.debug("eval", "n")["value"]["value"] == 3
    assert "result" not in [v["name"] for v in home.debug("vars")["variables"]]  # the line has not run yet
    frames = home.debug("stack")["frames"]
    assert [frame["location"]["function"] for frame in frames] == ["double", "<module>"]
    home.debug("set", "n", "100")
    after = home.debug("next")
    assert line(after) == 5 and home.debug("eval", "result")["value"]["value"] == 200
    back = home.debug("finish")
    assert back["stop"]["location"]["function"] == "<module>"
    breaks = home.debug("breaks")["breakpoints"]
    assert breaks[0]["hit_count"] == 1 and breaks[0]["reached"] >= 4
    ended = home.debug("continue")
    assert ended["state"] == "ended" and ended["end"]["how"] == "finished" and ended["end"]["exit_code"] == 0
    assert home.debug("log")["lines"] == ["total 214 ['--json', 'x y']"]


def test_every_word_is_said_on_a_terminal_too(home):
    script = home.write("count.py", COUNT)
    text = home.run("debug", "start", "--python", sys.executable, script).stdout
    assert "stopped" in text and "the marked line has not run yet" in text and "output goes to" in text
    assert "count.py:9" in home.run("debug", "break", "count.py:9").stdout
    assert "-> " in home.run("debug", "continue").stdout
    assert "0" in home.run("debug", "eval", "i").stdout
    assert "total" in home.run("debug", "vars").stdout
    for words in (
        ["stack"],
        ["location"],
        ["source"],
        ["status"],
        ["breaks"],
        ["threads"],
        ["files"],
        ["sessions"],
        ["trace", "show"],
        ["log"],
    ):
        assert home.run("debug", *words).returncode == 0
    assert "ended" in home.run("debug", "terminate").stdout


def test_a_loop_breakpoint_is_removed_on_the_fly(home):
    script = home.write("count.py", COUNT)
    home.start(script)
    home.debug("break", "count.py:9")
    home.debug("continue")
    assert home.debug("eval", "i")["value"]["value"] == 0
    home.debug("continue")
    assert home.debug("eval", "i")["value"]["value"] == 1  # not the previous stop again
    assert home.debug("remove", "count.py:9")["removed"]
    assert home.debug("continue")["state"] == "ended"
    assert home.error("remove", "1")["code"] in ("conflict", "not_found")


@pytest.mark.parametrize("spelling", ["relative", "absolute", "symlink", "end of path"])
def test_paths_are_normalised(home, spelling):
    script = home.write("deep/er/count.py", COUNT)
    (home.folder / "link").symlink_to(home.folder / "deep")
    home.start(script)
    where = {
        "relative": "deep/er/count.py",
        "absolute": str(script),
        "symlink": str(home.folder / "link/er/count.py"),
        "end of path": "er/count.py",
    }[spelling]
    home.debug("break", f"{where}:10")
    assert line(home.debug("continue")) == 10


ENDS = {
    "sys_exit": ("import sys\nsys.exit(3)\n", 3, 2),
    "exit": ("import os\nos._exit(7)\n", 7, None),
    "signal": ("import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()\n", 128 + signal.SIGSEGV, 3),
    "out_of_memory": ("x = 'small'\nraise MemoryError('no more')\n", 1, 2),
    "exception": ("def inner():\n    raise ValueError('bad')\ninner()\n", 1, 2),
    "finished": ("print('fine')\n", 0, None),
}


@pytest.mark.parametrize("how", ENDS)
def test_ends_are_told_apart(home, how):
    source, code, at = ENDS[how]
    home.start(home.write("ends.py", source), options=["--on-exception", "end"])
    ended = home.debug("continue")
    assert ended["state"] == "ended"
    end = ended["end"]
    assert (end["how"], end["exit_code"]) == (how, code), end
    if at:
        places = [
            end["location"],
            *end.get("stack", []),
        ]  # a crash is placed in the innermost frame, which may be a library's
        assert any(place["line"] == at and place["file"].endswith("ends.py") for place in places), end
    assert home.debug("status")["end"]["description"] == end["description"]
    assert home.error("eval", "1")["code"] == "conflict"


def test_killed_from_outside_with_the_last_known_place(home):
    script = home.write("spin.py", "import time\ndef busy():\n    while True:\n        time.sleep(0.01)\nbusy()\n")
    began = home.start(script, options=["--run"])
    folder = pathlib.Path(began["output"]).parent
    wait_until(lambda: (folder / "last.json").exists() and "spin.py" in (folder / "last.json").read_text())
    os.kill(began["pid"], signal.SIGKILL)
    end = home.debug("wait")["end"]
    assert end["how"] == "killed" and end["signal"] == "SIGKILL" and end["location"]["file"].endswith("spin.py")
    kinds = [json.loads(text)["kind"] for text in (folder / "trace.jsonl").read_text().splitlines()]
    assert kinds[-1] == "end" and "start" in kinds  # nothing is lost


def test_an_uncaught_exception_stops_post_mortem(home):
    home.start(home.write("ends.py", "def inner(x):\n    y = x + 1\n    raise ValueError('bad')\ninner(4)\n"))
    stopped = home.debug("continue")
    assert stopped["stop"]["reason"] == "exception" and line(stopped) == 3
    assert home.debug("eval", "y")["value"]["value"] == 5
    assert home.debug("eval", "__name__", "--frame", "1")["value"]["value"] == "__main__"
    ended = home.debug("continue")
    assert ended["end"]["how"] == "exception" and ended["end"]["exception"]["type"] == "ValueError"


def test_a_running_program_is_paused_and_waited_for(home):
    home.start(home.write("loop.py", "n = 0\nwhile True:\n    n += 1\n    if n == 1001: print('many', flush=True)\n"))
    running = home.debug("continue", "--max-wait", "0.2")
    assert running["state"] == "running" and "debug pause" in running["hint"]
    wait_until(lambda: home.debug("log")["lines"])
    assert home.error("vars")["code"] == "conflict"
    paused = home.debug("pause")
    assert paused["state"] == "stopped" and paused["stop"]["reason"] == "pause"
    assert home.debug("eval", "n > 1000")["value"]["value"] is True
    home.debug("set", "n", "-5")
    assert home.debug("eval", "n")["value"]["value"] == -5
    assert home.debug("terminate")["state"] == "ended"


def test_several_sessions_and_the_last_is_the_default(home):
    one = home.start(home.write("one.py", "x = 'one'\ny = 2\n"))
    two = home.start(home.write("two.py", "x = 'two'\ny = 2\n"))
    again = home.start(home.folder / "one.py")
    assert [s["session"] for s in (one, two, again)] == ["one", "two", "one-2"]
    home.debug("next", "--session", "two")
    assert home.debug("eval", "x", "--session", "two")["value"]["value"] == "two"
    assert home.debug("status")["session"] == "one-2"
    assert home.debug("status", "--session", "one")["stop"]["reason"] == "entry"
    assert "two" in home.error("status", "--session", "twoo")["message"]
    assert home.error("start", "--name", "two", "one.py")["code"] == "conflict"
    assert home.debug("sessions")["live"] == 3


def test_restart_keeps_the_breakpoints(home):
    home.start(home.write("count.py", COUNT), "a")
    home.debug("break", "count.py:4", "--hits", "2")
    home.debug("break", "count.py:10")
    home.debug("remove", "count.py:10")
    assert home.debug("continue")["stop"]["reason"] == "breakpoint"
    again = home.debug("restart")
    assert again["stop"]["reason"] == "entry" and again["arguments"] == ["a"] and again["session"] == "count"
    assert len(home.debug("breaks")["breakpoints"]) == 1
    assert home.debug("continue")["state"] == "stopped"
    assert home.debug("eval", "n")["value"]["value"] == 1


def test_the_trace_has_the_fields_of_the_seeds(home):
    home.start(home.write("count.py", COUNT))
    home.debug("break", "double")
    home.debug("continue")
    home.debug("eval", "n + 1")
    home.debug("next")
    home.debug("clear")
    home.debug("continue")
    to = home.folder / "trace.json"
    home.debug("trace", "export", "--to", to)
    document = json.loads(to.read_text())
    assert {"session_id", "script_path", "start_time", "end_time", "breakpoints", "steps", "total_steps"} <= set(
        document
    )
    assert document["script_path"].endswith("count.py") and document["total_steps"] == len(document["steps"]) >= 4
    stops = [step for step in document["steps"] if "call_stack" in step]
    assert {"step", "step_type", "location", "code_context", "call_stack", "variables"} <= set(stops[1])
    evaluation = next(step for step in document["steps"] if "expression" in step)
    assert evaluation["expression"] == "n + 1" and evaluation["result"]["value"] == 1
    assert document["output"] == ["total 20 []"] and document["end"]["how"] == "finished"


def test_programs_that_read_stdin_or_close_stdout(home):
    home.start(
        home.write("reads.py", "import sys\nprint(repr(sys.stdin.read()))\nsys.stdout.close()\n"), options=["--run"]
    )
    assert home.debug("wait")["state"] == "ended"
    assert home.debug("log")["lines"][0] == "''"
    home.write("input.txt", "hello\n")
    home.start(home.folder / "reads.py", options=["--run", "--stdin", "input.txt"])
    home.debug("wait")
    assert home.debug("log")["lines"][0] == "'hello\\n'"


def test_children_end_with_the_program(home):
    script = home.write(
        "forks.py",
        "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\nprint(child.pid, flush=True)\nchild.wait()\n",
    )
    home.start(script, options=["--run"])
    wait_until(lambda: home.debug("log")["lines"])
    child = int(home.debug("log")["lines"][0])
    home.debug("terminate", "--force")
    wait_until(lambda: not alive(child))


def test_output_is_followed(home):
    home.start(
        home.write("prints.py", "import time\nfor i in range(3):\n    print('line', i)\n    time.sleep(0.05)\n"),
        options=["--run"],
    )
    assert home.run("debug", "log", "--follow", "--from", "1").stdout == "line 0\nline 1\nline 2\n"


def test_what_cannot_start_says_why(home):
    assert home.error("start", "absent.py")["code"] == "not_found"
    assert "--python" in home.error("start", "--python", "/bin/false", home.write("x.py", "pass\n"))["message"]
    assert home.error("start")["code"] in ("bad_input", "usage")
    assert home.error("status", "--session", "nothing")["code"] == "not_found"


def test_a_hundred_cycles_leave_nothing_behind(home):
    # Where a session's folder has too long a name for a socket, that goes to the temporary folder: one of our own, so that what
    # other programs leave there is not counted.
    own = pathlib.Path(tempfile.mkdtemp(prefix="ls"))
    home.home = home.folder / ("long-name-" * 10)
    home.environment |= {"TMPDIR": str(own), "LOCKSTEP_HOME": str(home.home)}
    script = str(home.write("tiny.py", "x = 1\n"))
    service = home.ensure()

    def cycle():
        began = home.call("debug/start", script=script, python=sys.executable, cwd=str(home.folder))
        assert began["state"] == "stopped", began
        ended = home.call("debug/terminate", session=began["id"], forget=True)
        assert ended["state"] == "ended"
        return began["pid"]

    pids = [cycle()]
    before = len(open_files(service["pid"]))
    pids += [cycle() for _ in range(99)]
    assert not set(pids) & set(parents())
    assert len(open_files(service["pid"])) <= before + 2
    assert list((home.home / "sessions").iterdir()) == []
    assert home.service()["pid"] == service["pid"]
    own.rmdir()  # fails where something is left


def test_the_service_stops_when_idle(home):
    import subprocess

    process = subprocess.Popen(
        [PROGRAM, "serve", "--idle", "0.3"], env=home.environment, cwd=home.folder, stderr=subprocess.DEVNULL
    )
    assert process.wait(timeout=20) == 0
    assert not (home.home / "service" / "service.json").exists() and not (home.home / "service" / "token").exists()


def test_the_command_line_starts_a_service_that_stops_when_idle(home):
    service = home.ensure()
    words = command_words(service["pid"])
    assert "serve" in words and float(words[words.index("--idle") + 1]) == 600
    assert service["host"] == "127.0.0.1"


@linux_only
def test_a_line_without_an_end_does_not_fill_the_service(home):
    block, count = 1 << 20, 256
    source = f"import sys\nfor i in range({count}):\n    sys.stdout.write('x' * {block})\nsys.stdout.write('the tail')\nsys.stdout.flush()\nprint()\nprint('next line')\n"
    service = home.ensure()
    home.start(home.write("floods.py", source), options=["--run"])
    assert home.debug("wait", "--max-wait", "120")["state"] == "ended"
    first, second = home.debug("log", "--from", "1")["lines"]
    assert (
        first.startswith("xxx")
        and first.endswith("the tail")
        and f"{block * count + 8 - 4000} bytes" in first
        and second == "next line"
    )
    assert home.debug("log")["total"] == 2
    output = [line["text"] for line in home.debug("trace", "show", "--kind", "output")["lines"]]
    assert output == [first, second]
    peak = next(
        line
        for line in pathlib.Path(f"/proc/{service['pid']}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert int(peak.split()[1]) < 100 << 10, peak  # KiB; the line alone has 256 MiB


def test_an_unfinished_line_is_shown_and_not_counted(home):
    home.start(
        home.write(
            "bar.py",
            "import sys, time, pathlib\nprint('one')\nsys.stdout.write('50 %')\nsys.stdout.flush()\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.01)\nsys.stdout.write(' 100 %')\n",
        ),
        options=["--run"],
    )
    wait_until(lambda: home.debug("log").get("unfinished") == "50 %")
    log = home.debug("log")
    assert log["lines"] == ["one"] and log["total"] == 1 and log["next"] == 2
    assert home.run("debug", "log").stdout == "one\n50 %\n"
    (home.folder / "go").touch()
    assert home.run("debug", "log", "--follow", "--from", "1").stdout == "one\n50 % 100 %\n"
    assert home.debug("log")["lines"] == ["one", "50 % 100 %"]


def test_a_thousand_breakpoints(home):
    lines = "\n".join(f"    x += {i}" for i in range(1000))
    script = home.write("long.py", f"def work(x):\n{lines}\n    return x\n\nprint(work(0))\n")
    began = home.call_started(script)
    for number in range(3, 1002):
        home.call("debug/break", where=f"{script}:{number}", session=began["id"], **{"if": "x < 0"})
    home.call("debug/break", where=f"{script}:1002", session=began["id"])
    breaks = home.get("debug/breaks", session=began["id"])["breakpoints"]
    assert len(breaks) == 1000 and {one["state"] for one in breaks} <= {"verified", "pending"}
    assert home.call("debug/continue", session=began["id"])["stop"]["location"]["line"] == 1002
    reached = home.get("debug/breaks", session=began["id"])["breakpoints"]
    assert [one["reached"] for one in reached] == [1] * 1000
    assert len(home.call("debug/clear", session=began["id"])["removed"]) == 1000
    assert home.call("debug/continue", session=began["id"])["end"]["how"] == "finished"
    assert home.get("debug/log", session=began["id"])["lines"] == [str(sum(range(1000)))]


def test_files_that_ran_and_how_often(home):
    home.write("lib/busy.py", "def f(n):\n    return n\n\ndef idle():\n    return 0\n")
    home.write("lib/unused.py", "def g():\n    return 1\n")
    script = home.write(
        "main.py",
        "import sys, threading\nsys.path.insert(0, 'lib')\nimport busy\nfor i in range(300):\n    busy.f(i)\nthread = threading.Thread(target=lambda: [busy.f(i) for i in range(50)])\nthread.start()\nthread.join()\nlast = 1\n",
    )
    home.start(script, options=["--count-calls"])
    home.debug("break", "main.py:9")
    home.debug("continue")
    found = home.debug("files")
    assert found["calls_counted"] is True
    files = {pathlib.Path(one["file"]).name: one for one in found["files"]}
    assert files["busy.py"]["calls"] == 351 and files["busy.py"]["functions_run"] == 1, (
        files
    )  # the module's own code is a call too
    assert "unused.py" not in files
    assert found["files"][0]["file"].endswith("busy.py")  # the busiest first
    text = home.run("debug", "files", "--filter", "busy").stdout
    assert "351" in text and "calls" in text
    assert home.debug("continue")["state"] == "ended"
    assert home.debug("files", "--filter", "busy")["files"][0]["calls"] == 351  # known after the end
    home.start(script)
    hint = home.debug("files")["hint"]
    assert (
        "debug count" in hint
        and "--count-calls" in hint
        and hint in home.run("debug", "files").stdout
        and home.debug("files")["calls_counted"] is False
    )
    assert home.debug("count")["calls_counted"] is True
    home.debug("break", "main.py:6")
    home.debug("continue")
    assert {pathlib.Path(one["file"]).name: one["calls"] for one in home.debug("files")["files"]}["busy.py"] == 301
    assert home.debug("count", "--off")["calls_counted"] is False
    home.debug("restart", "--count-calls")  # the same program with the same breakpoints, counted from its beginning
    home.debug("continue")
    counted = home.debug("files", "--filter", "busy")
    assert counted["files"][0]["calls"] == 301 and "hint" not in counted


def test_which_files_ran_is_known_after_the_end(home):
    home.write("lib/busy.py", "def f(n):\n    return n\n")
    home.write("lib/unused.py", "def g():\n    return 1\n")
    home.start(home.write("main.py", "import sys\nsys.path.insert(0, 'lib')\nimport busy\nbusy.f(1)\n"))
    assert home.debug("continue")["state"] == "ended"
    found = home.debug("files")
    assert [pathlib.Path(one["file"]).name for one in found["files"] if not one["library"]] == ["main.py", "busy.py"]
    assert found["calls_counted"] is False and "--count-calls" in found["hint"]
    assert (
        home.debug("files", "--filter", "busy")["total"] == 1
        and home.debug("files", "--filter", "unused")["total"] == 0
    )
    assert home.run("debug", "files", "--filter", "busy").stdout.splitlines()[1].split() == [
        "-",
        str(home.folder / "lib" / "busy.py"),
    ]


@linux_only
@pytest.mark.skipif(os.cpu_count() < 2, reason="one processor: nobody waits by spinning")
def test_the_service_spins_shortly_and_its_programs_as_they_would(home):
    """OpenMP reads the environment once, at the start; what the service set for itself is not for the programs it runs."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        home.environment.pop(name, None)
    script = home.write("told.py", "import os\nprint([k for k in os.environ if 'SPIN' in k])\nlast = 1\n")
    session = home.call_started(script)["id"]
    given = pathlib.Path(f"/proc/{home.service()['pid']}/environ").read_bytes().split(b"\0")
    assert b"GOMP_SPINCOUNT=10000" in given
    home.call("debug/break", session=session, where="told.py:3")
    home.call("debug/continue", session=session, max_wait=30)
    assert home.get("debug/log", session=session)["lines"] == ["[]"]
