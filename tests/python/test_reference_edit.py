"""`lockstep reference edit` beside `lockstep --debug edit`: the official pipeline recorded, ours compared with it live."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("diffusers")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
GOLDENS = ROOT / "tests/goldens"


def run(*arguments, home):
    command = [PROGRAM, "--home", str(home), "--json", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_an_edit_is_recorded_and_matched(tmp_path):
    shared = [
        "--model",
        GOLDENS / "edit/model",
        "--input-image",
        GOLDENS / "edit/wide.png",
        "--input-image",
        GOLDENS / "edit/tall.png",
        "--prompt",
        "make it blue",
        "--negative-prompt",
        " ",
        "--steps",
        2,
        "--guidance",
        4,
        "--resolution",
        32,
        "--condition-resolution",
        64,
    ]
    done = run(
        "reference", "edit", *shared, "--python", sys.executable, "--output", tmp_path / "official.png", home=tmp_path
    )
    assert done.returncode == 0, done.stderr
    names = set()
    for path in tmp_path.glob("runs/*/records.jsonl"):
        names |= {json.loads(line)["name"] for line in path.read_text().splitlines()}
    assert {
        "condition_images",
        "image_latents",
        "text_encoder.visual.blocks.1.attn.qkv",
        "vae.encoder.conv_in",
    } <= names
    ours = run(
        "--debug", "edit", *shared, "--reference", "latest:reference", "--output", tmp_path / "o.png", home=tmp_path
    )
    answer = json.loads(ours.stdout)
    assert ours.returncode == 0, answer["run"]["comparison"]
    assert answer["run"]["comparison"]["verdict"] == "match"
    assert answer["run"]["compared"] > 200
