"""What SECURITY.md promises of a session: its code runs in its own program, and nobody else gets at the two."""

import json
import os
import pathlib
import signal
import socket
import stat

import pytest
from debug_service import PROGRAM, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

WAITS = """\
import os, time

def here():
    while not os.path.exists("go"):
        time.sleep(0.01)

here()
"""


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_code_is_evaluated_in_the_program(home):
    began = home.start(home.write("waits.py", WAITS))
    shown = home.debug("eval", "__import__('os').getpid()")
    assert shown["value"]["text"] == str(began["pid"]) and began["pid"] != home.service()["pid"], shown


def test_only_its_user_gets_at_a_session(home):
    began = home.start(home.write("waits.py", WAITS))
    folder = pathlib.Path(began["trace"]).parent
    assert mode_of(folder) == 0o700
    assert not [path for path in folder.iterdir() if stat.S_ISSOCK(path.lstat().st_mode)], "they are connected"
    for name in ("agent.token", "output.log", "trace.jsonl"):
        assert mode_of(folder / name) == 0o600, name


def test_a_caller_without_the_secret_is_not_listened_to(home):
    """The program is detached, the next service listens for it, and a stranger is there first."""
    began = home.start(home.write("waits.py", WAITS), options=("--run", "--on-disconnect", "wait"))
    folder = pathlib.Path(began["trace"]).parent
    os.kill(began["pid"], signal.SIGSTOP)
    pid = home.service()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))
    home.ensure()
    wait_until(lambda: (folder / "agent.sock").exists())
    assert mode_of((folder / "agent.sock").resolve()) == 0o600  # a link, where the name is too long for a socket's
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(30)
        stranger.connect(str((folder / "agent.sock").resolve()))
        hello = {"event": "hello", "seq": 1, "time": 0, "token": "0" * 64, "pid": began["pid"], "protocol": 1}
        stranger.sendall(json.dumps(hello).encode() + b"\n")
        assert stranger.recv(100) == b"", "closed without a word"
    os.kill(began["pid"], signal.SIGCONT)
    wait_until(lambda: home.debug("status")["state"] in ("running", "stopped"))
    (home.folder / "go").touch()
    assert home.debug("wait")["end"]["exit_code"] == 0
