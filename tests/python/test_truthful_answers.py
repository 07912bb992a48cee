"""Every sentence of an answer is held against the two runs (benchmarks/ports/truth.py): none is false, and a lie is found."""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from test_compare import block, compare, normal, write_run

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "ports"))
from truth import false_sentences  # noqa: E402


def renamed(records):
    return [(name.replace("net.block", "Port.layer"), role, array) for name, role, array in records]


def rounded(records):
    return [
        (name, role, (array * (1 + 1e-7 * normal(*array.shape, seed=i))).astype(np.float32))
        for i, (name, role, array) in enumerate(records)
    ]


def answered(tmp_path, reference, candidate):
    a, b = write_run(tmp_path / "a", reference), write_run(tmp_path / "b", candidate)
    return a, b, json.loads(compare(a, b, "--json").stdout)


X, SHIFT, SCALE = normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2)
RIGHT, WRONG = block(X, SHIFT, SCALE), block(X, SHIFT, SCALE, exchanged=True)
PORTS = {
    "equal": RIGHT,
    "rounded": rounded(RIGHT),
    "other names": renamed(rounded(RIGHT)),
    "outputs alone": [one for one in rounded(RIGHT) if one[1] == "output"],
    "a mistake": WRONG,
    "a mistake, outputs alone": [one for one in WRONG if one[1] == "output"],
    "a factor": [(name, role, 3 * array if name == "net.block.mlp" else array) for name, role, array in RIGHT],
}


@pytest.mark.parametrize("port", PORTS)
def test_no_sentence_is_false(tmp_path, port):
    a, b, answer = answered(tmp_path, RIGHT, PORTS[port])
    assert false_sentences(a, b, answer) == []
    assert answer["verdict"] == ("match" if "mistake" not in port and "factor" not in port else "mismatch")


LIES = {
    "a difference that is none": lambda answer: answer.update(verdict="mismatch"),
    "an error": lambda answer: answer["tensors"][3]["error"].update(relative=0.5),
    "identical": lambda answer: answer["tensors"][4]["error"].update(identical=True),
    "not kept": lambda answer: answer["tensors"][2].update(state="unread"),
    "a count": lambda answer: answer["notes"].append("3 tensors of yours have no partner, 3 names; the first is x"),
    "harmless": lambda answer: answer["notes"].append("net.block.other: 7 floors, a little beyond its limit: harmless"),
    "beyond a limit that it keeps": lambda answer: answer["notes"].append(
        "net.block.norm: 0.9 floors, a little beyond its limit, and everything made from it agrees: harmless"
    ),
    "a bug beside a match": lambda answer: answer["growth"].update(words="the error begins at net.block: a bug there"),
    "a tensor that is not there": lambda answer: answer["tensors"][1]["partner"].update(name="nobody"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found(tmp_path, lie):
    a, b, answer = answered(tmp_path, RIGHT, rounded(RIGHT))
    told = copy.deepcopy(answer)
    LIES[lie](told)
    assert false_sentences(a, b, told) != []


def test_lies_about_a_difference_are_found(tmp_path):
    a, b, answer = answered(tmp_path, RIGHT, WRONG)
    for lie in (
        lambda told: told["first_divergence"].update(name="net.block.norm", role="output"),
        lambda told: (
            told["first_divergence"]["good_inputs"].append("net.block.mlp")
            or told["first_divergence"].update(name="net.block", role="output")
        ),
        lambda told: told["causes"][0].update(explanation="reference: y; yours: 1 * y"),
        lambda told: told["causes"][0].update(residual=7.0),
        lambda told: told["first_divergence"]["shape"].update(candidate=[1, 2, 3]),
    ):
        told = copy.deepcopy(answer)
        lie(told)
        assert false_sentences(a, b, told) != []
