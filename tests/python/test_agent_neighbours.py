"""The debugger beside others that look into the same program: coverage, tracers, tools of sys.monitoring; and very deep recursion."""

import json
import subprocess
import sys

import pytest
from debug_client import Session, forms, line_of, program, pythons
from debug_service import wait_until

_FORMS = forms()
every_form = pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS)
_MONITORED = {f"3.{minor}": path for (_, minor), path in sorted(pythons().items()) if minor >= 12}
monitored = pytest.mark.parametrize("python", _MONITORED.values(), ids=_MONITORED)

BRANCHES = """
    def choose(n):
        if n % 2:
            odd = n
            return odd
        even = n
        return even

    def never():
        return 1

    total = 0
    for i in range(4):
        total += choose(i)
    print(total)
"""


def executed_lines(report):
    (file,) = json.loads(report.read_text())["files"].values()
    return file["executed_lines"], file["missing_lines"]


def test_coverage_measures_the_same(tmp_path):
    """A program run by coverage, stopped and stepped: the report is the one without a debugger."""
    pytest.importorskip("coverage")
    path = program(tmp_path, BRANCHES)
    command = ["run", f"--data-file={tmp_path / 'data'}", str(path)]

    def report(name):
        made = tmp_path / name
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", f"--data-file={tmp_path / 'data'}", "-o", made],
            check=True,
            capture_output=True,
        )
        return executed_lines(made)

    subprocess.run([sys.executable, "-m", "coverage", *command], check=True, capture_output=True, cwd=tmp_path)
    bare = report("bare.json")
    with Session("coverage", *command, module=True, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where=f"{path}:3", condition="n == 3")
        s.ask("break", where="never")
        assert s.go()["location"]["line"] == 3
        assert s.go("next")["location"]["line"] == 4
        assert s.finish()["code"] == 0
        assert s.output() == "6\n"
    assert report("debugged.json") == bare and bare[1] == [9]


@monitored
def test_all_tool_numbers_taken_is_said_and_tracing_does_it(tmp_path, python):
    program(
        tmp_path,
        "import sys\nfor number in range(6):\n    sys.monitoring.use_tool_id(number, f'other {number}')\n",
        "site/sitecustomize.py",
    )
    path = program(tmp_path, BRANCHES)
    with Session(path, python=python, env={"PYTHONPATH": str(tmp_path / "site")}) as s:
        assert s.hello["engine"] == "tracing" and "sys.monitoring" in s.hello["native_reason"]
        s.stopped()
        s.ask("break", where=f"{path}:3", condition="n == 3")
        assert s.go()["location"]["line"] == 3
        assert s.go("next")["location"]["line"] == 4
        assert s.go("finish")["location"]["function"] == "<module>"
        assert s.finish()["code"] == 0 and s.output() == "6\n"


@monitored
def test_another_tool_keeps_its_events(tmp_path, python):
    """The usual number belongs to someone else, who counts lines: both get theirs, and it counts what it counts alone."""
    path = program(tmp_path, BRANCHES)
    program(
        tmp_path,
        f"""
        import atexit, sys
        tool, seen = sys.monitoring.DEBUGGER_ID, []
        sys.monitoring.use_tool_id(tool, "other")
        def on_line(code, line):
            if code.co_filename == {str(path)!r}:
                seen.append(line)
        sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, on_line)
        sys.monitoring.set_events(tool, sys.monitoring.events.LINE)
        atexit.register(lambda: print(len(seen)))
    """,
        "site/sitecustomize.py",
    )
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    bare = subprocess.run([python, path], capture_output=True, text=True, check=True, env=environment).stdout
    with Session(path, python=python, env=environment) as s:
        assert s.hello["engine"] == "monitoring"
        s.stopped()
        s.ask("break", where=f"{path}:3")
        for n in (1, 3):
            assert s.go()["location"]["line"] == 3 and s.eval("n") == n
        assert s.go("next")["location"]["line"] == 4
        assert s.finish()["code"] == 0 and s.output() == bare


DEEP = """
    import sys, threading
    sys.setrecursionlimit(60_000)
    threading.stack_size(768 << 20)
    def dive(n):
        if n == 0:
            bottom = n
            return bottom
        return 1 + dive(n - 1)
    found = []
    thread = threading.Thread(target=lambda: found.append(dive(50_000)))
    thread.start()
    thread.join()
    print(found)
"""


def test_pairs_of_instructions_stay_together(tmp_path):
    """Python 3.12 takes them apart in all code whose start is reported, which is all code."""
    python = pythons().get((3, 12))
    if python is None:
        pytest.skip("Python 3.12 is not here")
    path = program(tmp_path, """
        class Thing:
            def plain(self, a, b):
                c = a; d = b; e = 5; f = c
                return c, d, 7, e, f, a, b
            def turns(self, n):
                total = 0
                for i in range(n):
                    total += i
                    if total < 0:
                        total = len([self, i, total])
                return self.plain(n, total)
            def many(self, a):
                %s
                return v0, v299
        thing = Thing()
        thing.turns(1), thing.many(2), [*(x + y for x, y in ((1, 2),))]
        for f in (Thing.plain, Thing.turns, Thing.many):
            print(f.__code__._co_code_adaptive.hex())
    """ % "; ".join(f"v{i} = a; w{i} = v{i}" for i in range(300)))  # fmt: skip
    bare = subprocess.run([python, path], capture_output=True, text=True, check=True).stdout
    with Session(path, python=python) as s:
        s.stopped()
        s.finish()
        if not s.hello["native"]:
            pytest.skip("there is no extension for it")
        assert s.output() == bare


def test_pairs_of_instructions_come_together_again_after_a_pause(tmp_path):
    """In the function that was paused, in its caller, in one that runs now and then, and in one that runs for the first time."""
    python = pythons().get((3, 12))
    if python is None:
        pytest.skip("Python 3.12 is not here")
    path = program(
        tmp_path,
        """
        import os, time
        def add(a, b):
            c = a
            return c, b
        def late(a, b):
            c = a
            return c, b
        def spin(turns, until):
            n = 0
            while n < turns and not os.path.exists(until):
                a = n
                b = a
                add(a, b)
                n += 1
                if n == 50:
                    open("began", "w").close()
                time.sleep(0.0005)
            found = [joined(function) for function in (add, spin, caller)]
            return n, turns, found
        def caller(turns, until):
            first, last = turns, until
            found = spin(first, last)
            return first, last, found[2]
        def joined(function):  # pairs that this Python makes of the function, and those that it has now
            made, now = function.__code__.replace()._co_code_adaptive, function.__code__._co_code_adaptive
            pairs = [at for at in range(0, len(made), 2) if made[at] in PAIRS]
            return len(pairs), sum(now[at] == made[at] for at in pairs)
        import dis
        PAIRS = {number for name, number in dis._all_opmap.items() if "__" in name}
        running = caller(100_000, "go")[2]
        late(1, 2)
        print([*running, joined(late)])
    """,
    )
    with Session(path, python=python, cwd=tmp_path) as s:
        s.stopped()
        s.ask("continue")
        wait_until((tmp_path / "began").exists)
        for _ in range(2):
            s.ask("pause")
            assert s.stopped()["reason"] == "pause"
            s.ask("continue")
        (tmp_path / "go").touch()
        s.end()
        if not s.hello["native"]:
            pytest.skip("there is no extension for it")
        found = json.loads(s.output().replace("(", "[").replace(")", "]"))
        assert all(made > 0 for made, _ in found) and [now for _, now in found] == [made for made, _ in found]


@every_form
def test_recursion_of_fifty_thousand_calls(tmp_path, form):
    path = program(tmp_path, DEEP)
    with Session(path, **form) as s:
        s.stopped()
        s.ask("break", where=f"{path}:8", condition="n == -1")
        s.ask("break", where=f"{path}:6")
        stop = s.go()
        assert stop["location"]["line"] == 6 and s.eval("n") == 0 and s.eval("n", frame=1) == 1
        stack = s.ask("stack", limit=30)
        assert len(stack["frames"]) == 30 and stack["total"] >= 10_000
        assert s.go("next")["location"]["line"] == 7
        s.ask("clear")
        assert s.finish()["code"] == 0 and s.output() == "[50000]\n"


@every_form
def test_decorators_wrappers_and_classes_made_on_the_fly(tmp_path, form):
    path = program(
        tmp_path,
        """
        import contextlib, functools
        def twice(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args) * 2
            return wrapper
        class Base:
            @property
            def size(self):
                return 3
            @staticmethod
            @twice
            def still(n):
                return n + 1
            @classmethod
            def made(cls, n):
                return n * 10
        @functools.lru_cache
        def kept(n):
            return n
        @contextlib.contextmanager
        def around():
            yield 5
        Made = type("Made", (Base,), {"late": twice(lambda self, n: n)})
        with around() as five:
            print(Made().size, Made.still(1), Made.made(2), kept(4), kept(4), five, Made().late(6))
    """,
    )
    stops = ["return 3", "return n + 1", "return n * 10", "return n\n", "yield 5", "lambda self"]
    lines = [line_of(path, text.strip("\n")) for text in stops]
    lines[3] = line_of(path, "def kept") + 1
    with Session(path, **form) as s:
        s.stopped()
        for line in lines[:5]:
            s.ask("break", where=f"{path}:{line}")
        for name in ("Base.still", "kept"):
            s.ask("break", where=name, log="n")
        seen = [s.go()["location"]["line"] for _ in range(5)]
        assert seen == [lines[4], *lines[:4]]  # in the order in which they run
        assert s.finish()["code"] == 0
        printed = [line for line in s.output().splitlines() if not line.startswith("lockstep: breakpoint ")]
        assert printed == ["3 4 20 4 4 5 12"]
        logged = [event["text"] for event in s.passed if event["event"] == "output" and event["category"] == "log"]
        assert logged == ["1", "4"]


@every_form
def test_every_line_is_seen_after_they_have_switched_themselves_off(tmp_path, form):
    """Lines of a hot loop stop reporting where they hold no breakpoint; steps and tracers that come later still see each of them."""
    path = program(
        tmp_path,
        """
        import sys
        seen = []
        def trace(frame, event, arg):
            if frame.f_code is work.__code__ and event == "line":
                seen.append(frame.f_lineno)
            return trace
        def work(n, a, b):
            total = 0
            for i in range(n):
                c = a
                d = b
                total += c
                e = total
                if e < 0:
                    total = 0
            return total
        work(500, 1, 2)
        sys.settrace(trace)
        work(2, 1, 2)
        sys.settrace(None)
        print(seen, work(300, 1, 2))
    """,
    )
    first = line_of(path, "c = a")
    with Session(path, **form) as s:
        s.stopped()
        s.ask("break", where=f"{path}:{first + 5}")  # never reached
        s.ask("break", where=f"{path}:{first + 2}", condition="n == 300 and i == 200")
        stop = s.go()
        assert stop["location"]["line"] == first + 2
        lines = [s.go("next")["location"]["line"] for _ in range(8)]
        assert lines == [first + 3, first + 4, first - 1, first, first + 1, first + 2, first + 3, first + 4]
        assert s.finish()["code"] == 0
        turn = [first, first + 1, first + 2, first + 3, first + 4, first - 1]
        assert s.output() == f"{[first - 2, first - 1, *turn, *turn, first + 6]} 300\n"
