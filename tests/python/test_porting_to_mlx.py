"""docs/porting_to_mlx.md: the port of examples/mlx recorded with its mistakes and without, and the picture at the end."""

import pathlib
import sys

import numpy as np
import pytest
from PIL import Image
from program import ROOT, run, run_json

pytest.importorskip("mlx.core")
pytest.importorskip("diffusers")

MODEL = ROOT / "models/tiny"
PICTURE = ["--prompt", "a red circle left of a blue square", "--seed", "7", "--steps", "2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home with the official run in it, and its picture."""
    home = tmp_path_factory.mktemp("port")
    size = ["--width", "32", "--height", "32", "--negative-prompt", " ", "--guidance", "4", "--device", "cpu"]
    done = run("--home", home, "--debug", "generate", "--model", MODEL, *PICTURE, *size, "--run-name", "official",
               "--output", home / "official.png")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return home


def ported(home, mistake=""):
    """What `compare` says of the port, and the port's picture."""
    name, picture = mistake or "right", home / f"{mistake or 'right'}.png"
    port = [ROOT / "examples/mlx/draw.py", MODEL, picture, *PICTURE, "--size", "32"]
    if mistake:
        port += ["--mistake", mistake]
    done = run("--home", home, "record", "--inputs", "--name", name, "--", sys.executable, "-B", *port, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    done, answer = run_json("--home", home, "compare", "latest:official", f"latest:{name}")
    assert done.returncode == (1 if mistake else 0), done.stderr
    return answer, np.asarray(Image.open(picture)).astype(int)


@pytest.mark.parametrize("mistake, cause", [("rope", "rotary.style"), ("gelu", "activation.kind")])
def test_each_mistake_is_named(place, mistake, cause):
    answer, _ = ported(place, mistake)
    assert answer["verdict"] == "mismatch"
    assert answer["causes"][0]["cause"] == cause, answer["causes"]


def test_without_them_every_tensor_and_the_picture_agree(place):
    answer, picture = ported(place)
    assert answer["verdict"] == "match"
    official = np.asarray(Image.open(place / "official.png")).astype(int)
    assert picture.shape == official.shape and np.abs(picture - official).max() <= 1


def test_the_page_shows_what_the_program_says():
    page = pathlib.Path(ROOT / "docs/porting_to_mlx.md").read_text()
    for cause in ("rotary.style", "activation.kind"):
        assert cause in page
