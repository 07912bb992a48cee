"""Good and damaged files: we accept and reject what the official libraries accept and reject. Where we are stricter the
reason must stand in docs/formats.md, and every reason there must be met by a file here."""

import json
import pathlib
import random
import re
import subprocess
import sys

import pytest
from crafted_files import CRAFTED
from io_probe import ROOT, Probe

FORMATS = {"npy": ".npy", "npz": ".npz", "safetensors": ".safetensors", "torch_file": ".pt"}


class Judge:
    def __init__(self):
        self.process = None

    def ask(self, path):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, pathlib.Path(__file__).with_name("io_judge.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(10)
            self.process = None
            return {"error": "the official library died"}
        return json.loads(line)

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(60)


def reasons(heading):
    """The phrases in the first column of the table under a heading of docs/formats.md."""
    text = (ROOT / "docs/formats.md").read_text()
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.M)


def damaged(data, rng):
    yield from (data[:n] for n in range(0, min(len(data), 160)))
    yield from (data[:-n] for n in range(1, min(len(data), 120)))
    yield from (data[: rng.randrange(len(data))] for _ in range(20))
    for _ in range(250):
        at = rng.randrange(len(data))
        yield data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    for _ in range(60):
        at, other, n = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 9)
        yield data[:at] + data[at + n :]
        yield data[:at] + data[other : other + n] + data[at:]
        yield data[:at] + rng.choice([b"\0", b"\xff", b"\x7f"]) * n + data[at + n :]
    yield data + b"\0"
    yield data + data


def corpus(kind):
    rng = random.Random(7)
    for path in sorted((ROOT / "fuzz/corpus" / kind).iterdir()):
        data = path.read_bytes()
        if len(data) < 3000 and not re.fullmatch("[0-9a-f]{40}", path.name):  # what the fuzzers found is theirs
            yield data
            yield from damaged(data, rng)
    yield from CRAFTED[kind]()


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """(format, bytes, ours, theirs) of every file of the corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    judge, found = Judge(), []
    with Probe() as probe:
        for kind, extension in FORMATS.items():
            for data in dict.fromkeys(corpus(kind)):
                path = folder / f"file{extension}"
                path.write_bytes(data)
                found.append((kind, data, probe.ask("check", path), judge.ask(path)))
    judge.close()
    return found


def show(kind, data, ours, theirs):
    return f"{kind} {data[:200]!r}{'...' if len(data) > 200 else ''}\n   ours: {ours}\n   theirs: {theirs}"


def test_nothing_they_refuse_is_accepted(verdicts):
    listed = reasons("Where Lockstep accepts more")
    wider = [
        v
        for v in verdicts
        if "error" not in v[2] and "error" in v[3] and not any(phrase in v[3]["error"] for phrase in listed)
    ]
    assert not wider, f"{len(wider)} files\n" + "\n".join(show(*v) for v in wider[:12])


def test_what_we_refuse_and_they_accept_has_a_listed_reason(verdicts):
    listed = reasons("Where Lockstep is stricter")
    stricter = [v for v in verdicts if "error" in v[2] and "error" not in v[3]]
    unlisted = [v for v in stricter if not any(phrase in v[2]["message"] for phrase in listed)]
    assert not unlisted, f"{len(unlisted)} files\n" + "\n".join(show(*v) for v in unlisted[:12])
    unmet = [phrase for phrase in listed if not any(phrase in v[2]["message"] for v in stricter)]
    assert not unmet, f"no file of the corpus meets {unmet}"


def test_what_both_accept_has_the_same_content(verdicts):
    both = [v for v in verdicts if "error" not in v[2] and "error" not in v[3]]
    # Formats whose numbers we give, and the library their bytes: docs/formats.md says so.
    both = [v for v in both if not (v[0] == "safetensors" and re.search(rb'"dtype":"(F4|F8_E8M0)"', v[1]))]
    different = [v for v in both if sorted(v[2]["tensors"], key=str) != sorted(v[3]["tensors"], key=str)]
    assert not different, f"{len(different)} of {len(both)}\n" + "\n".join(show(*v) for v in different[:12])
    assert len(both) > 300


def test_our_refusals_name_the_file_and_the_place_and_are_never_our_bug(verdicts):
    bare = {}
    for kind, data, ours, _ in verdicts:
        if "error" in ours:
            assert ours["error"] in ("corrupt", "unsupported", "bad_input", "memory"), show(kind, data, ours, {})
            if f"file{FORMATS[kind]}" not in ours["message"] or not re.search(r"offset \d+|expected ", ours["message"]):
                bare[re.sub(r"\d+", "N", ours["message"])] = show(kind, data, ours, {})
    assert not bare, "\n".join(bare)
