"""Functions that a breakpoint has rewritten do what they did."""

import pathlib
import subprocess

import pytest
from debug_client import Session, program, pythons


@pytest.mark.parametrize("minor", [10, 11])
def test_rewritten_functions_do_what_they_did(tmp_path, minor):
    """Every line of some library modules gets a breakpoint; their results stay the same."""
    python = pythons().get((3, minor))
    if python is None:
        pytest.skip(f"Python 3.{minor} is not here")
    path = program(
        tmp_path,
        """
        import argparse, ast, difflib, fractions, heapq, io, json, re, statistics, textwrap, tokenize
        def work():
            r = [json.loads(json.dumps({"a": [1, 2, {"b": None}], "c": 1.5}, indent=2))]
            r.append(list(difflib.unified_diff("a b c".split(), "a c d".split())))
            r.append(textwrap.fill("hello world " * 20, 33))
            r.append(str(fractions.Fraction("3/7") + fractions.Fraction(1, 3)))
            r.append(statistics.stdev([1, 2, 3, 4.5]))
            r.append(list(heapq.merge([1, 4], [2, 3])))
            r.append([t[1] for t in tokenize.generate_tokens(io.StringIO("x = [1,\\n2]\\n").readline)])
            r.append(ast.unparse(ast.parse("def f(x):\\n  return [i for i in x if i]\\n")))
            p = argparse.ArgumentParser(); p.add_argument("--x", type=int); p.add_argument("y", nargs="*")
            r.append(vars(p.parse_args(["--x", "3", "q", "r"])))
            return r
        want = work()
        ready = True
        assert work() == want
        print("same")
    """,
    )
    library = pathlib.Path(
        subprocess.run([python, "-c", "import os; print(os.__file__)"], capture_output=True, text=True).stdout
    ).parent
    with Session(path, python=python) as s:
        s.stopped()
        s.ask("break", where="ready = True")
        s.go()
        for name in ("difflib.py", "textwrap.py", "heapq.py", "tokenize.py", "statistics.py"):
            for line in s.ask("source", file=str(library / name))["executable"]:
                s.ask(
                    "break",
                    file=str(library / name),
                    line=line,
                    condition="None" if line % 2 else "not_a_name_at_all",
                    log="1",
                )
        assert len(s.ask("breaks")["breakpoints"]) > 400
        s.ask("continue")
        event = None
        while event is None or event["event"] != "exited":  # a condition that raises stops once for each breakpoint
            while not s.events:
                s._read(60)
            event = s.events.pop(0)
            if event["event"] == "stopped":
                assert event["reason"] == "condition_error", event
                s.ask("continue")
        assert s.output() == "same\n" and event["code"] == 0
