"""Rules that `lockstep edit` shares with the official classes (which shapes are refused, the words of a caption), and what
it shares with `generate`: bars, masks, interruption, sheets, formats."""

import importlib
import json
import os
import pty
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from program import PROGRAM, ROOT, run
from test_edit import EDIT, GOLDENS, LAYERED, edit, folder_of_class, photo, refused  # noqa: F401
from system import mapped_files

sys.path.insert(0, str(ROOT / "python"))

SHAPES = [
    (1, 1),
    (2, 1),
    (28, 5600),
    (3, 600),
    (200, 1),
    (201, 1),
    (1, 210),
    (1, 230),
    (270, 1),
    (1, 300),
    (575, 1),
    (1700, 1),
    (3000, 2),
]
# Class and its module: the area that both encoders see, and the one of the text encoder's copy.
CLASSES = {
    "QwenImageEditPipeline": ("edit", 1024, 1024),
    "QwenImageEditPlusPipeline": ("edit_plus", 1024, 384),
    "QwenImageEditInpaintPipeline": ("edit_inpaint", 1024, 1024),
    "QwenImageLayeredPipeline": ("layered", 640, None),
}


def official_takes(name, width, height):
    """Whether the official class finds a size for both encoders."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    module, area, condition = CLASSES[name]
    sizes = importlib.import_module(f"diffusers.pipelines.qwenimage.pipeline_qwenimage_{module}").calculate_dimensions
    if not all(sizes(area**2, width / height)[:2]):
        return False
    if condition is None:
        return True
    wide, high = sizes(condition**2, width / height)[:2]
    try:
        return bool(wide and high and all(smart_resize(high, wide, 16, 256, 4096)))
    except ValueError:
        return False


@pytest.mark.parametrize("name", CLASSES)
def test_the_shapes_that_the_official_classes_refuse(tmp_path, name):
    """Nothing is computed: with next to no memory a picture that is taken is refused for that."""
    pytest.importorskip("diffusers")
    layered = name == "QwenImageLayeredPipeline"
    model = LAYERED if layered else folder_of_class(tmp_path, EDIT, name)
    for width, height in SHAPES:
        Image.new("RGB", (width, height), (200, 30, 40)).save(tmp_path / "thin.png")
        more = ["--mask", "mask.png"] if "Inpaint" in name else []
        if more:
            Image.new("L", (width, height), 255).save(tmp_path / "mask.png")
        done = run(
            "edit",
            "--model",
            model,
            "--input-image",
            "thin.png",
            "--prompt",
            "a",
            "--memory-limit",
            "1KB",
            *more,
            cwd=tmp_path,
        )
        if official_takes(name, width, height):
            refused(done, "memory limit", status=3)
        else:
            refused(done, "long and thin", f"{width}x{height}" if layered else "x")


def test_a_greedy_caption_has_the_words_of_transformers(tmp_path, photo):  # noqa: F811
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from lockstep import official

    done = run(
        "edit",
        "--model",
        LAYERED,
        "--input-image",
        photo,
        "--resolution",
        32,
        "--layers",
        1,
        "--steps",
        2,
        "--guidance",
        1,
        "--caption",
        "greedy",
        "--english-caption",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    pipeline = official.load(LAYERED, torch.float32)
    official.set_resolution(pipeline, 32)
    chosen = pipeline.text_encoder.generation_config
    chosen.do_sample, chosen.repetition_penalty, chosen.temperature, chosen.top_p, chosen.top_k = (
        False,
        1.0,
        None,
        None,
        None,
    )
    captions = []
    caption = pipeline.get_image_caption
    pipeline.get_image_caption = lambda *a, **k: captions.append(caption(*a, **k)) or captions[-1]
    pipeline(
        image=official.open_picture(photo, alpha=True),
        prompt="",
        layers=1,
        num_inference_steps=2,
        true_cfg_scale=1.0,
        use_en_prompt=True,
    )
    assert len(captions[0]) > 100
    assert json.loads(done.stdout)["images"][0]["caption"] == captions[0]


def test_a_captioned_run_is_recorded(tmp_path, photo):  # noqa: F811
    """The passes that write the caption are not offered; what comes after it is."""
    done = run(
        "--home",
        tmp_path / "home",
        "edit",
        "--debug",
        "--model",
        LAYERED,
        "--input-image",
        photo,
        "--resolution",
        32,
        "--layers",
        1,
        "--steps",
        2,
        "--guidance",
        1,
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert json.loads(done.stdout)["images"][0]["caption"]
    (records,) = tmp_path.glob("home/runs/*/records.jsonl")
    names = {json.loads(line)["name"] for line in records.read_text().splitlines()}
    assert "prompt_embeds" in names and "images" in names and not any("visual" in name for name in names)


def test_a_mask_may_be_the_alpha_channel(tmp_path, photo):  # noqa: F811
    wanted = np.zeros((40, 61), np.uint8)
    wanted[10:30, 20:50] = 255
    Image.fromarray(wanted).save(tmp_path / "white.png")
    holes = np.full((40, 61, 4), 255, np.uint8)
    holes[..., 3] -= wanted
    Image.fromarray(holes).save(tmp_path / "holes.png")
    for mask in ("white", "holes"):
        done = edit(
            tmp_path, "--input-image", photo, "--prompt", "a", "--mask", f"{mask}.png", "--output", f"by-{mask}.png"
        )
        assert done.returncode == 0, done.stderr
    assert Image.open(tmp_path / "by-white.png").tobytes() == Image.open(tmp_path / "by-holes.png").tobytes()
    Image.new("L", (61, 40), 255).save(tmp_path / "all.png")
    edit(tmp_path, "--input-image", photo, "--prompt", "a", "--mask", "all.png", "--output", "by-all.png")
    assert Image.open(tmp_path / "by-all.png").tobytes() != Image.open(tmp_path / "by-white.png").tobytes()


def test_prompts_seeds_sheets_and_formats_as_in_generate(tmp_path, photo):  # noqa: F811
    (tmp_path / "prompts.txt").write_text("make it blue\n\nmake it green\n")
    done = edit(
        tmp_path,
        "--input-image",
        photo,
        "--prompt-file",
        "prompts.txt",
        "--count",
        2,
        "--seed",
        3,
        "--output",
        "o-{index}.webp",
        "--sheet",
        "all.jpg",
        "--columns",
        2,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    images = json.loads(done.stdout)["images"]
    assert [(one["prompt"], one["seed"]) for one in images] == [
        (p, s) for p in ("make it blue", "make it green") for s in (3, 4)
    ]
    assert sorted(p.name for p in tmp_path.glob("o-*")) == ["o-0.webp", "o-1.webp", "o-2.webp", "o-3.webp"]
    exif = Image.open(tmp_path / "o-2.webp").getexif()
    assert json.loads(exif.get_ifd(0x8769)[0x9286][8:])["prompt"] == "make it green"
    one = Image.open(tmp_path / "o-0.webp").size
    sheet = Image.open(tmp_path / "all.jpg").size
    assert sheet[0] >= 2 * one[0] and sheet[1] >= 2 * one[1]


def test_a_prompt_that_names_a_picture_that_is_not_there(tmp_path, photo):  # noqa: F811
    done = edit(
        tmp_path,
        "--input-image",
        photo,
        "--prompt",
        "the shape of picture 1 in the color of Picture 2",
        "--output",
        "o.png",
    )
    assert done.returncode == 0 and "names picture 2, and 1 is given" in done.stderr
    done = edit(tmp_path, "--input-image", photo, "--prompt", "the shape of picture 1, image one", "--output", "o.png")
    assert done.returncode == 0 and "names picture" not in done.stderr


def test_every_stage_shows_a_bar_on_a_terminal(tmp_path, photo):  # noqa: F811
    leader, follower = pty.openpty()
    command = [
        PROGRAM,
        "edit",
        "--model",
        EDIT,
        "--input-image",
        photo,
        "--prompt",
        "a",
        "--resolution",
        32,
        "--steps",
        2,
        "--output",
        "x.png",
    ]
    process = subprocess.Popen([str(c) for c in command], cwd=tmp_path, stderr=follower)
    os.close(follower)
    shown = b""
    with open(leader, "rb", buffering=0) as screen:
        try:
            while part := screen.read(4096):
                shown += part
        except OSError:  # the other end was closed: a terminal's end of file
            pass
    assert process.wait(timeout=60) == 0
    for stage in (
        b"load text enc.",
        b"load vision",
        b"text encoder",
        b"load VAE enc.",
        b"encode pictures",
        b"load transformer",
        b"denoise",
        b"decode",
    ):
        assert stage in shown, shown


def test_an_interrupt_ends_cleanly(tmp_path, photo):  # noqa: F811
    folder = tmp_path / "empty"
    folder.mkdir()
    command = [
        PROGRAM,
        "edit",
        "--model",
        EDIT,
        "--input-image",
        photo,
        "--prompt",
        "a",
        "--resolution",
        32,
        "--steps",
        9999,
        "--device",
        "reference",
        "--output",
        "x.png",
    ]
    process = subprocess.Popen([str(c) for c in command], cwd=folder, stderr=subprocess.PIPE, text=True)
    # The handler is installed before anything else; a process that has mapped the weights is past it.
    while process.poll() is None and "safetensors" not in " ".join(mapped_files(process.pid)):
        pass
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in messages
    assert not list(folder.iterdir())


@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "16", "16 RGB", "CMYK", "L", "1", "EXIF"])
def test_pictures_of_every_mode_are_what_pillow_opens(tmp_path, mode):
    """The copy that the text encoder sees, recorded, against Pillow's resize of Pillow's picture."""
    sys.path.insert(0, str(ROOT / "tools/reference"))
    pytest.importorskip("torch")
    import random

    import picture_cases
    from lockstep import official

    if mode == "16 RGB":
        path = tmp_path / "in.png"
        write_png16(path, np.random.default_rng(1).integers(0, 65536, (37, 53, 3)))
    elif mode == "1":
        path = tmp_path / "in.png"
        Image.fromarray(np.random.default_rng(1).integers(0, 2, (37, 53)).astype(bool)).save(path)
    else:
        path = picture_cases.random_picture(random.Random(4), tmp_path / "in.png", 53, 37, mode=mode)
    done = run(
        "--home",
        tmp_path / "home",
        "edit",
        "--debug",
        "--model",
        EDIT,
        "--input-image",
        path,
        "--prompt",
        "a",
        "--resolution",
        32,
        "--condition-resolution",
        64,
        "--steps",
        2,
        "--guidance",
        1,
        "--tap",
        "condition_images",
        "--output",
        "o.png",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (seen,) = tmp_path.glob("home/runs/*/tensors/condition_images*.npy")
    ours = np.load(seen)
    picture = official.open_picture(path).resize((ours.shape[1], ours.shape[0]), Image.LANCZOS)
    np.testing.assert_array_equal(ours, np.asarray(picture))


def write_png16(path, pixels):
    """Colours of 16 bits, which Pillow reads and does not write."""
    import struct
    import zlib

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
