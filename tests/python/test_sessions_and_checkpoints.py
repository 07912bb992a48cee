"""Sessions, checkpoints, stepping and evaluation, where an earlier debugger went wrong: each test says in a sentence how."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from debug_client import ROOT, Session, line_of, program
from debug_service import PROGRAM

PACKAGE = {"PYTHONPATH": str(ROOT / "python")}
needs_program = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no strict JSON")

    return json.loads(text, parse_constant=refuse)


def test_running_is_said_after_going_on_from_a_checkpoint(tmp_path):
    """The state stayed "paused" after a checkpoint, so that `continue` reported the old place as a new stop."""
    path = program(
        tmp_path,
        """
        import sys
        from lockstep import debug_checkpoint
        debug_checkpoint("here", n=1)
        print("in", flush=True)
        sys.stdin.readline()
        debug_checkpoint("there", n=2)
    """,
    )
    with Session(path, env=PACKAGE, stdin=subprocess.PIPE) as s:
        s.stopped()
        s.ask("break", checkpoint="*")
        assert s.go()["checkpoint"]["name"] == "here"
        s.ask("continue")
        while "in" not in s.output():
            pass
        status = s.ask("status")
        assert status["state"] == "running" and status["stop"] is None
        assert not [event for event in s.events if event["event"] == "stopped"]
        s.process.stdin.write(b"\n")
        s.process.stdin.close()
        assert s.stopped()["checkpoint"]["name"] == "there"


EXITS = {
    "sys.exit": "import sys\nsys.exit(0)\n",
    "exit_after": "from lockstep import debug_save\nimport numpy\ndebug_save(numpy.zeros(2), 'x', exit_after=True)\n",
    "terminate_after": "from lockstep import debug_checkpoint\ndebug_checkpoint('last', terminate_after=True, n=1)\n",
}


@pytest.mark.parametrize("how", EXITS)
def test_sys_exit_ends_the_session(tmp_path, how):
    """Only Exception was caught: a program that left by SystemExit was "paused" for ever."""
    path = program(tmp_path, EXITS[how] + "print('never')\n")
    with Session(path, env={**PACKAGE, "LOCKSTEP_HOME": str(tmp_path / "home")}) as s:
        s.stopped()
        gone = s.finish()
        assert (gone["how"], gone["code"]) == ("sys_exit", 0) and "never" not in s.output()


TWO_FILES = """
    from lockstep import debug_checkpoint
    import second
    for i in range(4):
        debug_checkpoint("a", skip=i < 3, i=i)
        after = i
        second.f(i)
    print("end")
"""
SECOND = "from lockstep import debug_checkpoint\ndef f(i):\n    debug_checkpoint('b', skip=True, i=i)\n"


def test_one_count_of_hits_skipped_or_not(tmp_path):
    """Writer and debugger counted hits separately: stopped at i=3, the values of i=0 were shown."""
    program(tmp_path, SECOND, "second.py")
    path = program(tmp_path, TWO_FILES)
    with Session(path, env=PACKAGE, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", checkpoint="a")
        stop = s.go()
        assert stop["checkpoint"]["hit"] == 4 and stop["checkpoint"]["values"]["i"]["value"] == 3 == s.eval("i")
        assert s.ask("location")["stop"]["checkpoint"]["values"]["i"]["value"] == 3


def test_checkpoints_of_two_files_do_not_disturb_each_other(tmp_path):
    """One writer a file name: alternating between two files reset the counters and threw half of the hits away."""
    program(tmp_path, SECOND.replace("i=i", "x=numpy.array([i])").replace("def f", "import numpy\ndef f"), "second.py")
    path = program(
        tmp_path, TWO_FILES.replace("i=i", "x=numpy.array([i])").replace("import second", "import numpy, second")
    )
    home = tmp_path / "home"
    with Session(path, env={**PACKAGE, "LOCKSTEP_HOME": str(home), "LOCKSTEP_RECORD": "1"}, cwd=tmp_path) as s:
        s.stopped()
        s.finish()
        final = next(event for event in s.passed if event["event"] == "final")
        assert {one["name"]: one["hits"] for one in final["checkpoints"]} == {"a": 4, "b": 4}
    records = [json.loads(line) for file in home.rglob("records.jsonl") for line in file.read_text().splitlines()]
    assert sorted(one["name"] for one in records) == ["a.x"] * 4 + ["b.x"] * 4


def test_the_place_of_a_checkpoint_is_the_callers(tmp_path):
    """Helpers recorded their own wrapper's file and line."""
    path = program(
        tmp_path,
        """
        import torch
        from lockstep import checkpoint, debug_checkpoint
        def block(x):
            debug_checkpoint("first", x=x)
            return checkpoint("second", x)
        block(torch.ones(2))
    """,
    )
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", checkpoint="*")
        for line in (4, 5):
            where = s.go()["location"]
            assert (where["file"], where["line"], where["function"]) == (str(path), line, "block")


def test_a_checkpoint_break_with_a_condition_stops_only_there(tmp_path):
    """A context of block 2 stopped at block 0: the condition never suppressed anything, and neither did switching all off."""
    path = program(
        tmp_path,
        """
        from lockstep import debug_checkpoint
        for i in range(4):
            debug_checkpoint("block", context={"block": i}, n=i)
        for i in range(4):
            debug_checkpoint("block", context={"block": i}, n=i)
    """,
    )
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", checkpoint="block", context={"block": 2})
        stop = s.go()
        assert s.eval("i") == 2 and stop["checkpoint"]["hit"] == 3
        s.ask("enable", id=1, enabled=False)
        s.ask("break", checkpoint="block", condition="i == 3", hits=2)
        stop = s.go()
        assert s.eval("i") == 3 and stop["checkpoint"]["hit"] == 8
        assert s.finish()["code"] == 0


def test_a_line_right_behind_a_checkpoint_holds(tmp_path):
    """The event to go on was not cleared at a checkpoint, so that the next line breakpoint fell through."""
    program(tmp_path, SECOND, "second.py")
    path = program(tmp_path, TWO_FILES)
    with Session(path, env=PACKAGE, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", checkpoint="a")
        s.ask("break", where=f"{path}:{line_of(path, 'after = i')}", condition="i == 3")
        assert s.go()["reason"] == "checkpoint"
        stop = s.go()
        assert stop["reason"] == "breakpoint" and stop["location"]["text"] == "after = i"
        assert s.finish()["code"] == 0


def test_steps_know_the_depth(tmp_path):
    """Step over had no depth test, and step out stopped at the first return anywhere."""
    path = program(
        tmp_path,
        """
        def inner(n):
            m = n + 1
            return m
        def outer(n):
            a = inner(n)
            b = inner(a)
            return b
        x = outer(1)
        y = x
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where="outer")
        assert s.go()["location"]["line"] == 5
        assert s.go("next")["location"]["line"] == 6  # over inner
        assert s.go("step")["location"]["function"] == "inner"
        assert s.go("finish")["location"]["line"] == 7 and s.eval("b") == 3
        stop = s.go("finish")
        assert stop["location"]["function"] == "<module>" and stop["return_value"]["value"] == 3


def test_the_stack_is_there_at_a_checkpoint(tmp_path):
    """Only line stops filled the call stack."""
    path = program(
        tmp_path,
        """
        from lockstep import debug_checkpoint
        def inner(depth):
            if depth:
                return inner(depth - 1)
            debug_checkpoint("deep", depth=depth)
        def outer():
            inner(2)
        outer()
    """,
    )
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", checkpoint="deep")
        s.go()
        frames = s.ask("stack")["frames"]
        assert [one["location"]["function"] for one in frames] == ["inner", "inner", "inner", "outer", "<module>"]
        assert [s.eval("depth", frame=index) for index in range(3)] == [0, 1, 2]


@needs_program
def test_what_the_program_prints_is_in_the_log(home):
    """Output never reached the log, no route returned it, and the server's own threads were swallowed with it."""
    script = home.write("say.py", "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')\n")
    began = home.start(script)
    home.debug("break", "say.py:4")
    home.debug("continue")
    lines = home.debug("log")["lines"]
    assert "one" in lines and "two" in lines and "three" not in lines, lines
    home.debug("continue")
    assert pathlib.Path(began["output"]).read_text().split() == ["one", "two", "three"]


@needs_program
def test_nan_and_infinity_are_strict_json_everywhere(home):
    """Bare NaN made the files invalid, and the server answered 500 exactly when a NaN appeared."""
    pytest.importorskip("torch")
    script = home.write(
        "nan.py", "import torch\nx = torch.tensor([float('nan'), float('inf'), 1.0])\ny = float('-inf')\nz = 1\n"
    )
    began = home.start(script)
    home.debug("break", "nan.py:4")
    home.debug("continue", "--max-wait", "250", timeout=300)
    tensor = strict(home.run("--json", "debug", "eval", "x").stdout)["value"]["tensor"]
    assert (
        tensor["values"] == ["NaN", "Infinity", 1.0]
        and tensor["stats"]["nan"] == 1 == tensor["stats"]["inf"]
        and tensor["stats"]["mean"] == 1.0
    )
    assert home.call("debug/eval", expression="y")["value"]["value"] == "-Infinity"
    for line in (pathlib.Path(began["output"]).parent / "trace.jsonl").read_text().splitlines():
        strict(line)


def test_the_last_expression_is_the_answer(tmp_path):
    """Several lines returned some variable, and a text with the word "import " in it returned nothing."""
    with Session(program(tmp_path, "x = 1\ny = 2\n")) as s:
        s.stopped()
        assert s.eval("import math\nmath.pi") == pytest.approx(3.14159, abs=1e-5)
        assert s.eval("'please import this'") == "please import this"
        assert s.eval("from math import tau\nz = 3\nresult = 7\nz + 1") == 4
        assert s.eval("z = 5") is None and s.eval("z") == 5
        assert s.eval("total = 0\nfor i in range(4):\n    total += i\n[total, [i for i in range(total)]][0]") == 6


def test_a_call_split_over_lines_is_a_checkpoint_like_any(tmp_path):
    """Scans went line by line and did not see a call that is split over lines."""
    path = program(
        tmp_path,
        """
        from lockstep import debug_checkpoint
        def block(i):
            debug_checkpoint(
                "split",
                context={"block": i},
                n=i,
            )
        block(0)
        block(1)
    """,
    )
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", checkpoint="split", context={"block": 1})
        stop = s.go()
        assert (
            stop["checkpoint"]["hit"] == 2
            and stop["location"]["function"] == "block"
            and 3 <= stop["location"]["line"] <= 7
        )
        (seen,) = s.ask("checkpoints")["checkpoints"]
        assert (seen["name"], seen["hits"]) == ("split", 2) and 3 <= seen["location"]["line"] <= 7


def test_what_ran_is_known_after_deep_calls_and_counted_once(tmp_path):
    """After one call deeper than its limit the profiler recorded nothing more, and each call counted twice."""
    program(
        tmp_path,
        """
        def deep(n):
            return n if n == 0 else deep(n - 1)
        def later():
            return 1
        def never():
            return 2
    """,
        "work.py",
    )
    path = program(tmp_path, "import work\nwork.deep(500)\nwork.later()\nwork.later()\nx = 1\n")
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where="x = 1")
        s.go()
        (work,) = s.ask("files", filter="work.py")["files"]
        assert (work["functions_run"], work["functions"]) == (2, 3)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_session_edits_nothing(tmp_path):
    """The program ran as an edited copy elsewhere, so that __file__ was wrong, and unrelated work was committed to git."""
    path = program(
        tmp_path,
        """
        def f():
            from pathlib import Path
            here = Path(__file__)
            return here
        print(f())
    """,
        "work/run.py",
    )

    def git(*words):
        done = subprocess.run(
            ["git", "-C", path.parent, "-c", "user.name=t", "-c", "user.email=t@t", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    git("init", "-q")
    git("add", "run.py")
    git("commit", "-qm", "first")
    program(tmp_path, "unfinished\n", "work/notes.txt")
    before = (git("status", "--porcelain"), git("rev-parse", "HEAD"), path.read_bytes())
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where="return here")
        assert s.go()["location"]["file"] == str(path)
        s.finish()
        assert s.output().strip() == str(path)
    assert (git("status", "--porcelain"), git("rev-parse", "HEAD"), path.read_bytes()) == before


def test_a_start_waits_for_nothing_and_reads_no_sources(tmp_path):
    """A start slept two seconds, deleted every __pycache__ and read all sources of the libraries, three times."""
    program(tmp_path, "y = 1\n", "lib/other.py")
    program(tmp_path, "z = 1\n", "never.py")
    cache = program(tmp_path, "kept", "lib/__pycache__/other.cpython-311.pyc")
    seen = tmp_path / "seen.txt"
    program(
        tmp_path,
        f"""
        import os, sys
        handle = os.open({str(seen)!r}, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        def hook(event, args):
            if event in ("open", "os.listdir", "os.scandir", "os.remove", "shutil.rmtree", "time.sleep"):
                os.write(handle, f"{{event}} {{args[0]}}\\n".encode())
        sys.addaudithook(hook)
    """,
        "site/sitecustomize.py",
    )
    path = program(tmp_path, "import lib.other\nx = 1\n")
    with Session(path, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "site")}) as s:
        s.stopped()
        done = [line.split(" ", 1) for line in seen.read_text().splitlines()]
        assert not [one for one in done if one[0] in ("time.sleep", "os.remove", "shutil.rmtree")], done
        agent = str(ROOT / "python" / "lockstep" / "agent")
        read = {
            pathlib.Path(name).name
            for event, name in done
            if event == "open" and name.endswith(".py") and not name.startswith(agent)
        }
        assert read <= {"program.py", "sitecustomize.py"} and not [
            one for one in done if one[1].endswith(("never.py", "other.py"))
        ], done
    assert cache.read_text().strip() == "kept" and sys.executable and os.path.exists(cache)
