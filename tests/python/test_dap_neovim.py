"""A real editor on `lockstep dap`: nvim-dap in a headless Neovim, with the settings of docs/editors.md as they stand there.

Needs Neovim 0.7 or later and nvim-dap, where Neovim itself finds it or in the folder that LOCKSTEP_NVIM_DAP names.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from dap_client import LOOP
from debug_service import PROGRAM, ROOT, alive, wait_until


def neovim(*commands, **options):
    plugin = os.environ.get("LOCKSTEP_NVIM_DAP")
    words = ["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n"]
    words += ["--cmd", f"set runtimepath^={plugin}"] if plugin else []
    return subprocess.run(
        [*words, *commands], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, **options
    )


def _missing():
    if not pathlib.Path(PROGRAM).exists():
        return f"{PROGRAM} is not built"
    if shutil.which("nvim") is None:
        return "Neovim is not installed"
    found = neovim("-c", "lua io.stdout:write(pcall(require, 'dap') and 'found' or 'absent')", "-c", "qall!")
    return None if "found" in found.stdout else "Neovim has no nvim-dap"


MISSING = _missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def documented_settings():
    text = (ROOT / "docs" / "editors.md").read_text("utf-8").split("## Neovim", 1)[1]
    return text.split("```lua\n", 1)[1].split("```", 1)[0]


def lua_text(value):
    return json.dumps(str(value)) if "\n" not in str(value) else f"[=[\n{value}]=]"


def driven(home, how, script):
    """What the editor showed in this scenario of neovim_session.lua."""
    answers = home.folder / "shown.json"
    given = {
        "how": how,
        "script": script,
        "python": sys.executable,
        "answers": answers,
        "configuration": documented_settings(),
    }
    table = ", ".join(f"{name} = {lua_text(value)}" for name, value in given.items())
    driver = home.write(
        "driver.lua",
        f"given = {{ {table} }}\n" + (pathlib.Path(__file__).parent / "neovim_session.lua").read_text("utf-8"),
    )
    folders = {
        "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(home.folder / "state"),
        "XDG_CACHE_HOME": str(home.folder / "cache"),
    }
    done = neovim("-c", f"luafile {driver}", cwd=home.folder, env={**home.environment, **folders})
    assert answers.exists(), done.stdout + done.stderr
    shown = json.loads(answers.read_text("utf-8"))
    assert "problem" not in shown, json.dumps(shown, indent=1)
    return shown


def test_a_program_is_debugged_in_neovim(home):
    script = home.write("program.py", LOOP)
    shown = driven(home, "launch", script)
    first = shown["first"]
    assert (first["name"], first["line"], first["cursor"], first["path"], first["thread"]) == (
        "scale",
        5,
        5,
        str(script),
        "MainThread",
    )
    assert first["frames"] == ["scale:5", "<module>:10"] and first["locals"]["step"] == "3"
    assert shown["evaluated"] == "6" and "ZeroDivisionError" in shown["refused"]
    assert shown["set"] == "0.75" and shown["completed"] == "append"
    after = shown["after_step"]
    assert after["line"] == 6 and after["cursor"] == 6 and after["locals"]["sigma"] == "0.75"
    assert shown["caller"]["cursor"] == 10 and shown["caller"]["locals"]["step"] == "3"
    assert shown["after_out"]["name"] == "<module>" and shown["after_out"]["locals"]["values"].endswith("0.75")
    assert shown["again"]["frames"] == first["frames"] and shown["again"]["locals"]["step"] == "3", (
        "after a restart it stops there again"
    )
    assert shown["exit_code"] == 0
    assert "6 steps" in shown["repl"] and "at 0" in shown["repl"] and "at 3" in shown["repl"]
    assert not [note for note in shown["notes"] if "Error" in note or "error" in note], shown["notes"]


def test_a_running_program_is_paused_and_ended_from_neovim(home):
    script = home.write("program.py", "import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.01)\n")
    shown = driven(home, "terminate", script)
    assert shown["paused"]["name"] == "<module>" and shown["paused"]["line"] in (3, 4)
    wait_until(lambda: not alive(int(shown["pid"])))


def test_a_tensor_is_hovered_over_and_shown_as_a_picture_in_neovim(home):
    pytest.importorskip("numpy")
    script = home.write(
        "program.py", "import numpy\nx = numpy.arange(12, dtype='float32').reshape(3, 4)\nprint('ready')\n"
    )
    shown = driven(home, "tensor", script)
    assert shown["first"]["locals"]["x"].startswith("numpy float32[3, 4]")
    assert "max 11" in shown["hover"]
    assert base64.b64decode(shown["picture"]["png"]).startswith(b"\x89PNG") and shown["picture"]["width"] >= 4


def test_neovim_attaches_to_a_session_of_the_terminal_and_leaves_it(home):
    script = home.write("loop.py", "import time\ncount = 0\nwhile True:\n    count += 1\n    time.sleep(0.001)\n")
    home.start(script)
    shown = driven(home, "attach", script)
    assert shown["first"]["line"] == 1
    assert shown["second"]["line"] == 4 and shown["second"]["locals"]["count"] == "50"
    status = home.debug("status")
    assert status["state"] == "running" and alive(status["pid"]), "the editor has left, the program goes on"
    assert not home.debug("breaks")["breakpoints"]
