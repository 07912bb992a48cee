"""A comparison looks at the bytes, and what it could not look at is in its verdict."""

import json
import os
import pathlib
import shutil
import sys

import pytest
from program import PROGRAM, run, run_json

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

# Large enough to go through the writer's thread; two tensors of one shape that differ.
SOURCE = """
import numpy as np
from lockstep import checkpoint
rng = np.random.default_rng(0)
checkpoint("first", rng.standard_normal((64, 64)).astype("f4"))
checkpoint("second", rng.standard_normal((64, 64)).astype("f4"))
checkpoint("third", np.ones((2, 2), "f4"))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "program.py").write_text(SOURCE)
    done = run("--home", folder / "home", "--json", "record", "--", sys.executable, "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["records"] == 3, done.stderr
    return pathlib.Path(told["path"])


@pytest.fixture
def pair(whole, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(whole, tmp_path / name)
    return tmp_path / "one", tmp_path / "two"


def lines_of(folder):
    return (folder / "records.jsonl").read_text().splitlines()


def file_of(folder, name):
    return next(folder / record["file"] for record in map(json.loads, lines_of(folder)) if record["name"] == name)


def compare(pair, *options):
    done, document = run_json("compare", *pair, *options)
    return done.returncode, document


def verified(folder):
    done, document = run_json("runs", "show", folder, "--verify")
    return done.returncode, document["verified"]


def test_whole_runs_match(pair):
    status, document = compare(pair)
    assert (status, document["verdict"], document["compared"]) == (0, "match", 3)
    assert document["dropped_records"] == {"reference": 0, "candidate": 0} and document["damaged_tensors"] == 0
    assert verified(pair[1])[0] == 0


@pytest.mark.parametrize("side", [0, 1])
def test_overwritten_bytes_are_no_match(pair, side):
    file = file_of(pair[side], "second")
    data = bytearray(file.read_bytes())
    data[-800:-400] = bytes(400)
    file.write_bytes(data)
    status, document = compare(pair)
    assert (status, document["verdict"]) == (1, "mismatch") and document["damaged_tensors"] == 1
    assert document["first_divergence"]["name"] == "second"
    assert verified(pair[side]) == (1, {"tensors": 3, "bad": ["second"], "dropped_records": 0})


def test_a_file_that_points_at_another_tensor_is_no_match(pair):
    records = [json.loads(line) for line in lines_of(pair[1])]
    records[1]["file"] = records[0]["file"]
    (pair[1] / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    status, document = compare(pair)
    assert (status, document["verdict"]) == (1, "mismatch") and document["damaged_tensors"] == 1


def test_a_file_that_is_gone_makes_it_partial(pair):
    file_of(pair[1], "first").unlink()
    status, document = compare(pair)
    assert (status, document["verdict"], document["compared"], document["damaged_tensors"]) == (1, "partial", 2, 1)
    assert "PARTIAL" in run("compare", *pair).stdout


DROPPED = {
    "torn": lambda lines: lines[:2] + [lines[2][: len(lines[2]) // 2]],
    "malformed": lambda lines: [lines[0], '{"seq": 1, "name": ', lines[2]],
    "no record": lambda lines: [lines[0], "[]", lines[2]],
    "an escaping path": lambda lines: [lines[0], lines[1].replace("tensors/", "tensors/../../"), lines[2]],
    "an absolute path": lambda lines: [lines[0], lines[1].replace('"tensors/', '"/etc/'), lines[2]],
}


@pytest.mark.parametrize("way", DROPPED)
@pytest.mark.parametrize("side", [0, 1])
def test_records_that_are_dropped_make_it_partial(pair, way, side):
    lines = DROPPED[way](lines_of(pair[side]))
    (pair[side] / "records.jsonl").write_text("\n".join(lines) + ("" if way == "torn" else "\n"))
    status, document = compare(pair)
    assert (status, document["verdict"], document["compared"]) == (1, "partial", 2), document
    assert document["dropped_records"] == {"reference": 1 - side, "candidate": side}
    assert any("1 record could not be read" in note for note in document["notes"])
    done = run("compare", *pair)
    assert done.stdout.startswith("PARTIAL") and done.returncode == 1
    status, found = verified(pair[side])
    assert status == 1 and found["dropped_records"] == 1


def test_a_difference_stays_a_mismatch_where_records_were_dropped(pair):
    lines, third = lines_of(pair[1]), file_of(pair[1], "third")
    (pair[1] / "records.jsonl").write_text("\n".join([lines[0], "{", lines[2]]) + "\n")
    np.save(third, np.full((2, 2), 3, np.float32))
    assert compare(pair)[1]["verdict"] == "mismatch"


@pytest.mark.parametrize(
    "field", ["id", "name", "status", "created", "program", "model", "settings", "versions", "producer", "aliases"]
)
@pytest.mark.parametrize("value", [5, [{}]], ids=repr)
@pytest.mark.parametrize("status", ["finished", "running"])
def test_a_manifest_that_says_odd_things_is_read_or_refused(pair, field, value, status):
    manifest = json.loads((pair[1] / "run.json").read_text())
    manifest.update({"status": status, field: value})
    (pair[1] / "run.json").write_text(json.dumps(manifest))
    for words in (("compare", *pair), ("runs", "show", pair[1])):
        done = run(*words)
        assert done.returncode in (0, 1, 2) and "internal error" not in done.stderr, done.stderr


PIECES = [
    "run.json",
    "records.jsonl",
    "weights.jsonl",
    "process.json",
    "output.log",
    "lock",
    "coverage",
    "tensors",
    "operations",
    "weights",
]


@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize("piece", [*PIECES, "a tensor"])
def test_a_pipe_or_a_folder_in_a_file_s_place_is_never_waited_for(pair, piece, kind):
    """Opening a pipe that nobody writes to waits for ever."""
    place = file_of(pair[1], "second") if piece == "a tensor" else pair[1] / piece
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    os.mkfifo(place) if kind == "pipe" else place.mkdir()
    home = pair[1].parent / "home"
    (home / "runs").mkdir(parents=True)
    shutil.copytree(pair[0], home / "runs" / "good")
    (home / "runs" / "bad").symlink_to(pair[1])
    for words in (
        ["compare", *pair],
        ["runs", "show", pair[1], "--verify"],
        ["health", pair[1]],
        ["runs", "list"],
        ["clean", "--dry-run"],
        ["kill-all", "--dry-run"],
    ):
        done = run("--home", home, *words, timeout=20)
        assert done.returncode in (0, 1, 2, 3), (words, done.stderr)
        assert done.returncode < 2 or "lockstep: [" in done.stderr, (words, done.stderr)
        assert words[0] != "compare" or done.returncode != 0 or piece not in ("records.jsonl", "a tensor", "tensors"), (
            done.stdout
        )
