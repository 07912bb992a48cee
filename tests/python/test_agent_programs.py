"""Programs that make life hard for a debugger: paths, copies, foreign tracers, forks, closed streams, and much of everything."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from debug_client import BOOTSTRAP, Failed, Session, forms, program
from debug_service import wait_until

_FORMS = forms()
every_form = pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS)
_NATIVE = {name: form for name, form in _FORMS.items() if "native" not in form}


def final(session):
    return next(event for event in session.passed if event["event"] == "final")


@pytest.mark.parametrize(
    "form", _NATIVE.values(), ids=_NATIVE
)  # the form without the extension needs sockets and JSON of Python's
def test_nothing_is_imported_for_the_program(tmp_path, form):
    path = program(tmp_path, "import sys\nprint('\\n'.join(sorted(sys.modules)))\n")
    bare = set(subprocess.run([form["python"], path], capture_output=True, text=True, check=True).stdout.split())
    with Session(path, **form) as s:
        s.stopped()
        s.ask("break", where=f"{path}:2", condition="len(sys.modules) > 1")
        s.go()
        s.eval("[x for x in range(3)]"), s.ask("vars"), s.ask("stack"), s.ask("files"), s.ask("source")
        s.finish()
        added = set(s.output().split()) - bare
    builtin = {"gc", "atexit", "faulthandler", "_imp", "itertools"}
    assert {name for name in added if not name.startswith("_lockstep")} <= builtin


@every_form
def test_relative_symlinked_and_short_paths(tmp_path, form):
    real = tmp_path / "real"
    program(real, "def f(x):\n    y = x + 1\n    return y\n", "lib/thing.py")
    (tmp_path / "link").symlink_to(real)
    main = program(
        tmp_path, f"import sys\nsys.path.insert(0, {str(tmp_path / 'link')!r})\nfrom lib import thing\nthing.f(1)\n"
    )
    (tmp_path / "alias.py").symlink_to(main)
    for where in (
        f"{real}/lib/thing.py:2",
        f"{tmp_path}/link/lib/thing.py:2",
        "link/lib/thing.py:2",
        "./real/lib/thing.py:2",
        "lib/thing.py:2",
    ):
        with Session("alias.py", **form, cwd=tmp_path) as s:
            s.stopped()
            s.ask("break", where=where)
            stop = s.go()
            assert stop["location"]["line"] == 2 and stop["location"]["function"] == "f", where
    with Session("alias.py", **form, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where="program.py:4")  # the script was started by its other name
        assert s.go()["location"]["line"] == 4


def test_script_changes_its_folder(tmp_path):
    program(tmp_path, "def f():\n    return 1\n", "sub/mod.py")
    path = program(tmp_path, "import os, sys\nos.chdir('sub')\nsys.path.insert(0, '.')\nimport mod\nmod.f()\n")
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where="sub/mod.py:2")
        assert s.go()["location"]["function"] == "f"


@every_form
def test_pending_until_imported(tmp_path, form):
    program(tmp_path, "top = 1\ndef f():\n    return [g for g in (4, 5)]\nclass C:\n    x = 3\n", "late.py")
    path = program(tmp_path, "print('before')\nimport late\nlate.f()\n")
    with Session(path, **form, cwd=tmp_path) as s:
        s.stopped()
        for line in (1, 3, 5):
            assert s.ask("break", where=f"late.py:{line}")["breakpoint"]["state"] == "pending"
        assert s.go()["location"]["line"] == 1
        assert {one["state"] for one in s.ask("breaks")["breakpoints"]} == {"verified"}
        assert s.go()["location"]["line"] == 5
        assert s.go()["location"]["function"] == "f"
        if "native" in form:
            s.ask("clear")  # traced on 3.12 and later, a comprehension reports its line again at each turn
        s.finish()
    # What was imported under the debugger is clean for the next run.
    assert subprocess.run([form["python"], path], cwd=tmp_path, capture_output=True, text=True).returncode == 0


@pytest.mark.parametrize("form", _NATIVE.values(), ids=_NATIVE)
def test_what_a_breakpoint_needs_is_loaded_when_it_is_set(tmp_path, form):
    """Not when its code is imported: that time is the program's."""
    program(tmp_path, "def f():\n    return 1\n", "late.py")
    path = program(tmp_path, "import late\nlate.f()\n")
    loaded = "sum(name.startswith('_lockstep_debugger.') for name in __import__('sys').modules)"
    with Session(path, **form, cwd=tmp_path) as s:
        s.stopped()
        assert s.ask("break", where="late.py:2")["breakpoint"]["state"] == "pending"
        s.ask("stack"), s.eval(loaded)  # and what looking needs
        before = s.eval(loaded)
        assert s.go()["location"]["function"] == "f" and s.eval(loaded) == before


@every_form
def test_executed_source_has_breakpoints(tmp_path, form):
    other = program(tmp_path, "a = 1\nb = a + 1\ndef f():\n    return b\n", "other.py")
    path = program(
        tmp_path,
        f"source = open({str(other)!r}).read()\ncode = compile(source, {str(other)!r}, 'exec')\nns = {{}}\nexec(code, ns)\nns['f']()\n",
    )
    with Session(path, **form) as s:
        s.stopped()
        s.ask("break", where=f"{other}:2")
        s.ask("break", where=f"{other}:4")
        assert s.go()["location"]["line"] == 2 and s.eval("a") == 1
        assert s.go()["location"]["line"] == 4
        assert s.finish()["code"] == 0


def test_exec_keeps_its_meaning(tmp_path):
    path = program(
        tmp_path,
        """
        def f():
            x = 1
            exec("y = x + 1", globals(), loc := {"x": x})
            exec(compile("z = 3", "<here>", "exec"))
            return loc["y"]
        print(f(), type(exec).__name__)
        class C:
            exec("inside = 4")
        print(C.inside)
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where="f")
        s.go()
        assert s.finish()["code"] == 0 and s.output() == "2 builtin_function_or_method\n4\n"


# -- why it did not stop ------------------------------------------------------------------------------------------------
def test_why_another_copy_is_imported(tmp_path):
    clone, installed = tmp_path / "clone", tmp_path / "site-packages"
    for root in (clone / "src", installed):
        program(root, "", "diffthing/__init__.py")
        program(root, "def run():\n    return 1\n", "diffthing/pipe.py")
    program(clone, "", "pyproject.toml")
    path = program(
        tmp_path, f"import sys\nsys.path.insert(0, {str(installed)!r})\nfrom diffthing import pipe\npipe.run()\n"
    )
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where=f"{clone}/src/diffthing/pipe.py:2")
        s.finish()
        reasons = final(s)["why"]["1"]
    assert reasons["causes"][0]["cause"] == "other_copy"
    assert reasons["causes"][0]["imported"] == str(installed / "diffthing/pipe.py")
    assert (
        reasons["causes"][0]["command"].endswith(f"pip install -e {clone}")
        and reasons["causes"][0]["package"] == "diffthing"
    )


def test_why_never_executed_names_the_files_that_were(tmp_path):
    wrong, right = program(tmp_path, "x = 1\n", "old/scheduler.py"), program(tmp_path, "x = 2\n", "new/scheduler.py")
    path = program(tmp_path, "import sys\nsys.path.insert(0, 'new')\nimport scheduler\n")
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where=f"{wrong}:1")
        s.finish()
        cause = next(one for one in final(s)["why"]["1"]["causes"] if one["cause"] == "never_executed")
    assert [str(pathlib.Path(tmp_path, one)) for one in cause["same_name"]] == [str(right)]


def test_why_condition_false_not_reached_and_ended_first(tmp_path):
    path = program(
        tmp_path,
        """
        def f(i):
            return i
        def never():
            return 2
        for i in range(7):
            f(i)
        raise ValueError("early")
        x = 1
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where=f"{path}:2", condition="i == 70")
        s.ask("break", where=f"{path}:4")
        s.ask("break", where=f"{path}:8")
        s.ask("break", where="nevr")
        s.ask("break", where="y = 17")
        assert s.go()["reason"] == "exception"
        why = {number: s.ask("why", id=number)["causes"] for number in range(1, 6)}
        assert why[1][0] == {**why[1][0], "cause": "condition_false", "times": 7}
        assert why[2][0]["cause"] == "not_reached" and why[2][0]["function"] == "never"
        ended = next(one for one in why[3] if one["cause"] == "ended_first")
        assert ended["exception"]["type"] == "ValueError" and ended["location"]["line"] == 7
        assert why[4][0]["cause"] == "no_such_function" and "never" in why[4][0]["similar"]
        assert why[5][0]["cause"] == "no_such_text" and "x = 1" in why[5][0]["similar"]
        assert s.finish()["how"] == "exception"


def test_files_that_ran(tmp_path):
    program(tmp_path, "def used():\n    return 1\ndef unused():\n    return 2\n", "mine.py")
    path = program(tmp_path, "import mine\nmine.used()\nmine.used()\nx = 1\n")
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where=f"{path}:4")
        s.go()
        (entry,) = s.ask("files", filter="mine.py")["files"]
    assert (entry["functions_run"], entry["functions"]) == (1, 2) and entry["module"] == "mine"


# -- foreign tracers, forks, streams ------------------------------------------------------------------------------------
@every_form
def test_a_tracer_of_the_program_keeps_working(tmp_path, form):
    path = program(
        tmp_path,
        """
        import sys
        seen = []
        def tracer(frame, event, arg):
            if frame.f_code.co_name == "f":
                seen.append(event)
            return tracer
        def f():
            a = 1
            b = 2
            return a + b
        sys.settrace(tracer)
        f()
        f()
        sys.settrace(None)
        print(len(seen))
    """,
    )
    with Session(path, **form) as s:
        s.stopped()
        s.ask("break", where=f"{path}:9")
        assert s.go()["location"]["line"] == 9
        assert s.go("next")["location"]["line"] == 10
        assert s.go("finish")["location"]["line"] == 13
        s.ask("clear")
        assert s.finish()["code"] == 0
        assert s.output() == "10\n"


def test_step_survives_a_settrace_of_the_program(tmp_path):
    path = program(
        tmp_path,
        """
        import sys, time
        tracer = lambda *a: None
        def f():
            sys.settrace(tracer)
            until = time.time() + 30
            while sys.gettrace() is tracer and time.time() < until:  # until the debugger has gone in front of it
                pass
            return 1
        f()
        print("end")
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where=f"{path}:4")
        s.go()
        assert s.go("finish")["location"]["line"] == 10


@every_form
def test_forked_children_run_free(tmp_path, form):
    path = program(
        tmp_path,
        """
        import os, sys
        import multiprocessing
        def f(x):
            return x * 2
        if __name__ == "__main__":
            pid = os.fork()
            if pid == 0:
                f(1)
                os._exit(7)
            status = os.waitpid(pid, 0)[1]
            with multiprocessing.get_context("fork").Pool(2) as pool:
                doubled = pool.map(f, range(4))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                spawned = pool.map(f, range(3))
            print(status >> 8, doubled, spawned, f(9))
    """,
    )
    with Session(path, **form) as s:
        s.stopped()
        s.ask("break", where="f")
        stop = s.go()
        assert s.eval("x") == 9 and stop["location"]["function"] == "f"
        assert s.finish()["code"] == 0
        assert s.output() == "7 [0, 2, 4, 6] [0, 2, 4] 18\n"


def test_closed_streams_and_stdin(tmp_path):
    path = program(
        tmp_path,
        """
        import sys
        text = sys.stdin.readline()
        sys.stdout.close()
        sys.stderr = None
        x = text.strip()
        y = 2
    """,
    )
    with Session(path, stdin=subprocess.PIPE) as s:
        s.process.stdin.write(b"hello\n")
        s.process.stdin.close()
        s.stopped()
        s.ask("break", where=f"{path}:6")
        s.go()
        assert s.eval("x") == "hello"
        assert s.finish()["code"] == 0


def test_crash_leaves_a_stack(tmp_path):
    path = program(tmp_path, "import ctypes\ndef die():\n    ctypes.string_at(0)\ndie()\n")
    with Session(path) as s:
        s.stopped()
        s.ask("continue")
        assert s.process.wait(30) == -11
        assert 'program.py", line 3 in die' in (s.folder / "crash.txt").read_text()


def test_last_known_place_of_a_killed_program(tmp_path):
    path = program(
        tmp_path,
        "import time\ndef wait():\n    while True:\n        time.sleep(0.01)\nprint('in', flush=True)\nwait()\n",
    )
    with Session(path) as s:
        s.stopped()
        s.ask("continue")
        wait_until(lambda: (s.folder / "last.json").exists() and "wait" in (s.folder / "last.json").read_text())
        s.process.kill()
        s.process.wait()
        assert json.loads((s.folder / "last.json").read_text())["location"]["function"] == "wait"


# -- sizes, times, hostile requests -------------------------------------------------------------------------------------
@every_form
def test_a_thousand_breakpoints(tmp_path, form):
    body = "\n".join(f"    x{i} = {i}" for i in range(1000))
    path = program(tmp_path, f"def f():\n{body}\n    return x999\nprint(f())\n")
    with Session(
        path,
        **form,
        options={"breakpoints": [{"where": f"{path}:{line}", "condition": "False"} for line in range(2, 1002)]},
    ) as s:
        s.stopped()
        s.ask("break", where=f"{path}:1001")
        s.go()
        assert len(s.ask("breaks")["breakpoints"]) == 1000  # a page of them
        assert s.finish()["code"] == 0
        assert sum(one["reached"] for one in final(s)["breakpoints"]) == 1001


def test_evaluations_end(tmp_path):
    path = program(tmp_path, "import time\nx = 1\ny = 2\n")
    with Session(path) as s:
        s.stopped()
        s.go("next")
        for expression in ("while True: pass", "time.sleep(30)"):
            with pytest.raises(Failed) as caught:
                s.ask("eval", expression=expression, timeout=0.2)
            assert caught.value.code == "timeout"
            if not caught.value.error.get("still_running"):
                assert s.eval("1 + 1") == 2
            else:
                with pytest.raises(Failed) as caught:
                    s.eval("1 + 1")
                assert caught.value.code == "busy"


def test_values_are_bounded(tmp_path):
    path = program(
        tmp_path,
        """
        class Bad:
            def __repr__(self): raise RuntimeError("no")
            @property
            def slow(self): raise RuntimeError("never read")
        deep = [[[[[1]]]]]
        big = list(range(10**6))
        text = "x" * 10**6
        huge = 10**5000
        bad = Bad()
        loop = []; loop.append(loop)
        nan, inf = float("nan"), float("inf")
        odd = "\\ud800"
        d = {("a", 1): {"b": [1, 2]}, None: 2}
        x = 1
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where="x = 1")
        s.go()
        found = {one["name"]: one["value"] for one in s.ask("vars")["variables"]}
        assert found["big"]["length"] == 10**6 and len(found["big"]["items"]) == 20 and found["big"]["truncated"]
        assert len(found["text"]["text"]) <= 1000 and found["text"]["length"] == 10**6
        assert "bits" in found["huge"]["text"] and "repr failed" in found["bad"]["text"]
        assert found["nan"]["value"] == "NaN" and found["inf"]["value"] == "Infinity"
        assert len(json.dumps(found)) < 60_000
        assert s.ask("eval", expression="deep")["value"]["length"] == 1


def test_bad_requests_are_answered(tmp_path):
    path = program(tmp_path, "x = 1\n")
    with Session(path) as s:
        s.stopped()
        for op, args, code in (
            ("fly", {}, "bad_request"),
            ("break", {}, "bad_request"),
            ("break", {"where": 3}, "bad_request"),
            ("break", {"where": "a.py:1", "condition": "1 +"}, "bad_expression"),
            ("break", {"file": "a.py", "line": -1}, "bad_request"),
            ("remove", {"id": 99}, "not_found"),
            ("eval", {}, "bad_request"),
            ("eval", {"expression": "1", "frame": 50}, "not_found"),
            ("vars", {"scope": "moon"}, "bad_request"),
            ("continue", {"thread": 12}, "not_stopped"),
            ("next", {"count": 0}, "bad_request"),
            ("eval", {"expression": "1", "timeout": -1}, "bad_request"),
            ("break", {"module": "*"}, "bad_request"),
            ("source", {"file": "/nowhere.py"}, "not_found"),
            ("pause", {}, "bad_request"),
            ("break", {"where": "f", "hits": 0}, "bad_request"),
        ):
            with pytest.raises(Failed) as caught:
                s.ask(op, **args)
            assert caught.value.code == code, (op, args, caught.value)
        s.socket.sendall(b'no json\n[1]\n{"op": 3}\n')
        assert s.ask("ping") == {}
        assert s.finish()["code"] == 0


def test_not_stopped_is_said(tmp_path):
    path = program(tmp_path, "import time\nprint('in', flush=True)\nwhile True: time.sleep(0.01)\n")
    with Session(path, options={"run": True}) as s:
        while "in" not in s.output():
            pass
        with pytest.raises(Failed) as caught:
            s.eval("1")
        assert caught.value.code == "not_stopped"
        assert s.ask("status")["state"] == "running"
        s.ask("terminate")
        assert s.end()["how"] == "terminated"


def test_without_a_service_the_program_runs(tmp_path):
    path = program(tmp_path, "print('ran')\n")
    done = subprocess.run(
        [sys.executable, BOOTSTRAP, path],
        capture_output=True,
        text=True,
        env={**os.environ, "LOCKSTEP_AGENT_SOCKET": ""},
    )
    assert done.returncode == 0 and done.stdout == "ran\n" and "not debugged" in done.stderr


def test_hundred_starts_leave_nothing(tmp_path):
    path = program(tmp_path, "x = 1\n")
    for _ in range(10):
        with Session(path) as s:
            s.stopped()
            s.ask("terminate")
            s.end()
            assert s.process.returncode == 0
