"""The embedded model in both engines: the official pipeline loads the folder as it is and draws the same picture."""

import json
import pathlib

import pytest

from program import ROOT, run_json

MODEL = ROOT / "models" / "tiny"
DEFAULTS = MODEL / "lockstep.json"

pytestmark = pytest.mark.skipif(not (MODEL / "model_index.json").exists(), reason=f"no model in {MODEL}")

CASES = [
    ("a red circle left of a blue square", 0, 128, 128),
    ("three green stars on a black background", 7, 128, 128),
    ("the word HI in red on a light yellow background", 11, 160, 96),
]
LEVELS = 2  # of 255


@pytest.fixture(scope="module")
def official():
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")
    defaults = json.loads(DEFAULTS.read_text())
    pipe = diffusers.QwenImagePipeline.from_pretrained(MODEL, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)

    def draw(prompt, seed, width, height):
        return pipe(
            prompt,
            negative_prompt=defaults["negative_prompt"],
            true_cfg_scale=defaults["guidance"],
            num_inference_steps=defaults["steps"],
            width=width,
            height=height,
            generator=torch.Generator().manual_seed(seed),
        ).images[0]

    return draw


@pytest.mark.parametrize("prompt, seed, width, height", CASES)
def test_same_picture_as_the_official_pipeline(official, tmp_path, prompt, seed, width, height):
    np = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    size = [] if (width, height) == (128, 128) else ["--width", width, "--height", height]
    file = tmp_path / "ours.png"
    done, result = run_json("generate", "--prompt", prompt, "--seed", seed, "--output", file, *size)
    assert done.returncode == 0, done.stderr
    assert pathlib.Path(result["model"]) == MODEL, "the program did not take the embedded model"
    ours = np.asarray(image.open(file).convert("RGB")).astype(int)
    theirs = np.asarray(official(prompt, seed, width, height).convert("RGB")).astype(int)
    assert ours.shape == theirs.shape == (height, width, 3)
    difference = np.abs(ours - theirs)
    print(f"largest difference {difference.max()}, {(difference > 0).mean():.2%} of the levels differ")
    assert difference.max() <= LEVELS
    # two blank pictures would agree as well
    assert ours.reshape(-1, 3).std(axis=0).max() > 10
