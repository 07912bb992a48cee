"""The `weights` commands on checkpoints with planted faults."""

import json
import os
import pty
import subprocess

import numpy as np
import pytest
from program import PROGRAM, run, run_json
from safetensors.numpy import save_file


@pytest.fixture
def checkpoint(tmp_path):
    """Six alike blocks in two shards, one fault of each kind."""
    rng = np.random.default_rng(2)
    tensors = {}
    for i in range(6):
        tensors[f"blocks.{i}.proj.weight"] = rng.standard_normal((16, 16), dtype=np.float32) * 0.02
        tensors[f"blocks.{i}.proj.bias"] = rng.standard_normal(16, dtype=np.float32) * 0.01
    tensors["blocks.1.proj.weight"][3, 3] = np.nan
    tensors["blocks.2.proj.weight"] *= 50
    tensors["blocks.3.proj.bias"][:] = 0
    tensors["blocks.4.proj.weight"] = tensors["blocks.5.proj.weight"].copy()
    tensors["norm.weight"] = np.ones(16, np.float32)
    tensors["head.weight"] = np.zeros((4, 4), np.float32)
    names = sorted(tensors)
    shards = {f"model-0000{n + 1}-of-00002.safetensors": names[n::2] for n in range(2)}
    folder = tmp_path / "model"
    folder.mkdir()
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def test_report_finds_every_planted_fault(checkpoint):
    done, report = run_json("weights", "report", checkpoint)
    found = {(finding["check"], name) for finding in report["findings"] for name in finding["tensors"]}
    assert found == {
        ("nan", "blocks.1.proj.weight"),
        ("odd_std", "blocks.2.proj.weight"),
        ("all_zero_bias", "blocks.3.proj.bias"),
        ("duplicate", "blocks.4.proj.weight"),
        ("duplicate", "blocks.5.proj.weight"),
        ("constant", "norm.weight"),
        ("all_zero", "head.weight"),
    }
    assert done.returncode == 1, "a NaN is an error"
    assert len(report["tensors"]) == 14
    text = run("weights", "report", checkpoint)
    assert "1 errors" in text.stdout and "\r" not in text.stderr, "no progress bar where stderr is no terminal"


def test_report_shows_its_progress_on_a_terminal(checkpoint):
    leader, follower = pty.openpty()
    done = subprocess.run(
        [PROGRAM, "weights", "report", checkpoint],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=follower,
        timeout=60,
    )
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65536):
            shown += part
    except OSError:  # how a terminal whose other side is closed says so
        pass
    os.close(leader)
    assert done.returncode == 1 and b"\r" not in done.stdout
    assert b"6656/6656" in shown and b"[##############################]" in shown


def test_report_on_healthy_weights(checkpoint):
    done, report = run_json("weights", "report", checkpoint, "blocks.0.*")
    assert done.returncode == 0 and report["findings"] == []


def test_list_shows_alike_blocks_once(checkpoint):
    text = run("weights", "list", checkpoint).stdout
    assert "0..5 x 6" in text and "14 tensors" in text
    _, tree = run_json("weights", "list", checkpoint)
    assert tree["tensors"] == 14 and tree["children"]["blocks"]["tensors"] == 12
    assert tree["children"]["blocks"]["children"]["3"]["children"]["proj"]["children"]["weight"]["shape"] == [16, 16]


def test_list_of_a_flat_checkpoint_is_a_screen(tmp_path):
    save_file({f"t{i:05}": np.zeros(1, np.float32) for i in range(3000)}, tmp_path / "flat.safetensors")
    assert len(run("weights", "list", tmp_path / "flat.safetensors").stdout.splitlines()) < 70


def test_search_and_show(checkpoint):
    _, found = run_json("weights", "search", checkpoint, "proj.bias")
    assert len(found["tensors"]) == 6
    _, found = run_json("weights", "search", checkpoint, "blocks.[01].*.weight")
    assert len(found["tensors"]) == 2
    missing = run("weights", "search", checkpoint, "blocks.0.prj.weight")
    assert missing.returncode == 2 and "blocks.0.proj.weight" in missing.stderr
    _, shown = run_json("weights", "show", checkpoint, "norm.weight")
    assert shown["stats"]["mean"] == 1 and shown["shape"] == [16]
    assert "norm.weight" in run("weights", "show", checkpoint, "norm.weight").stdout


def test_compare_is_the_diff_of_checkpoints(checkpoint):
    done, result = run_json("weights", "diff", checkpoint, checkpoint, "--tolerance", "exact")
    assert done.returncode == 0 and result["compared"] == 14, "a NaN equals itself"
