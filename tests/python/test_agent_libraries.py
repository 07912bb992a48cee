"""Statements and steps where the program calls libraries, in every Python found and without the extension."""

from agent_start import start  # noqa: F401

LIBRARY = """
def scale(x):
    factor = 3
    y = x * factor + 1
    return y

def call(function, x):
    before = 0
    value = function(x)
    return value
"""


def with_library(start, source, **files):
    """A program that finds further files in a folder of installed packages."""
    import pathlib
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp(prefix="lsp-")) / "site-packages"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return start(source, env={"PYTHONPATH": str(folder)})


def test_statements_are_found_in_imported_libraries(start):
    s = with_library(
        start, "import installed\nprint(installed.scale(2))\nprint(installed.scale(5))\n", installed=LIBRARY
    )
    s.stopped()
    one = s.ask("break", where="y = x * factor")["breakpoint"]
    assert one["state"] == "pending"
    stop = s.go()
    assert stop["location"]["function"] == "scale" and stop["location"]["text"] == "y = x * factor + 1"
    assert s.eval("x") == 2
    s.ask("break", where="factor = 3")  # of a library that is loaded already
    assert s.go()["location"]["text"] == "factor = 3"
    s.go()
    assert s.finish()["code"] == 0


def test_a_statement_of_the_program_itself_is_meant_before_those_of_libraries(start):
    s = with_library(
        start,
        """
        import installed
        installed.scale(1)
        def scale(x):
            factor = 3
            return x * factor
        print(scale(2))
    """,
        installed=LIBRARY,
    )
    s.stopped()
    s.ask("break", where="factor = 3")
    stop = s.go()
    assert stop["location"]["file"] == str(s.script), stop
    assert [place["file"] for place in s.ask("breaks")["breakpoints"][0]["places"]] == [str(s.script)]
    assert s.finish()["code"] == 0


def test_a_step_without_libraries_goes_through_them_to_the_programs_own_code(start):
    s = with_library(
        start,
        """
        import installed
        def double(x):
            return 2 * x
        a = installed.scale(1)
        b = installed.call(double, 4)
        print(a, b)
    """,
        installed=LIBRARY,
    )
    s.stopped()
    s.ask("break", where="a = installed.scale(1)")
    s.go()
    assert s.go("step", library=False)["location"]["text"] == "b = installed.call(double, 4)"
    assert s.go("step", library=False)["location"]["text"] == "return 2 * x"
    assert s.go("step", library=False)["location"]["text"] == "print(a, b)"
    assert s.finish()["code"] == 0 and s.output() == "4 8\n"


def test_the_package_is_importable_and_the_programs_own_comes_first(start):
    s = start(
        "import sys, lockstep\nprint(lockstep.checkpoint('x', 3), [one for one in sys.path if one.endswith('python')])\n"
    )
    s.stopped()
    assert s.finish()["code"] == 0 and s.output() == "3 []\n"
    s = with_library(start, "import lockstep\nprint(lockstep.NAME)\n", lockstep="NAME = 'its own'\n")
    s.stopped()
    assert s.finish()["code"] == 0 and s.output() == "its own\n"
