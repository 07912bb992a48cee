"""Files that people already have, of three kinds, are runs: compared with each other and with recorded ones."""

import json

import numpy as np
import pytest
from program import run_json

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")


def tensors():
    torch.manual_seed(0)
    return {"block.2": torch.randn(3, 4), "block.10": torch.randn(3, 4).bfloat16(), "latents": torch.randn(2, 5)}


@pytest.fixture
def folders(tmp_path):
    made = {}
    for kind in ("npy", "pt", "pt_dict", "safetensors"):
        folder = made[kind] = tmp_path / kind
        folder.mkdir()
        for name, value in tensors().items():
            if kind == "npy":
                np.save(folder / f"{name}.npy", value.float().numpy())
            elif kind == "pt":
                torch.save(value, folder / f"{name}.pt")
        if kind == "pt_dict":
            torch.save(tensors(), folder / "all.pt")
        elif kind == "safetensors":
            safetensors.save_file(tensors(), folder / "all.safetensors")
    return made


@pytest.mark.parametrize("other", ["pt", "pt_dict", "safetensors"])
def test_every_kind_is_a_run(folders, tmp_path, other):
    arguments = []
    if other in ("pt_dict", "safetensors"):  # tensors of one file are named after it
        rules = {"rules": [{"candidate": "all/*", "reference": "*"}]}
        (tmp_path / "map.json").write_text(json.dumps(rules))
        arguments = ["--map", tmp_path / "map.json"]
    done, document = run_json("compare", folders["npy"], folders[other], *arguments)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert document["verdict"] == "match" and document["compared"] == 3
    assert [tensor["name"] for tensor in document["tensors"]] == ["block.2", "block.10", "latents"]  # as people count


def test_one_wrong_file_is_named(folders):
    torch.save(tensors()["block.10"] * 2, folders["pt"] / "block.10.pt")
    done, document = run_json("compare", folders["npy"], folders["pt"])
    assert done.returncode == 1 and document["first_divergence"]["name"] == "block.10"
