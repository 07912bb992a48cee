"""A sample of `./dev faults`: system calls that fail. LOCKSTEP_FAULT_KILLS=N adds N kills, as `./dev kills` has them.

LOCKSTEP_FAULT_SEED draws another sample."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from program import PROGRAM, ROOT

pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

SEED = int(os.environ.get("LOCKSTEP_FAULT_SEED", "2529859233"))  # a fixed sample until ./dev faults has been whole on one commit
POINTS = int(os.environ.get("LOCKSTEP_FAULT_POINTS", "80"))
KILLS = int(os.environ.get("LOCKSTEP_FAULT_KILLS", "0"))


def tool(name, *options):
    # A busy machine is slow, not hung: what hangs does so for good.
    environment = {**os.environ, "LOCKSTEP_BIN": str(PROGRAM), "LOCKSTEP_FAULT_SECS": "60"}
    done = subprocess.run([sys.executable, ROOT / "tools" / "faults" / name, "--seed", str(SEED), *options], env=environment, capture_output=True, text=True, timeout=900)
    print(done.stdout)  # the seed
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Of these every call of every quick command has been failed; allocations, of which there are thousands, are left to ./dev faults.
KINDS = "thread,open,read,write,sync,rename,map,fork,socket,folder"


def test_a_system_call_that_fails_leaves_nothing_broken():
    said = tool("inject.py", "--sample", str(POINTS), "--kind", KINDS)
    assert int(re.search(r"(\d+) fault points", said).group(1)) > 0, said


# Each verb of `debug` is one request to the service, as `debug sessions` is.
GROUPS = {"debug"}


def words_of(command):
    words = [word for word in command.words if not word.startswith("--") or len(command.words) == 1]
    return words[:2]


def test_every_command_of_the_program_is_tried():
    sys.path.insert(0, str(ROOT / "tools" / "faults"))
    from commands import COMMANDS

    documented = subprocess.run([PROGRAM, "docs"], capture_output=True, text=True, check=True).stdout
    named = [heading.split() for heading in re.findall(r"^## `lockstep (.+)`$", documented, re.M)]
    tried = [words_of(command) for command in COMMANDS]
    leaves = [words for words in named if not any(len(other) > len(words) and other[: len(words)] == words for other in named)]
    assert len(leaves) > 30, documented[:300]
    missing = [" ".join(words) for words in leaves if words[0] not in GROUPS and words not in [given[: len(words)] for given in tried]]
    missing += [group for group in GROUPS if group not in [given[0] for given in tried]]
    assert not missing, f"tools/faults/commands.py does not try {missing}"


# A program whose recorder was killed goes on, and its run counts as running until it ends: on a busy machine that lasts.
@pytest.mark.skipif(KILLS == 0, reason="LOCKSTEP_FAULT_KILLS is not set")
def test_a_command_that_is_killed_leaves_nothing_broken():
    assert f"{KILLS} kills" in tool("kills.py", "--count", str(KILLS))
