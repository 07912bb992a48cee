"""Costs that a clock hardly shows: what a session leaves in the program that makes it slower."""

import json
import subprocess

import pytest
from debug_client import Session, forms, line_of, program, pythons
from debug_service import wait_until

_FORMS = forms()
every_form = pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS)
_MONITORED = {f"3.{minor}": path for (_, minor), path in sorted(pythons().items()) if minor >= 12}
monitored = pytest.mark.parametrize("python", _MONITORED.values(), ids=_MONITORED)

LOOP = """
    import sys{more}
    def one_line(n):
        total = 0
        if total < 0:
            total = 1  # COLD
        for i in range(n): total += i
        while total > 0: total -= 1
        for j in range(4):
            total += j
        return [x for x in range(3) if x]
    def reporting(function):
        import dis
        return [(one.positions.lineno, one.opname) for one in dis.get_instructions(function, adaptive=True) if "INSTRUMENTED_LINE" in one.opname]
    {first}
    one_line(20)
    print(reporting(one_line), {last})
"""


@every_form
def test_frames_of_the_debugger_below_do_not_make_calls_take_memory_from_the_system(tmp_path, form):
    """Python 3.11 and later lay frames into blocks; a call across the end of one takes a new block and gives it back."""
    path = program(
        tmp_path,
        """
        import resource
        def down(n):
            return 0 if n == 0 else down(n - 1)
        down(900)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for depth in range(1, 900, 3):
            for _ in range(20):
                down(depth)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """,
    )
    with Session(path, **form, options={"run": True}) as s:
        s.end()
        assert int(s.output()) < 1000  # without a debugger it is 6,000


@monitored
def test_a_loop_in_one_line_reports_nothing_once_its_line_is_off(tmp_path, python):
    path = program(tmp_path, LOOP.format(more="", first="", last="0"))
    line = line_of(path, "COLD")
    with Session(path, python=python, options={"run": True, "breakpoints": [{"file": str(path), "line": line}]}) as s:
        s.end()
        if not s.hello["native"]:
            pytest.skip("there is no extension for it")
        assert s.output() == f"[({line}, 'INSTRUMENTED_LINE')] 0\n"


@monitored
def test_lines_that_another_tool_asks_for_go_on(tmp_path, python):
    """The other tool sees the lines that it sees without a debugger, also after the debugger has switched its own off."""
    first = """one_line(2)
    monitoring, seen = sys.monitoring, []
    monitoring.use_tool_id(1, "other")
    monitoring.register_callback(1, monitoring.events.LINE, lambda code, line: seen.append(line))
    monitoring.set_local_events(1, one_line.__code__, monitoring.events.LINE)
    one_line(3)"""
    path = program(tmp_path, LOOP.format(more=", json", first=first, last="json.dumps(seen)"))
    line = line_of(path, "COLD")
    bare = subprocess.run([python, path], capture_output=True, text=True, check=True).stdout
    with Session(path, python=python, options={"run": True, "breakpoints": [{"file": str(path), "line": line}]}) as s:
        s.end()
        assert s.output() == bare
    assert len(json.loads(bare[bare.rindex("[") :])) == 2 * 14  # the loop of two lines reports each of its turns


@every_form
def test_a_pause_in_a_loop_of_one_line(tmp_path, form):
    path = program(
        tmp_path,
        """
        def spin():
            n = 0
            print("in", flush=True)
            while n >= 0: n += 1
            return n
        def turn():
            n = 0
            print("turning", flush=True)
            for i in iter(lambda: 1 if n == 0 else None, None): i
            return n
        spin()
        turn()
    """,
    )
    with Session(path, **form, options={"run": True}) as s:
        for text, line, away in (("in", 4, "-5"), ("turning", 9, "1")):
            wait_until(lambda: text in s.output())
            s.ask("pause")
            stop = s.stopped()
            assert stop["reason"] == "pause" and stop["location"]["line"] == line
            s.ask("set", name="n", value=away)
            s.ask("continue")
        assert s.end()["code"] == 0
