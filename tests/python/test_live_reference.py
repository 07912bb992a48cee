"""The two steps of a port: the official pipeline recorded, then the engine beside it, tensor by tensor."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from program import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytest.importorskip("diffusers")
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")},
    "OMP_NUM_THREADS": "2",
}
SETTINGS = [
    "--prompt",
    "a cat",
    "--negative-prompt",
    " ",
    "--steps",
    "6",
    "--guidance",
    "4",
    "--width",
    "64",
    "--height",
    "64",
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """(model folder, home) with the official pipeline's run in it, named `reference`."""
    folder = tmp_path_factory.mktemp("live")
    maker = ROOT / "tools" / "reference" / "tiny_pipeline.py"
    subprocess.run([sys.executable, str(maker), str(folder / "model"), "--seed", "5"], check=True, capture_output=True)
    done = subprocess.run(
        [PROGRAM, "--home", str(folder / "home"), "reference", "generate", "--model", str(folder / "model"), *SETTINGS]
        + ["--seed", "42", "--dtype", "f32", "--python", sys.executable, "--output", str(folder / "official.png")],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "official.png").stat().st_size > 0
    return folder / "model", folder / "home"


def command(reference, tmp_path, *options, seed=42, before=()):
    model, home = reference
    return [PROGRAM, "--home", str(home), "--debug", *before, "generate", "--model", str(model), *SETTINGS,
            "--seed", str(seed), "--output", str(tmp_path / "mine.png"), *map(str, options)]  # fmt: skip


def run(*arguments, status, environment=None):
    done = subprocess.run(arguments, capture_output=True, text=True, env={**ENVIRONMENT, **(environment or {})})
    assert done.returncode == status, (done.returncode, done.stderr, done.stdout[-2000:])
    return done


def test_a_live_table_and_a_verdict(reference, tmp_path):
    process = subprocess.Popen(
        command(reference, tmp_path, "--reference", "latest:reference"),
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    head, first = process.stdout.readline(), process.stdout.readline()
    # The rest of the table is more than a pipe holds: whoever has read one row has before them a run that is going on.
    running = json.loads((reference[1] / "latest" / "generate" / "run.json").read_text())
    assert running["status"] == "running" and process.poll() is None
    rest = process.stdout.read()
    assert process.wait() == 0
    assert len(rest) > 1 << 16, "a longer table is needed to see that it is live"
    assert head.split() == ["tensor", "relative", "L2", "max", "abs"]
    assert first.split()[0] == "text_encoder.model.embed_tokens"
    table, verdict = rest.split("\n\n", 1)
    errors = [float(line.split()[-2]) for line in table.splitlines()]
    assert len(errors) > 600 and all(error >= 0 for error in errors)  # what they mean is for the verdict to say
    assert verdict.startswith("MATCH: ")
    assert str(tmp_path / "mine.png") in verdict.splitlines()


def test_a_difference_is_named_and_is_the_exit_status(reference, tmp_path):
    done = run(*command(reference, tmp_path, "--reference", "latest:reference", seed=1), status=1)
    verdict = done.stdout.split("\n\n", 1)[1]
    assert verdict.startswith("MISMATCH: first at initial_latents_packed")
    assert "First divergence" in verdict and "Cause" in verdict
    done = run(*command(reference, tmp_path, "--reference", "latest:reference", "--json", seed=1), status=1)
    document = json.loads(done.stdout)["run"]
    assert document["comparison"]["verdict"] == "mismatch" and document["substituted"] == 0
    assert document["comparison"]["first_divergence"]["name"] == "initial_latents_packed"


def test_substituted_tensors_heal_what_follows(reference, tmp_path):
    options = ["--reference", "latest:reference", "--substitute", "initial_latents_packed", "--json"]
    done = run(*command(reference, tmp_path, *options, seed=1), status=1)
    document = json.loads(done.stdout)["run"]
    assert document["substituted"] == 1
    assert document["comparison"]["first_divergence"]["name"] == "initial_latents_packed"  # recorded as it was
    records = [json.loads(line) for line in pathlib.Path(document["path"], "records.jsonl").read_text().splitlines()]
    assert [record["name"] for record in records if record.get("substituted")] == ["initial_latents_packed"]
    # With the reference's noise the reference's image comes out.
    image = next(record for record in records if record["name"] == "image")
    official = (reference[1] / "latest" / "reference").resolve()
    theirs = next(
        json.loads(line) for line in (official / "records.jsonl").read_text().splitlines() if '"name": "image"' in line
    )
    difference = np.load(official / theirs["file"]).astype(int) - np.load(pathlib.Path(document["path"], image["file"]))
    assert abs(difference).max() <= 1
    # By glob, in all steps: every tensor of the transformer.
    options[3] = "transformer.*"
    done = run(*command(reference, tmp_path, *options, "--tap", "transformer.*", "--tap", "latents", seed=1), status=1)
    assert json.loads(done.stdout)["run"]["substituted"] > 100


def test_what_cannot_be_compared_is_an_error(reference, tmp_path):
    done = run(*command(reference, tmp_path, "--reference", "latest:reference", "--tap", "nothing.*"), status=2)
    assert "no tensor of this run could be compared" in done.stderr
    done = run(*command(reference, tmp_path, "--reference", "latest:reference", "--substitute", "nothing.*"), status=0)
    assert "no tensor of the reference matched --substitute nothing.*" in done.stderr
    done = run(*command(reference, tmp_path, "--substitute", "*"), status=2)
    assert "--reference RUN" in done.stderr
    done = run(*command(reference, tmp_path, "--reference", "latest:referenze"), status=2)
    assert "latest:reference" in done.stderr


def test_the_engine_in_the_ledger(reference, tmp_path):
    """Two runs of the engine, as it is and on the reference's tensors: the one source of its error is named."""
    model, home = reference
    engine = [
        PROGRAM,
        "generate",
        "--model",
        str(model),
        *SETTINGS,
        "--seed",
        "1",
        "--output",
        str(tmp_path / "mine.png"),
    ]
    page = tmp_path / "ledger.html"
    done = run(
        PROGRAM,
        "--json",
        "--home",
        str(home),
        "ledger",
        "latest:reference",
        "--report",
        str(page),
        "--",
        *engine,
        status=1,
    )
    document = json.loads(done.stdout)
    words = {entry["name"]: entry["word"] for entry in document["entries"]}
    assert [name for name, word in words.items() if word == "source"] == ["initial_latents_packed"]
    assert "noise_pred" in words and page.stat().st_size > 100_000
    assert '"word":"source"' in page.read_text()


def test_the_engine_is_recorded_like_any_program(reference, tmp_path):
    model, home = reference
    engine = [
        PROGRAM,
        "generate",
        "--model",
        str(model),
        *SETTINGS,
        "--seed",
        "1",
        "--output",
        str(tmp_path / "mine.png"),
    ]
    done = run(
        PROGRAM,
        "--json",
        "--home",
        str(home),
        "record",
        "--name",
        "engine",
        "--tap",
        "latents",
        "--",
        *engine,
        status=0,
    )
    document = json.loads(done.stdout)
    assert document["records"] == 6 and document["status"] == "finished"
    manifest = json.loads(pathlib.Path(document["path"], "run.json").read_text())
    assert manifest["name"] == "engine" and manifest["producer"]["language"] == "c++"


def test_without_options_both_make_the_embedded_models_picture(tmp_path):
    """Size, guidance, negative prompt and dtype are the model's in both: nobody has to write them twice."""
    shared = ["--prompt", "a red circle left of a blue square", "--steps", "2"]
    home = ["--home", str(tmp_path / "home")]
    run(PROGRAM, *home, "reference", "generate", *shared, "--python", sys.executable, status=0)
    done = run(
        PROGRAM,
        *home,
        "--debug",
        "generate",
        *shared,
        "--reference",
        "latest:reference",
        "--output",
        str(tmp_path / "mine.png"),
        status=0,
    )
    assert "MATCH: " in done.stdout
