"""Files that people already have, of three kinds, are runs: compared with each other and with recorded ones."""

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
    for kind in ("npy", "pt", "pt_dict", "safetensors", "pt_dicts", "safetensors_files", "mixed"):
        folder = made[kind] = tmp_path / kind
        folder.mkdir()
        for name, value in tensors().items():
            if kind == "npy":
                np.save(folder / f"{name}.npy", value.float().numpy())
            elif kind == "pt":
                torch.save(value, folder / f"{name}.pt")
            elif kind == "pt_dicts" or (kind == "mixed" and name == "latents"):
                torch.save({"value": value}, folder / f"{name}.pt")
            elif kind == "safetensors_files" or (kind == "mixed" and name == "block.2"):
                safetensors.save_file({"value": value}, folder / f"{name}.safetensors")
            elif kind == "mixed":
                np.save(folder / f"{name}.npy", value.float().numpy())
        if kind == "pt_dict":
            torch.save(tensors(), folder / "all.pt")
        elif kind == "safetensors":
            safetensors.save_file(tensors(), folder / "all.safetensors")
    return made


@pytest.mark.parametrize("other", ["pt", "pt_dict", "safetensors", "pt_dicts", "safetensors_files", "mixed"])
def test_every_kind_is_a_run(folders, other):
    """One file a stage with whatever name inside, or one file with all: the stages are called the same."""
    done, document = run_json("compare", folders["npy"], folders[other])
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert document["verdict"] == "match" and document["compared"] == 3
    assert [tensor["name"] for tensor in document["tensors"]] == ["block.2", "block.10", "latents"]  # as people count


def test_several_tensors_a_file_keep_the_names_of_both(folders, tmp_path):
    for kind in ("pt", "safetensors"):
        (tmp_path / f"two_{kind}").mkdir()
        for stage in ("block.2", "block.10"):
            pair = {"hidden": tensors()["block.2"], "temb": tensors()["latents"]}
            save = torch.save if kind == "pt" else safetensors.save_file
            save(pair, tmp_path / f"two_{kind}" / f"{stage}.{kind}")
    done, document = run_json("compare", tmp_path / "two_pt", tmp_path / "two_safetensors")
    assert done.returncode == 0, (done.stdout, done.stderr)
    expected = ["block.2/hidden", "block.2/temb", "block.10/hidden", "block.10/temb"]
    assert [tensor["name"] for tensor in document["tensors"]] == expected


def test_one_wrong_file_is_named(folders):
    torch.save(tensors()["block.10"] * 2, folders["pt"] / "block.10.pt")
    done, document = run_json("compare", folders["npy"], folders["pt"])
    assert done.returncode == 1 and document["first_divergence"]["name"] == "block.10"


def break_one(folder, kind):
    """A stage of its own, cut off, of which nothing can be read."""
    broken = folder / f"zz.{kind}"
    broken.write_bytes(b"no tensor at all")
    return broken


@pytest.mark.parametrize("kind", ["npy", "pt", "pt_dict", "safetensors", "safetensors_files", "mixed"])
def test_a_file_that_cannot_be_read_is_left_out_and_named(folders, kind):
    """One such file refused all the others."""
    broken = [break_one(folders[kind], extension) for extension in ("npy", "safetensors")]
    done, document = run_json("compare", folders["pt"], folders[kind])
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert document["verdict"] == "match" and document["compared"] == 3
    assert document["skipped_files"]["candidate"] == 2
    for file in broken:
        assert done.stderr.count(f"lockstep: {file} is left out: [") == (2 if kind == "pt" else 1), done.stderr


def test_a_folder_of_which_nothing_can_be_read_is_refused(folders, tmp_path):
    (tmp_path / "none").mkdir()
    broken = break_one(tmp_path / "none", "npy")
    done, _ = run_json("compare", folders["npy"], tmp_path / "none")
    assert done.returncode in (2, 3) and str(broken) in done.stdout + done.stderr


def test_complex_numbers_are_compared_as_the_recorder_keeps_them(tmp_path):
    """[..., 2]: real and imaginary parts, whatever the order of the file."""
    values = (np.arange(12).reshape(3, 4) + 1j * np.arange(12)[::-1].reshape(3, 4)).astype("c8")
    forms = {
        "c": values,
        "fortran": np.asfortranarray(values),
        "big": values.astype(">c8"),
        "wide": values.astype("c16"),
    }
    forms["real"] = values.view("f4").reshape(3, 4, 2)
    for name, form in forms.items():
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "rope.npy", form)
    for name in ("c", "fortran", "big", "wide"):
        done, document = run_json("compare", tmp_path / "real", tmp_path / name)
        assert done.returncode == 0 and document["compared"] == 1, (name, done.stdout, done.stderr)
