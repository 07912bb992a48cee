"""`lockstep edit` and `generate --init-image` from the command line: what they write, and what they refuse in words."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
GOLDENS = ROOT / "tests/goldens"
EDIT, LAYERED, GENERATE = GOLDENS / "edit/model", GOLDENS / "layered/model", GOLDENS / "t2i_f32/model"
SMALL = ["--resolution", "32", "--steps", "2", "--guidance", "1"]


def run(*arguments, cwd):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd)


def edit(tmp_path, *arguments, model=EDIT):
    return run("edit", "--model", model, *SMALL, *arguments, cwd=tmp_path)


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    shutil.copy(GOLDENS / "edit/wide.png", path)  # 61x40
    return path


def folder_of_class(tmp_path, model, name):
    folder = tmp_path / name
    folder.mkdir()
    for part in model.iterdir():
        if part.is_dir():
            (folder / part.name).symlink_to(part)
    index = json.loads((model / "model_index.json").read_text()) | {"_class_name": name}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def refused(done, *words, status=2):
    assert done.returncode == status, (done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "internal" not in done.stderr


def test_pictures_patterns_and_metadata(tmp_path, photo):
    done = edit(
        tmp_path,
        "--input-image",
        photo,
        "--prompt",
        "make it blue",
        "--count",
        2,
        "--seed",
        5,
        "--output",
        "out-{seed}.png",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    images = json.loads(done.stdout)["images"]
    assert [one["file"] for one in images] == ["out-5.png", "out-6.png"]
    first = Image.open(tmp_path / "out-5.png")
    assert first.text["prompt"] == "make it blue" and first.text["seed"] == "5"
    assert (images[0]["width"], images[0]["height"]) == first.size


def test_layers_are_pictures_with_alpha(tmp_path, photo):
    done = edit(
        tmp_path, "--input-image", photo, "--prompt", "a poster", "--layers", 2, "--output", "l.png", model=LAYERED
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["l-layer1.png", "l-layer2.png"]
    assert Image.open(tmp_path / "l-layer2.png").mode == "RGBA"


def test_a_picture_to_start_from_is_kept_at_strength_near_zero(tmp_path, photo):
    """Few steps from the picture stay nearer to it than noise gets."""

    def distance(*more):
        done = run(
            "generate",
            "--model",
            GENERATE,
            "--prompt",
            "a",
            "--width",
            48,
            "--height",
            32,
            "--guidance",
            1,
            "--steps",
            10,
            "--output",
            "g.png",
            *more,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return np.asarray(Image.open(tmp_path / "g.png").convert("RGB")).astype(int)

    whole = distance("--init-image", photo, "--strength", 0.1)
    again = distance("--init-image", photo, "--strength", 0.1, "--seed", 9)
    other = distance("--seed", 9)
    assert np.abs(whole - again).mean() < np.abs(whole - other).mean()


def test_the_folder_says_which_command_fits(tmp_path, photo):
    refused(
        run("generate", "--model", EDIT, "--prompt", "a", cwd=tmp_path), "QwenImageEditPlusPipeline", "lockstep edit"
    )
    refused(
        edit(tmp_path, "--input-image", photo, "--prompt", "a", model=GENERATE),
        "QwenImagePipeline",
        "lockstep generate",
    )
    refused(
        edit(tmp_path, "--input-image", photo, "--prompt", "a", "--layers", 2), "--layers", "QwenImageLayeredPipeline"
    )
    unknown = folder_of_class(tmp_path, EDIT, "QwenImageNextPipeline")
    refused(
        edit(tmp_path, "--input-image", photo, "--prompt", "a", model=unknown),
        "QwenImageNextPipeline",
        "QwenImageEditPlusPipeline",
    )


def bomb(path, side=50_000):
    """A PNG that promises 2.5 billion pixels and holds a few bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(100_000), 9)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path


def test_bad_pictures_are_refused_in_words(tmp_path, photo):
    refused(edit(tmp_path, "--prompt", "a"), "no picture")
    refused(edit(tmp_path, "--input-image", photo), "no instruction")
    refused(edit(tmp_path, "--input-image", "nothing.png", "--prompt", "a"), "nothing.png")
    refused(edit(tmp_path, "--input-image", bomb(tmp_path / "bomb.png"), "--prompt", "a"), "50000 x 50000")
    (tmp_path / "words.png").write_text("make the circle blue")
    refused(edit(tmp_path, "--input-image", "words.png", "--prompt", "a"), "not a picture")
    Image.new("L", (30, 40), 255).save(tmp_path / "mask.png")
    refused(
        edit(tmp_path, "--input-image", photo, "--mask", "mask.png", "--prompt", "a"), "another size", "61x40", "30x40"
    )
    Image.new("RGB", (3000, 2)).save(tmp_path / "thin.png")
    refused(edit(tmp_path, "--input-image", "thin.png", "--prompt", "a"), "long and thin")
    refused(edit(tmp_path, *["--input-image", photo] * 17, "--prompt", "a"), "more pictures", "17")
    single = folder_of_class(tmp_path, EDIT, "QwenImageEditPipeline")
    refused(edit(tmp_path, *["--input-image", photo] * 2, "--prompt", "a", model=single), "more pictures")
    refused(edit(tmp_path, "--input-image", photo, "--prompt", "<|image_pad|>"), "image tokens")
    masked = folder_of_class(tmp_path, EDIT, "QwenImageEditInpaintPipeline")
    refused(edit(tmp_path, "--input-image", photo, "--prompt", "a", model=masked), "--mask")
    refused(run("generate", "--model", GENERATE, "--prompt", "a", "--mask", "mask.png", cwd=tmp_path), "--init-image")
    Image.new("L", (61, 40), 255).save(tmp_path / "fits.png")
    refused(edit(tmp_path, "--input-image", photo, "--mask", "fits.png", "--strength", 0, "--prompt", "a"), "no step")
    assert not (tmp_path / "lockstep.png").exists()


def test_one_pixel_is_a_picture(tmp_path):
    Image.new("RGB", (1, 1), (200, 30, 40)).save(tmp_path / "dot.png")
    done = edit(tmp_path, "--input-image", "dot.png", "--prompt", "a", "--output", "o.png")
    assert done.returncode == 0, done.stderr
    assert Image.open(tmp_path / "o.png").size == (32, 32)


def test_the_memory_an_edit_needs_is_known_before_it_starts(tmp_path, photo):
    done = edit(tmp_path, "--input-image", photo, "--prompt", "a", "--memory-limit", "100KB")
    refused(done, "memory limit", "at least", status=3)
    need = int(done.stderr.split("at least ")[1].split()[0])
    enough = edit(tmp_path, "--input-image", photo, "--prompt", "a", "--memory-limit", f"{need}B")
    assert enough.returncode == 0, enough.stderr
