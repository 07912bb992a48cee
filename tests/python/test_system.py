"""Both forms of what the tests ask of the system say the same of a process that is known."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
from system import OfLinux, OfMac, holders, processes_below

FORMS = [OfLinux, OfMac] if sys.platform != "darwin" else [OfMac]
PROGRAM = """
import mmap, sys, threading
held = open(sys.argv[1], "r+b")
mapped = mmap.mmap(held.fileno(), 0)
threading.Thread(target=sys.stdin.read).start()
print("ready", flush=True)
"""


@pytest.fixture
def child(tmp_path):
    (tmp_path / "held").write_bytes(b"x" * 4096)
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "held"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout.readline() == b"ready\n"
    yield started
    started.kill()
    started.communicate()


def form_or_skip(form):
    if form is OfMac and not (shutil.which("ps") and shutil.which("lsof")):
        pytest.skip("there is no ps or no lsof")
    return form()


@pytest.mark.parametrize("form", FORMS)
def test_a_process_is_known(form, child, tmp_path):
    system, pid, held = form_or_skip(form), child.pid, str(tmp_path / "held")
    assert system.is_running(pid) and system.parents()[pid] == os.getpid()
    assert system.command_words(pid)[-1] == held
    assert 1 << 20 < system.resident_bytes(pid) < 1 << 30
    assert held in system.open_files(pid) and held in system.mapped_files(pid)
    if form is OfLinux or sys.platform == "darwin":
        assert system.thread_count(pid) == 2  # -M is for something else in the ps of Linux
    child.kill()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not system.is_running(pid), "it has ended, and nobody has waited for it"


@pytest.mark.parametrize("form", FORMS)
def test_a_port_is_known(form):
    system = form_or_skip(form)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert system.listens_at(server.getsockname()[1]) == {"127.0.0.1"}


def test_what_a_process_started_and_holds(child, tmp_path):
    assert child.pid in processes_below(os.getpid()) and holders(tmp_path / "held") == {child.pid}
