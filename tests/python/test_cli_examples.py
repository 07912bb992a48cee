"""The examples that help and docs/cli.md show for files: each is run as it stands, beside files of the names it uses."""

import json
import os
import re
import shlex
import subprocess

import numpy as np
import pytest
from program import PROGRAM, ROOT
from safetensors.numpy import save_file

COMMANDS = ("tensors", "weights", "doctor", "runs list", "runs limits")


def examples():
    shown = re.findall(r"^lockstep .*$", (ROOT / "docs/cli.md").read_text(), re.M)
    return sorted({line for line in shown if line.removeprefix("lockstep ").startswith(COMMANDS)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("examples"), np.random.default_rng(4)

    def values(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    def checkpoint(path, tensors):
        path.mkdir(parents=True)
        shards = {f"model-0000{n + 1}-of-00002.safetensors": sorted(tensors)[n::2] for n in range(2)}
        for file, names in shards.items():
            save_file({name: tensors[name] for name in names}, path / file)
        weight_map = {name: file for file, names in shards.items() for name in names}
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    for name in (
        "reference",
        "candidate",
        "latents",
        "dumps/official/x",
        "dumps/port/x",
        ".lockstep/saved/latents_1",
        ".lockstep/saved/noise",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", values(1, 4, 8, 8))
    block = {
        "attn.to_q.weight": (8, 8),
        "attn.to_q.bias": (8,),
        "norm.weight": (8,),
        "norm.bias": (8,),
        "norm_1.weight": (8,),
    }
    for stem in ("blocks", "transformer_blocks"):
        tensors = {f"{stem}.{i}.{name}": values(*shape) for i in range(2) for name, shape in block.items()}
        if stem == "blocks":
            for file in ("model", "a", "b"):
                save_file(tensors, folder / f"{file}.safetensors")
            checkpoint(folder / "checkpoint", tensors)
        else:
            for model in ("model", "my_port", "official", "converted"):
                checkpoint(folder / model / "transformer", tensors)
    checkpoint(folder / "model/vae", {"decoder.conv_in.weight": values(8, 4, 3, 3), "decoder.conv_in.bias": values(8)})
    return folder


def test_there_are_examples():
    assert len(examples()) > 25


@pytest.mark.parametrize("example", examples())
def test_an_example_works_as_it_stands(folder, example):
    words = shlex.split(example)[1:]
    environment = dict(os.environ, LOCKSTEP_HOME=str(folder / ".lockstep"))
    done = subprocess.run(
        [PROGRAM, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if words[:2] == ["tensors", "clear"] and "--yes" not in words:
        assert done.returncode == 2 and "--yes" in done.stderr, "it asks, and there is nobody to answer"
        return
    # Only a comparison of different tensors may say 1.
    different = words[1:2] == ["diff"] and ("reference.npy" in words or "dumps/official" in words)
    assert done.returncode == (1 if different else 0), done.stdout + done.stderr
    if "--json" in words:
        json.loads(done.stdout)
    if "--output" in words:
        assert (folder / words[words.index("--output") + 1]).exists()
