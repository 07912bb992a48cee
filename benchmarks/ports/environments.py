"""The ports: which package at which version, how it is driven, and what it is compared with."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SETTINGS = {"--prompt": "a red circle left of a blue square", "--seed": "7", "--steps": "3", "--guidance": "3.5", "--width": "96", "--height": "64"}  # fmt: skip
OFFICIAL = [part for pair in SETTINGS.items() for part in pair]


@dataclasses.dataclass(frozen=True)
class Port:
    name: str
    requirements: tuple[tuple[str, ...], ...]  # arguments of one `pip install` each, in order
    package: str  # the folder in site-packages that mistakes are planted in
    driver: str
    arguments: tuple[str, ...]
    own_dtype: str  # of the reference that the port's own precision is compared with
    checkpoints: dict[str, tuple[str, ...]]  # hand-named → what the reference calls that tensor
    reference: str = ""  # the driver of what it ports; none: the official pipeline, on models/tiny
    maker: str = ""  # the script that makes its model, make_NAME.py


# Where the stages of a Qwen-Image port are looked for, by the reference's names.
QWEN_IMAGE_STAGES = {
    "text": ("*:prompt_embeds", "*:negative_prompt_embeds", "output:text_encoder.model.norm"),
    "first_block": ("output:transformer.transformer_blocks.0*",),
    "last_block": ("output:transformer.transformer_blocks.5*", "input:transformer.norm_out*"),
    "latents": ("checkpoint:latents", "input:transformer.hidden_states", "input:transformer.img_in"),
    "picture": ("*:vae.decoder.conv_out", "*:vae.decoder", "checkpoint:image"),
}
PORTS = {
    port.name: port
    for port in (
        Port(
            "mflux",
            # mflux asks for MLX with CUDA on Linux: the same version's form for processors takes its place.
            (("mflux==0.24.0",), ("--no-deps", "--force-reinstall", "mlx==0.32.2", "mlx-cpu==0.32.2")),
            "mflux",
            "drive_mflux.py",
            tuple(OFFICIAL),
            "bf16",
            QWEN_IMAGE_STAGES,
        ),
        Port(
            "diffsynth",
            (("diffsynth==2.1.12",),),
            "diffsynth",
            "drive_diffsynth.py",
            tuple(OFFICIAL),
            "bf16",
            QWEN_IMAGE_STAGES,
        ),
        Port(
            "stable_diffusion_cpp",
            (),
            "src",
            "drive_stable_diffusion_cpp.cpp",
            tuple(OFFICIAL),
            "f32",
            # It names these nodes itself, to cut its graph there.
            {
                "text": ("output:transformer.txt_in",),
                "first_block": ("output:transformer.transformer_blocks.0*",),
                "last_block": ("output:transformer.transformer_blocks.5*", "input:transformer.norm_out*"),
                "latents": ("output:transformer.proj_out", "checkpoint:noise_pred"),
                "picture": (),
            },
        ),
        Port(
            "mlx_lm",
            (("mlx-lm==0.32.2", "mlx[cpu]==0.32.4"),),
            "mlx_lm",
            "drive_mlx_lm.py",
            (),
            "bf16",
            {
                "words": ("output:*embed_tokens", "input:*layers.0*"),
                "layer_first": ("output:*layers.0", "output:*layers.0.0", "input:*layers.1*"),
                "layer_last": ("output:*layers.3", "output:*layers.3.0", "input:*model.norm"),
                "normed": ("output:*model.norm", "input:*lm_head"),
                "logits": ("output:*lm_head", "output:*logits"),
            },
            "drive_transformers.py",
            "make_qwen3.py",
        ),
        Port(
            "mlx_whisper",
            # It asks for torch, to convert checkpoints: it is not needed here.
            (
                (
                    "mlx[cpu]==0.32.4",
                    "numpy",
                    "tqdm",
                    "more-itertools",
                    "tiktoken",
                    "scipy",
                    "numba",
                    "huggingface_hub",
                ),
                ("--no-deps", "mlx-whisper==0.4.3"),
            ),
            "mlx_whisper",
            "drive_mlx_whisper.py",
            (),
            "bf16",
            {
                "heard_first": ("output:*encoder.layers.0", "output:*encoder.layers.0.0", "input:*encoder.layers.1*"),
                "heard": ("output:*encoder.layer_norm", "output:*encoder", "output:*encoder.last_hidden_state"),
                "read_first": ("output:*decoder.layers.0", "output:*decoder.layers.0.0", "input:*decoder.layers.1*"),
                "read_last": ("output:*decoder.layers.2", "output:*decoder.layers.2.0", "input:*decoder.layer_norm"),
                "logits": ("output:*proj_out", "output:*logits"),
            },
            "drive_transformers_whisper.py",
            "make_whisper.py",
        ),
        Port(
            "open_clip",
            (("torch==2.13.0",), ("open_clip_torch==3.3.0", "torch==2.13.0")),
            "open_clip",
            "drive_open_clip.py",
            (),
            "bf16",
            {
                "picture_first": ("output:*vision_model.encoder.layers.0", "input:*vision_model.encoder.layers.1*"),
                "picture_last": ("output:*vision_model.encoder.layers.3", "output:*vision_model.encoder"),
                "text_first": ("output:*text_model.encoder.layers.0", "input:*text_model.encoder.layers.1*"),
                "text_last": (
                    "output:*text_model.encoder.layers.2",
                    "output:*text_model.encoder",
                    "input:*final_layer_norm",
                ),
                "logits": ("output:*logits_per_image", "output:CLIPModel"),
            },
            "drive_transformers_clip.py",
            "make_clip.py",
        ),
    )
}


NATIVE = "stable_diffusion_cpp"  # built from source, with a driver in C++


def environment(port: Port, folder: Path) -> Path:
    """The port's own virtual environment, made on the first call. Returns its Python."""
    if port.name == NATIVE:
        return folder / port.name
    home = folder / port.name
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        for arguments in port.requirements:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *arguments], check=True)
    return python


def planted(port: Port, python: Path, mistake, folder: Path) -> Path:
    """A copy of the port's package with the mistake in it; the folder goes before site-packages."""
    source = next((python.parent.parent / "lib").glob("python3*/site-packages")) / port.package
    return planted_copy(port, source, mistake, folder)


def planted_copy(port: Port, source: Path, mistake, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder / port.package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in mistake.changes:
        path = folder / port.package / file
        text = path.read_text()
        if text.count(old) != 1:
            raise RuntimeError(f"[planting] {mistake.id}: {file} holds {old!r} {text.count(old)} times; expected once")
        path.write_text(text.replace(old, new))
    return folder


def model_of(port: Port, folder: Path) -> Path:
    if not port.maker:
        return ROOT / "models" / "tiny"
    made = folder / port.maker.removeprefix("make_").removesuffix(".py")
    if not (made / "config.json").exists():
        subprocess.run([sys.executable, str(HERE / port.maker), str(made)], check=True)
    return made


def quiet_environment() -> dict[str, str]:
    # MLX compiles with g++ what mx.compile is given: on a processor that takes longer than the run.
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "MLX_DISABLE_COMPILE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
