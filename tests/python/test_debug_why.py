"""Why a breakpoint did not stop: each reason is named with what is needed to go on."""

import pathlib

import pytest
from debug_service import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def cause(home, id, name):
    """The cause of that name, in the answer as a program reads it and as a person does."""
    answer = home.debug("why", id)
    found = [one for one in answer["causes"] if one["cause"] == name]
    assert found, answer
    text = home.run("debug", "why", id).stdout
    assert answer["answer"] in text and name in text
    return found[0]


def test_the_file_was_never_executed_and_here_are_those_of_its_name(home):
    home.write("old/model.py", "def forward():\n    return 1\n")
    used = home.write("new/model.py", "def forward():\n    return 2\n")
    home.start(
        home.write("main.py", "import sys\nsys.path.insert(0, 'new')\nimport model\nmodel.forward()\nlast = 1\n")
    )
    id = home.debug("break", "old/model.py:2")["breakpoint"]["id"]
    home.debug("break", "main.py:5")
    assert home.debug("continue")["stop"]["location"]["line"] == 5
    assert str(used) in cause(home, id, "never_executed")["same_name"]  # while it runs
    assert home.debug("continue")["state"] == "ended"
    assert str(used) in cause(home, id, "never_executed")["same_name"]  # and after its end


def test_another_copy_is_imported_and_this_installs_yours(home):
    for folder in ("site-packages", "clone"):
        home.write(f"{folder}/diffuse/__init__.py", "")
        home.write(f"{folder}/diffuse/model.py", "def forward(x):\n    return x * 2\n")
    home.write("clone/pyproject.toml", "[project]\nname = 'diffuse'\n")
    home.start(
        home.write("main.py", "from diffuse.model import forward\nforward(2)\n"),
        options=["--env", f"PYTHONPATH={home.folder / 'site-packages'}"],
    )
    id = home.debug("break", "clone/diffuse/model.py:2")["breakpoint"]["id"]
    assert home.debug("continue")["state"] == "ended"
    copy = cause(home, id, "other_copy")
    assert copy["imported"] == str(home.folder / "site-packages/diffuse/model.py") and copy["asked"] == str(
        home.folder / "clone/diffuse/model.py"
    )
    assert copy["command"].endswith(f"-m pip install -e {home.folder / 'clone'}")


@pytest.mark.parametrize("line", [2, 3, 7])
def test_the_line_holds_no_code(home, line):
    script = home.write("main.py", "x = 1\n# a comment\n\nif x > 5:\n    y = 2\n\n# the end\n")
    home.start(script)
    made = home.debug("break", f"main.py:{line}")["breakpoint"]
    if line == 7:
        assert made["state"] == "invalid"  # nothing follows
        home.debug("continue")
        assert cause(home, made["id"], "no_code")["line"] == line
        return
    assert made["line"] == 4 and made["requested_line"] == line and "moved" in made["message"]
    assert home.debug("continue")["stop"]["location"]["line"] == 4


def test_the_condition_was_false_so_many_times(home):
    home.start(home.write("main.py", "for i in range(40):\n    square = i * i\n"))
    id = home.debug("break", "main.py:2", "--if", "i > 100")["breakpoint"]["id"]
    assert home.debug("continue")["state"] == "ended"
    false = cause(home, id, "condition_false")
    assert false["times"] == 40 and false["condition"] == "i > 100"
    assert "40" in home.debug("why", id)["answer"]


def test_the_program_ended_first_with_this_exception_at_this_line(home):
    home.start(
        home.write("main.py", "def load():\n    raise KeyError('transformer.weight')\n\nload()\nprint('never')\n"),
        options=["--on-exception", "end"],
    )
    id = home.debug("break", "main.py:5")["breakpoint"]["id"]
    assert home.debug("continue")["state"] == "ended"
    ended = cause(home, id, "ended_first")
    assert (
        ended["exception"]["type"] == "KeyError"
        and ended["location"]["line"] == 2
        and ended["location"]["file"] == str(home.folder / "main.py")
    )
    text = home.run("debug", "why", id).stdout
    assert "KeyError" in text and "main.py:2" in text


def test_a_killed_program_ended_first_too(home):
    began = home.start(
        home.write("main.py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nprint('never')\n")
    )
    id = home.debug("break", "main.py:3")["breakpoint"]["id"]
    assert home.debug("continue")["end"]["how"] == "killed", began
    assert cause(home, id, "ended_first")["how"] == "killed"


def test_the_reasons_outlive_the_service(home):
    home.start(home.write("main.py", "for i in range(4):\n    pass\n"))
    id = home.debug("break", "main.py:2", "--if", "i > 100")["breakpoint"]["id"]
    home.debug("continue")
    home.run("serve", "--stop")
    assert cause(home, id, "condition_false")["times"] == 4
    assert home.debug("breaks")["breakpoints"][0]["reached"] == 4
    assert home.error("why", "99")["code"] == "not_found"
