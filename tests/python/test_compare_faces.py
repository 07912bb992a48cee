"""The same question has the same answer, byte for byte, on the terminal, over REST, over MCP, and live beside a run."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
from debug_service import PROGRAM, ROOT, Home
from test_compare import normal, write_run

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def write_weights(path, tensors):
    """A safetensors file, written by hand."""
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def linear_run(folder, prefix, weight, bias, scale=1.0, tokens=(0, 1, 2)):
    """Ids, a linear layer and what is made of it; `scale` is a mistake in the layer."""
    x = normal(6, 8)
    y = (x @ weight.T + bias) * scale
    return write_run(folder, [
        ("input_ids", "checkpoint", np.array([tokens], np.int64)), (f"{prefix}.proj", "input", x), (f"{prefix}.proj", "output", y.astype(np.float32)),
        (f"{prefix}.out", "output", np.tanh(y).astype(np.float32)),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("faces"))
    made.ensure()
    weight, bias = normal(8, 8, seed=1), normal(8, seed=2)
    f = made.folder
    linear_run(f / "reference", "net", weight, bias)
    linear_run(f / "again", "net", weight, bias + np.float32(1e-7))
    linear_run(f / "transposed", "net", weight.T, bias)
    linear_run(f / "renamed", "mine.layer", weight, bias, scale=1.5)
    linear_run(f / "other_words", "net", weight, bias, tokens=(0, 1, 3))
    linear_run(f / "other_names", "nothing.alike", normal(8, 8, seed=9), bias, tokens=(3, 3))
    write_weights(f / "model" / "net" / "model.safetensors", {"proj.weight": weight, "proj.bias": bias})
    write_weights(
        f / "mine" / "net" / "model.safetensors", {"proj.weight": np.ascontiguousarray(weight.T), "proj.bias": bias}
    )
    tokenizer = ROOT / "models" / "tiny" / "tokenizer"
    (f / "model" / "tokenizer").symlink_to(tokenizer)
    made.write("map.json", json.dumps({"rules": [{"candidate": "mine.layer.*", "reference": "net.*"}]}))
    made.write("tolerances.json", json.dumps({"*": 10.0}))
    yield made
    made.close()


QUESTIONS = {
    "match": {"candidate": "again"},
    "plain": {"candidate": "transposed"},
    "only": {"candidate": "transposed", "only": "net.out"},
    "map": {"candidate": "renamed", "map": "map.json"},
    "proposals": {"candidate": "renamed", "propose": True},
    "tolerances": {"candidate": "transposed", "tolerances": "tolerances.json"},
    "noise": {"candidate": "transposed", "noise": "again"},
    "weights": {"candidate": "transposed", "weights": "model"},
    "second weights": {"candidate": "transposed", "weights_a": "model", "weights_b": "mine"},
    "a part": {"candidate": "again", "partial": True},
    "tokenizer": {"candidate": "other_words", "weights": "model"},
    "nothing to compare": {"candidate": "other_names", "only": "no.such.name"},
}
EXPECTED = {
    "match": lambda answer: answer["verdict"] == "match",
    "plain": lambda answer: answer["verdict"] == "mismatch" and answer["first_divergence"]["name"] == "net.proj",
    "only": lambda answer: answer["compared"] == 1,
    "map": lambda answer: answer["first_divergence"]["name"] == "net.proj",
    "proposals": lambda answer: answer["first_divergence"]["name"] == "net.proj" and answer["map"]["rules"],
    "tolerances": lambda answer: answer["verdict"] == "match",
    "noise": lambda answer: answer["noise"]["source"] == "a second reference run",
    "weights": lambda answer: answer["causes"][0]["cause"] == "linear.transposed_weight",
    "second weights": lambda answer: (
        answer["causes"] and answer["causes"][0]["cause"].startswith(("weights.", "linear."))
    ),
    "a part": lambda answer: answer["verdict"] == "match",
    "tokenizer": lambda answer: (
        '"#"' in answer["causes"][0]["explanation"]
    ),  # in words: the model folder has a tokenizer
    "nothing to compare": lambda answer: (
        answer["verdict"] == "nothing_compared" and "--only" in answer["nothing_compared"]["expected"]
    ),
}
PATHS = ("reference", "candidate", "map", "tolerances", "noise", "weights", "weights_a", "weights_b")


def on_the_terminal(home, question):
    words = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in question.items()
        if name not in PATHS[:2]
    ]
    done = home.run("--json", "compare", question["reference"], question["candidate"], *words, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    return json.loads(done.stdout)


def over_rest(home, question):
    return home.get("compare", **{name: "true" if value is True else value for name, value in question.items()})


def over_mcp(home, question):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, {"jsonrpc": "2.0", "method": "notifications/initialized"},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "compare", "arguments": question}}]  # fmt: skip
    text = "".join(json.dumps(message) + "\n" for message in messages)
    done = subprocess.run(
        [PROGRAM, "mcp"], input=text, env=home.environment, cwd=home.folder, capture_output=True, text=True, timeout=120
    )
    (reply,) = [reply for reply in map(json.loads, done.stdout.splitlines()) if reply.get("id") == 2]
    assert not reply["result"].get("isError"), reply
    return reply["result"]["structuredContent"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_faces_agree(home, name):
    question = {
        key: str(home.folder / value) if key in PATHS else value
        for key, value in {"reference": "reference", **QUESTIONS[name]}.items()
    }
    answers = [face(home, question) for face in (on_the_terminal, over_rest, over_mcp)]
    assert EXPECTED[name](answers[0]), answers[0]
    texts = [json.dumps(answer, sort_keys=True) for answer in answers]
    assert texts[0] == texts[1] == texts[2]


def test_every_argument_is_asked_about_on_every_face(home):
    """An argument that one face has and this test does not ask is an argument nobody compares."""
    (operation,) = [
        path["get"] for name, path in home.http("GET", "/v1/openapi.json")[2]["paths"].items() if name == "/v1/compare"
    ]
    known = {one["name"] for one in operation["parameters"]}
    assert known == {"reference"}.union(*QUESTIONS.values())
    shown = home.run("compare", "--help").stdout
    assert all(f"--{name.replace('_', '-')}" in shown for name in known - set(PATHS[:2]))


def test_a_live_comparison_answers_as_compare_does(tmp_path):
    home = Home(tmp_path)
    settings = [
        "generate",
        "--prompt",
        "a red circle",
        "--steps",
        "2",
        "--width",
        "64",
        "--height",
        "64",
        "--output",
        tmp_path / "mine.png",
    ]
    home.run("--debug", *settings, "--seed", "1", "--run-name", "reference")
    live = home.run(
        "--json",
        "--debug",
        *settings,
        "--seed",
        "2",
        "--run-name",
        "mine",
        "--reference",
        "latest:reference",
        check=False,
    )
    assert live.returncode == 1, live.stderr
    answer = json.loads(live.stdout)["run"]["comparison"]
    weights = ["--weights", ROOT / "models" / "tiny"]
    later = json.loads(home.run("--json", "compare", "latest:reference", "latest:mine", *weights, check=False).stdout)
    assert later["first_divergence"]["name"] == "initial_latents_packed"
    del later["tensors"], later["unpaired"]
    assert json.dumps(answer, sort_keys=True) == json.dumps(later, sort_keys=True)
    shown = home.run(
        "--debug", *settings, "--seed", "2", "--run-name", "mine", "--reference", "latest:reference", check=False
    ).stdout
    verdict = home.run("compare", "latest:reference", "latest:mine", *weights, check=False).stdout
    verdict = verdict[: verdict.index("\nError over the stages")]
    assert "First divergence" in verdict and "\n" + verdict in shown
