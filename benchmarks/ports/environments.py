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
    if port.name != "mlx_lm":
        return ROOT / "models" / "tiny"
    made = folder / "qwen3"
    if not (made / "config.json").exists():
        subprocess.run([sys.executable, str(HERE / "make_qwen3.py"), str(made)], check=True)
    return made


def quiet_environment() -> dict[str, str]:
    # MLX compiles with g++ what mx.compile is given: on a processor that takes longer than the run.
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "MLX_DISABLE_COMPILE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
