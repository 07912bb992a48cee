"""Stopping, stepping and evaluating, in every Python found and without the extension."""

import pytest
from agent_start import SUM, start  # noqa: F401
from debug_client import Failed, line_of
from debug_service import wait_until


def test_entry_is_before_the_first_line(start):
    s = start(SUM, "one", "two words")
    stop = s.stopped()
    assert stop["reason"] == "entry" and stop["location"]["line"] == 1 and stop["not_run_yet"]
    assert s.eval("'sys' in globals()") is False
    assert s.eval("__name__") == "__main__"
    assert s.eval("import sys\nsys.argv[1:]") == "list of 2: 'one', 'two words'"
    assert s.ask("location")["note"] == "this line has not run yet"
    gone = s.finish()
    assert (gone["how"], gone["code"]) == ("finished", 0) and s.process.returncode == 0
    assert s.output() == "done 10 15\n"


def test_hello_says_which_form_runs(start):
    s = start(SUM)
    assert s.hello["token"] == "secret" and s.hello["protocol"] == 1
    assert s.hello["native"] is not s.pure
    assert bool(s.hello["native_reason"]) is s.pure
    assert s.hello["engine"] == ("tracing" if s.pure else "monitoring" if s.hello["python"] >= "3.12" else "rewriting")


def test_breakpoint_hits_and_is_removed_in_the_loop(start):
    s = start(SUM)
    s.stopped()
    line = line_of(s.script, "total += i")
    s.ask("break", file=str(s.script), line=line)
    stop = s.go()
    assert stop["reason"] == "breakpoint" and stop["location"]["line"] == line and stop["breakpoints"] == [1]
    assert s.eval("(total, i)") == "tuple of 2: 0, 0"
    s.go()
    assert s.eval("i") == 1
    (one,) = s.ask("breaks")["breakpoints"]
    assert one["hit_count"] == 2 and one["state"] == "verified"
    assert s.ask("remove", id=1) == {"removed": [1]}
    assert s.finish()["code"] == 0


def test_breakpoint_set_while_its_frame_runs(start):
    s = start(SUM)
    s.stopped()
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'total = 0')}")
    s.go()
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'return total')}")  # the function is entered already
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'b = work')}")  # so is the module
    assert s.go()["location"]["text"] == "return total"
    assert s.go()["location"]["text"] == "b = work(6)"
    assert s.go()["location"]["text"] == "total = 0"
    assert s.go()["location"]["text"] == "return total"
    assert s.finish()["code"] == 0


def test_next_stays_in_the_frame_and_step_goes_in(start):
    s = start(SUM)
    s.stopped()
    assert s.go("next")["location"]["line"] == line_of(s.script, "def work")
    assert s.go("next")["location"]["text"] == "a = work(5)"
    assert s.go("next")["location"]["text"] == "b = work(6)"
    stop = s.go("step")
    assert stop["location"]["function"] == "work" and stop["location"]["text"] == "total = 0"
    assert s.go("next")["location"]["text"] == "for i in range(n):"
    stop = s.go("finish")
    assert stop["location"]["text"] == 'print("done", a, b)' and stop["return_value"]["value"] == 15
    assert s.eval("b") == 15
    assert s.finish("next")["code"] == 0


def test_step_with_count_and_until(start):
    s = start(SUM)
    s.stopped()
    s.ask("break", where="work")
    s.go()
    assert s.go("next", count=3)["location"]["text"] == "for i in range(n):"
    assert s.eval("i") == 0
    assert s.go("until")["location"]["text"] == "total += i"
    assert s.go("until", line=line_of(s.script, "return total"))["location"]["text"] == "return total"


def test_recursion_is_stepped_by_frame(start):
    s = start("""
        def down(n):
            if n == 0:
                return 0
            inner = down(n - 1)
            return inner + 1
        print(down(5))
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:4", condition="n == 3")
    s.go()
    assert s.ask("stack")["total"] == 4
    s.ask("clear")
    stop = s.go("next")
    assert stop["location"]["text"] == "return inner + 1" and s.eval("n") == 3 and s.eval("inner") == 2
    assert s.eval("n", frame=1) == 4
    assert s.finish()["code"] == 0 and s.output() == "5\n"


def test_eval_statements_imports_and_scopes(start):
    s = start("""
        def outer(k):
            captured = 10
            def inner(x):
                y = x + captured
                return y
            return inner(k)
        print(outer(1))
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:5")
    s.go()
    assert s.eval("import math\nmath.pi") == pytest.approx(3.14159265)
    assert s.eval('"import x"') == "import x"
    assert s.eval("[x + y + captured + i for i in range(2)]") == "list of 2: 22, 23"
    assert s.eval("(lambda q: q + y)(1)") == 12
    assert s.eval("if x:\n    z = 3\nelse:\n    z = 4\nz") == 3
    assert s.ask("eval", expression="w = 1")["value"] is None
    with pytest.raises(Failed) as caught:
        s.eval("1 +")
    assert caught.value.code == "bad_expression"
    with pytest.raises(Failed) as caught:
        s.eval("1/0")
    assert caught.value.code == "raised" and caught.value.error["exception"]["type"] == "ZeroDivisionError"
    assert s.ask("eval", expression="print('hi'); 5")["printed"] == "hi\n"
    assert s.eval("k", frame=1) == 1
    assert s.ask("set", name="y", value="99")["value"]["value"] == 99
    assert s.finish()["code"] == 0
    assert s.output() == "99\n"


def test_set_in_a_loop_and_in_globals(start):
    s = start("""
        n = 1
        def f():
            i = 0
            while i < 3:
                i += 1
            return i * n
        print(f())
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:5")
    s.go()
    s.ask("set", name="i", value="2")
    s.ask("clear")
    s.ask("eval", expression="global n\nn = 7")
    assert s.finish()["code"] == 0 and s.output() == "21\n"


def test_conditions_hits_once_and_log(start):
    s = start("""
        def f(i, data):
            x = i * 2
            return x
        for i in range(100):
            f(i, [i])
    """)
    s.stopped()
    where = f"{s.script}:3"
    s.ask("break", where=where, condition="i == 7")
    s.ask("break", where=where, condition="any(v > 20 for v in data)", once=True)
    s.ask("break", where=where, hits=50, once=True)
    s.ask("break", where=where, condition="i % 40 == 0", log='f"{i=} {x}"')
    stop = s.go()
    assert s.eval("i") == 7 and stop["breakpoints"] == [1]
    s.go()
    assert s.eval("i") == 21
    s.go()
    assert s.eval("i") == 49
    s.ask("continue")
    s.end()
    table = {one["id"]: one for one in next(e for e in s.passed if e["event"] == "final")["breakpoints"]}
    assert (table[1]["reached"], table[1]["hit_count"], table[1]["false_count"]) == (100, 1, 99)
    assert table[2]["state"] == table[3]["state"] == "done" and table[3]["hit_count"] == 50
    logged = [e["text"] for e in s.passed if e["event"] == "output"]
    assert logged == ["i=0 0", "i=40 80", "i=80 160"]


def test_condition_that_raises_stops_once(start):
    s = start("""
        def f(i):
            x = i
            return x
        for i in range(5):
            f(i)
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:3", condition="missing > 1")
    stop = s.go()
    assert stop["reason"] == "condition_error" and stop["exception"]["type"] == "NameError"
    gone = s.finish()
    assert gone["code"] == 0
    (one,) = next(e for e in s.passed if e["event"] == "final")["breakpoints"]
    assert one["errors"] == 5 and one["hit_count"] == 0


def test_unbound_local_in_a_condition_is_no_crash(start):
    s = start("""
        def f(n):
            if n:
                late = 5
            return n
        print(f(0), f(1))
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:4", condition="late == 5")
    assert s.go()["reason"] == "condition_error"
    assert s.go()["reason"] == "breakpoint"
    assert s.finish()["code"] == 0 and s.output() == "0 1\n"


def test_lines_without_code_move(start):
    s = start("""
        # a comment

        def f():
            '''doc'''
            # more
            return 1

        f()
        # the end
    """)
    s.stopped()
    one = s.ask("break", where=f"{s.script}:5")["breakpoint"]
    assert (one["line"], one["requested_line"]) == (6, 5) and "moved to 6" in one["message"]
    last = s.ask("break", where=f"{s.script}:9")["breakpoint"]
    assert last["state"] == "invalid" and "last line with code is 8" in last["message"]
    assert s.ask("why", id=last["id"])["causes"][0]["cause"] == "no_code"
    assert s.go()["location"]["line"] == 6


def test_functions_text_nested_and_decorated(start):
    s = start("""
        import functools

        def twice(f):
            @functools.wraps(f)
            def wrapper(*args):
                return f(*args) * 2
            return wrapper

        class Model:
            @twice
            def forward(self, x):
                for _ in range(3):
                    x += 1
                return x

            @staticmethod
            def loop():
                for i in range(2):
                    pass

        m = Model()
        print(m.forward(1))
        Model.loop()
    """)
    s.stopped()
    assert s.ask("break", where="Model.forward")["breakpoint"]["kind"] == "function"
    s.ask("break", where="return f(*args) * 2")
    s.ask("break", where="Model.loop")
    assert s.go()["location"]["text"] == "return f(*args) * 2"
    stop = s.go()
    assert stop["location"]["function"].endswith("forward") and stop["location"]["text"] == "for _ in range(3):"
    stop = s.go()  # once a call, though its first line is a loop
    assert stop["location"]["text"] == "for i in range(2):" and stop["location"]["function"].endswith("loop")
    assert s.finish()["code"] == 0 and s.output() == "8\n"


def test_generators_and_coroutines(start):
    s = start("""
        import asyncio

        def gen(n):
            for i in range(n):
                got = i * 10
                yield got

        async def co(x):
            await asyncio.sleep(0)
            y = x + 1
            return y

        async def main():
            return await asyncio.gather(co(1), co(2))

        values = gen(3)
        next(values)
        total = sum(values)
        print(total, asyncio.run(main()))
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'total = sum')}")
    s.go()
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'got = i')}")  # the generator is suspended in its middle
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'y = x + 1')}")
    s.go()
    assert s.eval("i") == 1 and s.ask("stack")["frames"][0]["kind"] == "generator"
    assert s.go("next")["location"]["text"] == "yield got"
    s.go()
    assert s.eval("i") == 2
    s.go()
    assert s.eval("x") == 1 and s.ask("stack")["frames"][0]["kind"] == "coroutine"
    assert s.go("next")["location"]["text"] == "return y"
    s.go()
    assert s.eval("x") == 2
    assert s.finish()["code"] == 0 and s.output() == "30 [2, 3]\n"


def test_a_yield_is_no_return(start):
    """Steps that leave a function for a generator stay with it when it gives a value."""
    s = start("""
        def scale(step):
            factor = 10 * step
            return factor

        def turns(n):
            for step in range(n):
                yield scale(step)
            last = n
            return last

        total = sum(turns(3))
        print(total)
    """)
    s.stopped()
    s.ask("break", where="return factor")
    s.go()
    for step in (1, 2):
        back = s.go("finish")
        assert back["location"]["text"] == "for step in range(n):" and back["return_value"]["value"] == 10 * (step - 1)
        assert s.go("next")["location"]["text"] == "yield scale(step)" and s.eval("step") == step
        assert s.go("next")["location"]["text"] == "return factor"
    s.ask("clear")
    assert s.go("finish")["location"]["text"] == "for step in range(n):"
    assert s.go("next")["location"]["text"] == "last = n"
    assert s.go("next")["location"]["text"] == "return last"
    assert s.go("next")["location"]["text"] == "print(total)" and s.eval("total") == 30
    assert s.finish()["code"] == 0 and s.output() == "30\n"


def test_threads_stop_one_by_one(start):
    s = start("""
        import threading

        def work(name):
            value = name * 2
            return value

        threads = [threading.Thread(target=work, args=(n,), name=f"w{n}") for n in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        print("joined")
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:4")
    s.ask("continue")
    idents = {}
    for _ in range(3):  # others go on while one is stopped, so that all three come to the line
        stop = s.stopped()
        idents[stop["thread"]["name"]] = stop["thread"]["id"]
    assert set(idents) == {"w0", "w1", "w2"}
    for name, ident in idents.items():
        assert s.eval("name", thread=ident) == int(name[1])
    after = s.go("next", thread=idents["w1"])
    assert after["thread"]["id"] == idents["w1"] and after["location"]["text"] == "return value"
    states = {one["name"]: one["state"] for one in s.ask("threads")["threads"]}
    assert states["w0"] == states["w2"] == "stopped" and states["MainThread"] == "running"
    assert s.finish()["code"] == 0 and s.output() == "joined\n"


def test_pause_in_a_loop_without_calls(start):
    s = start("""
        n = 0
        print("in", flush=True)
        while n >= 0:
            n += 1
    """)
    s.stopped()
    s.ask("continue")
    wait_until(lambda: "in" in s.output())
    s.ask("pause")
    stop = s.stopped()
    assert stop["reason"] == "pause" and stop["location"]["line"] in (3, 4)
    s.ask("set", name="n", value="-5")
    assert s.finish()["code"] == 0


def test_break_while_running(start):
    s = start("""
        import time
        def tick(n):
            return n + 1
        n = 0
        print("in", flush=True)
        while n >= 0:
            n = tick(n)
            time.sleep(0.001)
    """)
    s.stopped()
    s.ask("continue")
    wait_until(lambda: "in" in s.output())
    s.ask("break", where="tick")
    assert s.stopped()["location"]["function"] == "tick"
    s.ask("clear")
    s.ask("break", where=f"{s.script}:7")  # in the module, which is running
    assert s.go()["location"]["line"] == 7
    s.ask("clear")
    s.ask("terminate")
    gone = s.end()
    assert gone["how"] == "terminated"


CONDITIONS = [
    "i == 3",
    "-1 == i",
    "i != 2 and i < 5",
    "i % 3 == 1 and not flag",
    "not flag",
    "i and flag or x",
    "name == 'a'",
    "x == i",
    "x != x",
    "big > 2 ** 70",
    "big == 1 << 80",
    "i is None",
    "i is not None",
    "items[1] == i",
    "items[-1] > i",
    "items[i % 2]",
    "box.size > i",
    "box.size - i * 2 >= 0",
    "i & 1",
    "i // 2 == 1",
    "0 < i < 4",
    "i in items",
    "any(n == i for n in items)",
    "len(items) > i",
    "True",
    "''",
]


def test_conditions_mean_what_python_means(start):
    """One line a condition: simple ones are worked out without Python code on 3.12 and later, the others are compiled."""
    lines = "\n".join(f"            a{number} = i" for number in range(len(CONDITIONS)))
    s = start(f"""
        class Box:
            size = 4
        def work(i, flag, x, name, big, items, box):
{lines}
        for i in range(7):
            work(i, i > 3, i * 0.5 if i != 4 else float("nan"), "ab"[i % 2], 1 << 77 + i % 4, [i, 2, 3], Box())
    """)
    box = type("Box", (), {"size": 4})()
    expected = []
    for i in range(7):
        scope = {
            "i": i,
            "flag": i > 3,
            "x": i * 0.5 if i != 4 else float("nan"),
            "name": "ab"[i % 2],
            "big": 1 << 77 + i % 4,
            "items": [i, 2, 3],
            "box": box,
        }
        expected += [f"{number} {i}" for number, text in enumerate(CONDITIONS) if eval(text, scope)]
    s.stopped()
    for number, text in enumerate(CONDITIONS):
        s.ask(
            "break", where=f"{s.script}:{line_of(s.script, f'a{number} = i')}", condition=text, log=f"f'{number} {{i}}'"
        )
    assert s.finish()["code"] == 0
    assert [
        event["text"] for event in s.passed if event["event"] == "output" and event["category"] == "log"
    ] == expected


def test_lines_of_log_breakpoints_stand_among_the_programs_output(start):
    s = start("""
        for i in range(3):
            print("line", i)
        print("end")
    """)
    s.stopped()
    s.ask("break", where=f"{s.script}:{line_of(s.script, 'print(')}", log="f'i is {i}'")
    assert s.finish()["code"] == 0
    expected = "".join(f"lockstep: breakpoint 1: i is {i}\nline {i}\n" for i in range(3))
    assert s.output() == expected + "end\n"
