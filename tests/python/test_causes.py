"""The table of causes: what the documentation says, and what the fault sets accept, is what the program can say."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import causes_table  # noqa: E402


def test_ids_are_sorted_and_said_once():
    ids = [cause for cause, _, _ in causes_table.causes()]
    assert ids == sorted(set(ids))


def test_the_documentation_shows_the_table_as_it_is(tmp_path):
    script, docs = ROOT / "tools" / "causes_table.py", ROOT / "docs" / "diagnosis.md"
    assert subprocess.run([sys.executable, script, "--check", docs]).returncode == 0
    stale = tmp_path / "diagnosis.md"
    stale.write_text(docs.read_text().replace("| `norm.eps` |", "| `norm.epsilon` |"))
    assert subprocess.run([sys.executable, script, "--check", stale]).returncode == 1


def test_fault_sets_accept_no_cause_that_does_not_exist():
    """A cause that nobody can say is no alternative: it only makes a set look more lenient than it is."""
    known = {cause for cause, _, _ in causes_table.causes()}
    families = {cause.partition(".")[0] for cause in known}
    unknown = []
    for path in sorted((ROOT / "benchmarks" / "faults").glob("*.py")):
        for line in path.read_text().splitlines():
            for listed in re.findall(r"\(((?:\"[a-z0-9_]+\.[a-z0-9_]+\",? ?)+)\)", line):
                words = re.findall(r"\"([a-z0-9_.]+)\"", listed)
                unknown += [
                    f"{path.name}: {word}" for word in words if word.partition(".")[0] in families and word not in known
                ]
    assert not unknown
