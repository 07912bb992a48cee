"""The toolbox over REST: every command that is no conversation, with what the command line's options give."""

import pathlib
import sys

import pytest
from debug_service import PROGRAM, Home

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
pytest.importorskip("numpy")
PORT = """import numpy
from lockstep import checkpoint

def stage(x):
    return x / x

checkpoint("port.stage", stage(numpy.arange(4, dtype="float32")))
"""


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    made.ensure()
    yield made
    made.close()


def test_every_command_is_in_the_table(home):
    paths = set(home.http("GET", "/v1/openapi.json")[2]["paths"])
    commands = "coverage prune profile profile/compare runs/health runs/limits clean kill-all record".split()
    twins = "start continue next vars eval substitute wait status terminate".split()
    assert {f"/v1/{one}" for one in commands} | {f"/v1/debug/twin/{one}" for one in twins} <= paths
    told = (pathlib.Path(__file__).parents[2] / "docs" / "toolbox.md").read_text()
    for face in ("tutorial", "dap"):  # a conversation of its own, on a terminal or with an editor
        assert f"/v1/{face}" not in paths and f"`{face}` is not" in told


def test_a_recording_tells_its_health_and_what_ran(home):
    program = [sys.executable, str(home.write("port.py", PORT))]
    answer = home.call("record", program=program, cwd=str(home.folder), health=True, coverage=True)
    (found,) = answer["health"]["findings"]
    assert found["check"] == "not_finite" and not answer["health"]["healthy"]
    page, text = home.folder / "ran.html", home.folder / "ran.md"
    shown = home.call("coverage", run=answer["run"], html=str(page), markdown=str(text))
    ran = {function["name"]: function["calls"] for file in shown["files"] for function in file["functions"]}
    assert shown["run"] == answer["run"] and ran["stage"] == 1
    assert "port.py" in page.read_text() and "| program | 1 of 1 |" in text.read_text()
    plain = home.call("record", program=program, cwd=str(home.folder))
    assert "health" not in plain
    assert home.http("POST", "/v1/coverage", {"run": plain["run"]})[0] == 404, "it was not counted"


def test_a_program_or_a_run_but_not_both(home):
    for operation in ("coverage", "profile"):
        for arguments in ({}, {"run": "latest", "program": ["x.py"]}):
            status, _, answer = home.http("POST", f"/v1/{operation}", arguments)
            assert status == 400 and "a program to run, or a run" in answer["error"]["message"]
    script = home.write("plain.py", "pass\n")
    made = home.call("profile", program=[sys.executable, str(script)], cwd=str(home.folder))
    again = home.call("profile", run=made["run"], trace=str(home.folder / "trace.json"))
    assert again["wall_secs"] == made["wall_secs"] and (home.folder / "trace.json").exists()


def test_limits_are_shown_and_set(home):
    assert home.call("runs/limits")["refuse_bytes"] == 10 * 1000**3
    assert home.call("runs/limits", warn="2MB", refuse="3MB")["warn_bytes"] == 2 * 1000**2
    assert "3" in home.run("runs", "limits").stdout
    assert home.http("POST", "/v1/runs/limits", {"warn": "much"})[0] == 400
