"""What a port did not record is replayed from what it did: the stages in between, each done otherwise in turn."""

import json

import numpy as np
import pytest
from test_compare import compare, normal, write_run
from test_truthful_answers import false_sentences


def silu(x):
    return x / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def reference(x):
    n = norm(x)
    return [
        ("net.embed", "output", x), ("net.block", "input", x), ("net.block.norm", "input", x), ("net.block.norm", "output", n),
        ("net.block.act", "input", n), ("net.block.act", "output", silu(n)), ("net.block", "output", x + silu(n)),
    ]  # fmt: skip


MISTAKES = {
    "activation.kind": lambda x: x + relu(norm(x)),
    "norm.missing": lambda x: x + silu(x),
    "residual.sign": lambda x: x - silu(norm(x)),
}


@pytest.mark.parametrize("cause", MISTAKES)
def test_two_tensors_named_by_hand_are_enough(tmp_path, cause):
    x = normal(1, 12, 16)
    a = write_run(tmp_path / "a", reference(x))
    b = write_run(tmp_path / "b", [("words", "checkpoint", x), ("end", "checkpoint", MISTAKES[cause](x))])
    answer = json.loads(compare(a, b, "--json").stdout)
    assert answer["causes"][0]["cause"] == cause, answer["causes"]
    assert answer["first_divergence"]["name"] == "net.block"
    assert false_sentences(a, b, answer) == []


@pytest.mark.parametrize("cause", ("activation.kind", "residual.sign"))
def test_tensors_of_a_large_model_are_replayed_at_a_few_tokens(tmp_path, cause):
    x = (
        normal(1, 1100, 2048) * np.linspace(0.2, 3, 1100, dtype=np.float32)[None, :, None]
    )  # else norms do next to nothing
    a = write_run(tmp_path / "a", reference(x))
    b = write_run(tmp_path / "b", [("net.embed", "output", x), ("net.block", "output", MISTAKES[cause](x))])
    answer = json.loads(compare(a, b, "--json").stdout)
    assert answer["first_divergence"]["name"] == "net.block" and answer["causes"][0]["cause"] == cause, answer["causes"]
