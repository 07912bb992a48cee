"""`lockstep reference`: the official pipeline, recorded as a program is that knows nothing of it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from recorded import ENVIRONMENT, Recorded

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin" / "lockstep"))
pytestmark = pytest.mark.skipif(not BINARY.exists(), reason=f"{BINARY} is not built")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    maker = ROOT / "tools" / "reference" / "tiny_pipeline.py"
    pytest.importorskip("diffusers")
    if not maker.exists():
        pytest.skip("tools/reference/tiny_pipeline.py is absent")
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([sys.executable, str(maker), str(folder), "--seed", "3"], check=True, capture_output=True)
    return folder


def test_the_official_pipeline(tiny_model, tmp_path):
    """`reference generate` records the names, order and bytes of the hand-written recorder of tools/reference."""
    settings = ["--prompt", "a cat", "--negative-prompt", " ", "--seed", "42", "--steps", "2", "--guidance", "4"]
    settings += ["--width", "64", "--height", "64", "--dtype", "f32"]
    image = tmp_path / "image.png"
    done = subprocess.run(
        [str(BINARY), "--json", "--home", str(tmp_path / "home"), "reference", "generate", "--model", str(tiny_model)]
        + [*settings, "--python", sys.executable, "--output", str(image)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    run = Recorded(done, json.loads(done.stdout)["path"])
    assert image.stat().st_size > 0 and run.manifest["name"] == "reference"
    assert run.manifest["settings"]["prompt"] == "a cat" and run.manifest["settings"]["seed"] == 42

    by_hand = tmp_path / "by_hand"
    subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools" / "reference" / "record_official.py"),
            str(tiny_model),
            str(by_hand),
            *settings,
        ],
        check=True,
        capture_output=True,
        env=ENVIRONMENT,
    )
    expected = [json.loads(line) for line in (by_hand / "records.jsonl").read_text("utf-8").splitlines()]

    def keys(records):
        # Complex numbers are pairs of reals here.
        shapes = [r["shape"] + [2] * ("complex" in r["dtype"]) for r in records]
        return [
            (r["name"], r["step"], r["hit"], sorted(r["tags"].items()), r["checksum"], shape)
            for r, shape in zip(records, shapes)
        ]

    inputs = [record for record in run.records if record["role"] == "input"]
    assert inputs and all(record["name"].split(".")[0] in ("text_encoder", "transformer", "vae") for record in inputs)
    assert keys([record for record in run.records if record["role"] != "input"]) == keys(expected)
    stages = {record["name"] for record in run.records if record["role"] == "checkpoint"}
    assert stages >= {"prompt_embeds", "negative_prompt_embeds", "initial_latents_packed", "noise_pred", "latents"}
    assert stages >= {"latents_denormalized", "image"}
    passes = {record["tags"].get("pass") for record in run.records if record["name"] == "noise_pred"}
    assert passes == {"cond", "uncond", "combined"}


def test_steps_and_globs_of_the_official_pipeline(tiny_model, tmp_path):
    settings = ["--prompt", "a cat", "--negative-prompt", " ", "--seed", "1", "--steps", "3", "--guidance", "4"]
    settings += ["--width", "32", "--height", "32", "--dtype", "f32", "--python", sys.executable]
    done = subprocess.run(
        [
            str(BINARY),
            "--json",
            "--home",
            str(tmp_path / "home"),
            "reference",
            "generate",
            "--model",
            str(tiny_model),
            *settings,
        ]
        + ["--no-inputs", "--record-steps", "1", "--tap", "transformer.*,latents,noise_pred", "--no-tap", "*.attn.*"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    run = Recorded(done, json.loads(done.stdout)["path"])
    assert {record["step"] for record in run.records} == {1}
    names = set(run.names())
    assert {"latents", "noise_pred"} < names and all(
        name.startswith("transformer.") for name in names - {"latents", "noise_pred"}
    )
    assert not any(".attn." in name for name in names)
    passes = [record["tags"].get("pass") for record in run.records if record["name"] == "transformer.proj_out"]
    assert passes == ["cond", "uncond"]
    assert all(record["hit"] == 0 for record in run.records)
