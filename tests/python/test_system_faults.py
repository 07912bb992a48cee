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
sys.path.insert(0, str(ROOT / "tools" / "faults"))
from commands import COMMANDS, PICTURE, inputs  # noqa: E402
from fork_server import ForkServer, build_shim  # noqa: E402

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

SEED = int(
    os.environ.get("LOCKSTEP_FAULT_SEED", "2529859233")
)  # a fixed sample until ./dev faults has been whole on one commit
POINTS = int(os.environ.get("LOCKSTEP_FAULT_POINTS", "80"))
KILLS = int(os.environ.get("LOCKSTEP_FAULT_KILLS", "0"))


def tool(name, *options):
    # A busy machine is slow, not hung: what hangs does so for good.
    environment = {**os.environ, "LOCKSTEP_BIN": str(PROGRAM), "LOCKSTEP_FAULT_SECS": "60"}
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "faults" / name, "--seed", str(SEED), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    print(done.stdout)  # the seed
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Allocations, of which there are thousands, have a share of their own.
@pytest.mark.parametrize("kinds", ["thread,open,read,write,sync,rename,map,fork,socket,folder", "allocate"])
def test_a_call_that_fails_leaves_nothing_broken(kinds):
    said = tool("inject.py", "--sample", str(POINTS), "--kind", kinds)
    assert int(re.search(r"(\d+) fault points", said).group(1)) > 0, said


def test_memory_that_is_never_given_again_ends_in_words(tmp_path):
    """oneDNN writes to memory that it did not get. Asking again helps where one call has failed; here none after it succeeds."""
    folder = tmp_path / "at"
    folder.mkdir()
    inputs(folder)
    server = ForkServer(build_shim(tmp_path), ["generate", *PICTURE], folder, tmp_path / "out")
    try:
        usual = server.run("none", 0, 300)
        assert usual.status == 0 and usual.calls["map"] > 20, usual
        said = set()
        for call in range(usual.calls["map"], 0, -max(1, usual.calls["map"] // 16)):
            (folder / "made.png").unlink(missing_ok=True)
            end = server.run("map", f"{call}+", 300)
            assert end.status in (0, 3), end
            said.add(end.stderr)
            if end.status == 3:
                assert re.match(r"lockstep: \[[a-z]+\] ", end.stderr) and not (folder / "made.png").exists(), end
        assert any("no more memory to give for kernels" in words for words in said), said
    finally:
        server.close()


# Each verb of these is one request to the service, as `debug sessions` is.
GROUPS = {"debug", "jobs"}


def words_of(command):
    words = [word for word in command.words if not word.startswith("--") or len(command.words) == 1]
    return words[:2]


def test_every_command_of_the_program_is_tried():
    documented = subprocess.run([PROGRAM, "docs"], capture_output=True, text=True, check=True).stdout
    named = [heading.split() for heading in re.findall(r"^## `lockstep (.+)`$", documented, re.M)]
    tried = [words_of(command) for command in COMMANDS]
    leaves = [
        words for words in named if not any(len(other) > len(words) and other[: len(words)] == words for other in named)
    ]
    assert len(leaves) > 30, documented[:300]
    missing = [
        " ".join(words)
        for words in leaves
        if words[0] not in GROUPS and words not in [given[: len(words)] for given in tried]
    ]
    missing += [group for group in GROUPS if group not in [given[0] for given in tried]]
    assert not missing, f"tools/faults/commands.py does not try {missing}"


# A program whose recorder was killed goes on, and its run counts as running until it ends: on a busy machine that lasts.
@pytest.mark.skipif(KILLS == 0, reason="LOCKSTEP_FAULT_KILLS is not set")
def test_a_command_that_is_killed_leaves_nothing_broken():
    assert f"{KILLS} kills" in tool("kills.py", "--count", str(KILLS))
