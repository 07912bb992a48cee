"""What `lockstep reference generate` does with its options, with a stand-in for the official pipeline."""

import subprocess
import sys

import pytest
from program import PROGRAM
from recorded import ENVIRONMENT

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

# Stands for torch and diffusers: a pipeline that prints what it was asked for and draws one grey picture.
STAND_IN = """
import types
from PIL import Image
class Pipeline:
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        return cls()
    def to(self, device):
        return self
    def __call__(self, **asked):
        print("PROMPT", asked["prompt"], "NEGATIVE", asked["negative_prompt"])
        return types.SimpleNamespace(images=[Image.new("RGB", (16, 16), (90, 90, 90))])
class Generator:
    def __init__(self, device): pass
    def manual_seed(self, seed): return self
"""


@pytest.fixture
def reference(tmp_path):
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "diffusers.py").write_text(STAND_IN + "QwenImagePipeline = Pipeline\n")
    (folder / "torch.py").write_text(STAND_IN + "float32 = bfloat16 = float16 = None\n")

    def generate(*options, packages=folder):
        command = [PROGRAM, "--home", tmp_path / "home", "reference", "generate", "--python", sys.executable, *options]
        return subprocess.run(
            command, capture_output=True, text=True, env={**ENVIRONMENT, "PYTHONPATH": str(packages)}, cwd=tmp_path
        )

    return generate


def test_prompts_may_begin_with_a_dash(reference):
    """The official program took "-5 degrees" for an option."""
    done = reference("--prompt=-5 degrees", "--negative-prompt=--ugly")
    assert done.returncode == 0, done.stderr
    assert "PROMPT -5 degrees NEGATIVE --ugly" in done.stdout + done.stderr


def test_the_picture_is_of_the_kind_its_name_says(reference, tmp_path):
    """A .jpg was a PNG by another name."""
    assert reference("--prompt", "x", "--output", "grey.jpg").returncode == 0
    with Image.open(tmp_path / "grey.jpg") as picture:
        assert picture.format == "JPEG" and np.abs(np.asarray(picture).astype(int) - 90).max() <= 2


@pytest.mark.parametrize("output", ["no/such/folder/x.png", "x.txt"])
def test_where_the_picture_cannot_go_is_said_before_it_is_made(reference, output):
    done = reference("--prompt", "x", "--output", output)
    assert done.returncode == 2 and "--output" in done.stderr and "PROMPT" not in done.stdout + done.stderr


def test_a_python_without_diffusers_is_met_with_advice(reference, tmp_path):
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "torch.py").write_text("import no_such_module_here\n")
    done = reference("--prompt", "x", packages=tmp_path / "without")
    assert done.returncode == 3 and "try --python" in done.stderr.splitlines()[-1]
