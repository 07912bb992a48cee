"""`lockstep generate` from outside: what it writes, and that bad input ends with a reason, the right status and no file."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from system import mapped_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
MODEL = ROOT / "tests/goldens/t2i_f32/model"
SMALL = ["--width", "32", "--height", "48", "--steps", "2"]


def generate(*arguments, cwd, **options):
    return subprocess.run(
        [ENGINE, "generate", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120, **options
    )


def refused(done, status, *words):
    assert done.returncode == status, (done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.fixture
def model(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(MODEL, copy)
    return copy


def edit_json(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))


def test_the_picture_carries_what_made_it(tmp_path):
    done = generate("--model", MODEL, "--prompt", "a fox", "--seed", 5, *SMALL, "--output", "fox.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    image = pytest.importorskip("PIL.Image").open(tmp_path / "fox.png")
    assert image.size == (32, 48)
    assert (
        image.text["prompt"] == "a fox" and image.text["seed"] == "5" and image.text["software"].startswith("lockstep")
    )


@pytest.mark.parametrize("name", ["fox.jpg", "fox.webp"])
def test_other_formats_carry_it_as_exif(tmp_path, name):
    prompt = "a fox, ein Füchslein, 狐"
    done = generate("--model", MODEL, "--prompt", prompt, "--seed", 5, *SMALL, "--output", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    image = pytest.importorskip("PIL.Image").open(tmp_path / name)
    exif = image.getexif()
    comment = exif.get_ifd(0x8769)[0x9286]
    assert comment[:8] == b"ASCII\0\0\0"
    text = json.loads(comment[8:])
    assert text["prompt"] == prompt and text["seed"] == "5" and text["size"] == "32x48" and text["model"] == "model"
    assert exif[0x0131].startswith("lockstep")
    image.load()
    assert image.size == (32, 48)


def test_count_counts_the_seeds_up_and_json_lists_the_files(tmp_path):
    done = generate(
        "--model",
        MODEL,
        "--prompt",
        "a",
        "--prompt",
        "b",
        "--count",
        2,
        "--seed",
        10,
        *SMALL,
        "--output",
        "x-{seed}-{index}.webp",
        "--json",
        cwd=tmp_path,
    )
    images = json.loads(done.stdout)["images"]
    assert [i["seed"] for i in images] == [10, 11, 10, 11]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(i["file"] for i in images)


def test_the_same_call_gives_the_same_bytes(tmp_path):
    for name in ("a.png", "b.png"):
        generate("--model", MODEL, "--prompt", "x", *SMALL, "--output", name, cwd=tmp_path)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_sizes_are_floored_to_16_and_said(tmp_path):
    done = generate(
        "--model",
        MODEL,
        "--prompt",
        "x",
        "--width",
        45,
        "--height",
        63,
        "--steps",
        2,
        "--output",
        "x.png",
        cwd=tmp_path,
    )
    assert done.returncode == 0 and "45x63 becomes 32x48" in done.stderr


@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (["--steps", "1"], 2, ["2 steps or more"]),
        (["--width", "8"], 2, ["16 to 16384"]),
        (["--dtype", "int4"], 2, ["f32 or bf16"]),
        (["--device", "tpu"], 2, ["cpu, cuda, cuda:N, mlx or reference"]),
        (["--noise", "torch-cuda", "--device", "cpu"], 2, ["--device cuda", "--noise torch"]),
        (["--threads", "-3"], 2, ["threads"]),
        (["--output", "x.bmp"], 2, [".png"]),
        (["--output", "no/such/folder/x.png"], 2, ["does not exist"]),
        (["--sigmas", "1,zero"], 2, ["not a sigma"]),
        (["--latents", "none.npy"], 2, ["none.npy"]),
        (["--max-prompt-tokens", "5000"], 2, ["1 to 1024"]),
        (["--memory-limit", "20KB"], 3, ["memory limit", "at least"]),
        (["--prompt", "\udcff\udcfe"], 2, ["UTF-8"]),
        (["--stepz", "4"], 2, ["--steps"]),
    ],
)
def test_bad_options_are_refused_with_a_reason(tmp_path, arguments, status, words):
    usual = {"--prompt": "x", "--width": "32", "--height": "48", "--steps": "2", "--output": "x.png"}
    usual.update(dict(zip(arguments[::2], arguments[1::2])))
    done = generate("--model", MODEL, *[word for pair in usual.items() for word in pair], cwd=tmp_path)
    refused(done, status, *words)
    assert not list(tmp_path.iterdir()), "a refused call leaves no file"


def test_a_memory_limit_is_honoured_or_refused_with_the_number(tmp_path):
    usual = ["--model", MODEL, "--prompt", "x", *SMALL, "--output", "x.png"]
    refusal = generate(*usual, "--memory-limit", "20KB", "--json", cwd=tmp_path)
    assert refusal.returncode == 3 and not list(tmp_path.iterdir())
    need = int(re.search(r"at least (\d+) bytes", refusal.stderr + refusal.stdout).group(1))
    refused(generate(*usual, "--memory-limit", f"{need - 1}B", cwd=tmp_path), 3, str(need))
    done = generate(*usual, "--memory-limit", f"{need}B", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["peak_tensor_bytes"] <= need


def test_a_refusal_takes_none_of_the_memory_it_refuses(tmp_path):
    """The need of a large picture is found without taking it."""
    command = [
        ENGINE,
        "generate",
        "--model",
        MODEL,
        "--prompt",
        "x",
        "--width",
        "4096",
        "--height",
        "4096",
        "--steps",
        "2",
        "--dtype",
        "bf16",
        "--output",
        "x.png",
        "--memory-limit",
        "300MB",
    ]
    # Through a small process: a child's peak begins with what the parent held when it was started.
    measure = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]); "
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measure, *map(str, command)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    status, peak_kb = map(int, done.stdout.split())
    need = int(re.search(r"at least (\d+) bytes", done.stderr).group(1))
    assert status == 3 and need > 500 << 20, done.stderr
    assert peak_kb * 1024 < need / 2


def test_a_missing_folder_and_an_unknown_class_are_named(tmp_path, model):
    refused(generate("--model", "nowhere", "--prompt", "x", cwd=tmp_path), 2, "nowhere")
    edit_json(model / "model_index.json", _class_name="StableDiffusionPipeline")
    refused(
        generate("--model", model, "--prompt", "x", cwd=tmp_path), 2, "QwenImagePipeline", "StableDiffusionPipeline"
    )


def test_a_truncated_shard_is_refused(tmp_path, model):
    shard = model / "transformer/diffusion_pytorch_model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])
    refused(
        generate("--model", model, "--prompt", "x", *SMALL, "--output", "x.png", cwd=tmp_path),
        2,
        "diffusion_pytorch_model.safetensors",
    )
    assert not (tmp_path / "x.png").exists()


def test_a_missing_shard_is_named(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "tests/goldens/t2i_bf16/model", model)
    shards = sorted((model / "vae").glob("*-of-*.safetensors"))
    shards[0].unlink()
    refused(generate("--model", model, "--prompt", "x", *SMALL, "--output", "x.png", cwd=tmp_path), 2, shards[0].name)
    assert not (tmp_path / "x.png").exists()


def test_no_memory_is_an_error_not_a_crash(tmp_path):
    import resource

    # Enough to start and to load, not enough for the decoder's activations at 1024x1024.
    def limit():
        return resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))

    done = generate(
        "--model",
        MODEL,
        "--prompt",
        "x",
        "--width",
        1024,
        "--height",
        1024,
        "--steps",
        2,
        "--threads",
        1,
        "--output",
        "x.png",
        cwd=tmp_path,
        preexec_fn=limit,
    )
    refused(done, 3, "bytes to give")
    assert not list(tmp_path.iterdir())


def test_loading_shows_a_bar_on_a_terminal(tmp_path):
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [ENGINE, "generate", "--model", str(MODEL), "--prompt", "x", *SMALL, "--output", "x.png"],
        cwd=tmp_path,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    with open(leader, "rb", buffering=0) as screen:
        try:
            while part := screen.read(4096):
                shown += part
        except OSError:  # the other end was closed: a terminal's end of file
            pass
    assert process.wait(timeout=60) == 0
    for stage in (b"load text enc.", b"load transformer", b"load VAE", b"denoise", b"decode"):
        assert stage in shown, shown


def test_lightning_steps_without_guidance(tmp_path):
    done = generate(
        "--model",
        MODEL,
        "--prompt",
        "x",
        "--width",
        32,
        "--height",
        48,
        "--schedule",
        "lightning",
        "--negative-prompt",
        " ",
        "--json",
        cwd=tmp_path,
    )
    image = json.loads(done.stdout)["images"][0]
    assert (image["steps"], image["guidance"]) == (8, 1)


def test_a_missing_component_is_named(tmp_path, model):
    shutil.rmtree(model / "vae")
    refused(generate("--model", model, "--prompt", "x", cwd=tmp_path), 2, "vae")


def test_a_config_that_contradicts_the_weights_lists_every_key(tmp_path, model):
    edit_json(model / "transformer/config.json", num_layers=3)
    done = generate("--model", model, "--prompt", "x", *SMALL, cwd=tmp_path)
    refused(done, 2, "missing", "transformer_blocks.2.attn.to_q.weight", "nearest")
    edit_json(model / "transformer/config.json", num_layers=1)
    refused(
        generate("--model", model, "--prompt", "x", *SMALL, cwd=tmp_path),
        2,
        "unused: transformer_blocks.1.attn.to_q.weight",
    )
    edit_json(model / "transformer/config.json", num_layers=2, joint_attention_dim=48)
    refused(
        generate("--model", model, "--prompt", "x", *SMALL, cwd=tmp_path),
        2,
        "misshapen: txt_in.weight is [32, 32], expected [32, 48]",
    )


def test_unsupported_variants_are_refused_by_name(tmp_path, model):
    edit_json(model / "model_index.json", _class_name="QwenImageControlNetPipeline")
    refused(generate("--model", model, "--prompt", "x", *SMALL, cwd=tmp_path), 2, "QwenImageControlNetPipeline")


def test_ten_megabytes_of_text_are_cut_not_choked_on(tmp_path):
    (tmp_path / "long.txt").write_text("word " * 2_000_000 + "\n")
    done = generate("--model", MODEL, "--prompt-file", "long.txt", *SMALL, "--output", "x.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_full_disk_leaves_no_half_written_picture(tmp_path):
    import resource

    def limit():
        return (
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        )

    done = generate("--model", MODEL, "--prompt", "x", *SMALL, "--output", "x.png", cwd=tmp_path, preexec_fn=limit)
    assert done.returncode == 3, done.stderr
    assert not list(tmp_path.iterdir())


def test_an_interrupt_ends_cleanly(tmp_path):
    process = subprocess.Popen(
        [
            ENGINE,
            "generate",
            "--model",
            str(MODEL),
            "--prompt",
            "x",
            "--width",
            "32",
            "--height",
            "48",
            "--steps",
            "9999",
            "--device",
            "reference",
            "--output",
            "x.png",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The handler is installed before anything else; a process that has mapped the weights is past it.
    while process.poll() is None and "safetensors" not in " ".join(mapped_files(process.pid)):
        pass
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in messages
    assert not list(tmp_path.iterdir())


def test_a_saved_noise_replaces_the_seed(tmp_path):
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "noise.npy", numpy.zeros((1, 6, 64), "f4"))
    for seed in (1, 2):
        assert (
            generate(
                "--model",
                MODEL,
                "--prompt",
                "x",
                *SMALL,
                "--seed",
                seed,
                "--latents",
                "noise.npy",
                "--output",
                f"{seed}.png",
                cwd=tmp_path,
            ).returncode
            == 0
        )
    image = pytest.importorskip("PIL.Image")
    assert image.open(tmp_path / "1.png").tobytes() == image.open(tmp_path / "2.png").tobytes()
