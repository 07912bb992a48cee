"""What differs from one Python to the next, in every Python found."""

import subprocess

import pytest
from debug_client import BOOTSTRAP, Session, forms, program

_FORMS = forms()
every_form = pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS)
_NATIVE = {name: form for name, form in _FORMS.items() if "native" not in form}


@pytest.mark.parametrize("form", _NATIVE.values(), ids=_NATIVE)
def test_opcodes_are_known_by_their_right_numbers(form):
    """They are written down, since the module that knows them imports too much: a new Python has others."""
    names = ["RESUME", "MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR", "POP_TOP"]
    told = subprocess.run(
        [
            form["python"],
            "-c",
            f"""
import opcode, runpy, sys
ours, here = runpy.run_path({str(BOOTSTRAP.parent / "opcodes.py")!r}), opcode.opmap
prologue = {{here[name] for name in {names}}} | {{0}} if sys.version_info >= (3, 11) else {{here["GEN_START"]}}
yields = {{here["YIELD_VALUE"], here["RETURN_GENERATOR"] if sys.version_info >= (3, 11) else here["YIELD_FROM"]}}
print(set(ours["PROLOGUE"]) == prologue, set(ours["YIELDS"]) == yields)
""",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "True True\n"


@every_form
def test_the_program_finds_the_same_main_module(tmp_path, form):
    path = program(
        tmp_path,
        """
        import sys
        count: int = 3
        if count:
            name: "later" = "x"
        class Box:
            size: int
        def f(a: int) -> str: pass
        print(sorted(globals()), sys.modules["__main__"].__annotations__, Box.__annotations__, f.__annotations__)
        print(__name__, __file__, __spec__, __package__, __doc__, sys.argv, sys.path[0], __builtins__ is sys.modules["builtins"])
    """,
    )
    bare = subprocess.run([form["python"], path, "a"], capture_output=True, text=True, check=True).stdout
    with Session(path, "a", **form) as s:
        s.stopped()
        s.finish()
        assert s.output() == bare
