"""How long `lockstep compare` looks for the cause of one failing pair of 4 M elements, stage by stage, where nothing explains it.

    ./dev bench diagnosis_speed               all stages: time and memory beside the bars of 5 s and 400 MB
    ./dev bench diagnosis_speed --only conv   one of them
    ./dev bench diagnosis_speed --full        one pair of 4352 x 12288, as the widest layer of Qwen-Image has them

A cause that is found ends the search early; noise does not, so this is the longest each stage can take. With --full the first rows are noise too
(bars 15 s, 1.5 GB), the others have a common cause (bar 3 s).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from compare_speed import BINARY, timed, write_run
from safetensors.numpy import save_file

RNG = np.random.default_rng(0)


def normal(*shape) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


# Each stage: what is recorded around it, and weights; the last record is the one that goes wrong. A record is (name, role, values[, step, pass]).
def norm():
    x, w = normal(1, 4096, 1024), 1 + 0.1 * normal(1024)
    return [("net.b.norm", "input", x), ("net.b.norm", "output", layer_norm(x) * w)], {"net.b.norm.weight": w}


def modulation():
    x, mod = normal(1, 4096, 1024), normal(1, 6 * 1024)
    n = layer_norm(x)
    return [("net.b", "input", x), ("net.b.mod", "output", mod), ("net.b.norm", "input", x), ("net.b.norm", "output", n),
            ("net.b.attn", "input", n * (1 + mod[:, None, 1024:2048]) + mod[:, None, :1024])], {}  # fmt: skip


def residual():
    x, mod, branch = normal(1, 4096, 1024), normal(1, 6 * 1024), normal(1, 4096, 1024)
    return [("net.b", "input", x), ("net.b.mod", "output", mod), ("net.b.attn", "output", branch),
            ("net.b", "output", x + mod[:, None, 2048:3072] * branch)], {}  # fmt: skip


def linear(tokens=1366, wide=3072, out=3072):
    x, w, b = normal(tokens, wide), normal(out, wide) / 55, normal(out)
    return ([("net.proj", "input", x), ("net.proj", "output", x @ w.T + b)],
            {"net.proj.weight": w, "net.proj.bias": b, "net.other.weight": w[::-1].copy(), "net.other.bias": b})  # fmt: skip


def linear_wide():
    return linear(341, 3072, 12288)


def activation():
    x = normal(1, 341, 12288)
    return [("net.b.act", "input", x), ("net.b.act", "output", silu(x))], {}


def gate_up():
    gate, up = normal(1, 341, 12288), normal(1, 341, 12288)
    return [
        ("net.b.gate_proj", "output", gate),
        ("net.b.up_proj", "output", up),
        ("net.b.down_proj", "input", silu(gate) * up),
    ], {}


def attention(tokens=1366, heads=24, width=128):
    q, k, v = (normal(1, tokens, heads * width) for _ in range(3))
    split = [x.reshape(tokens, heads, width).transpose(1, 0, 2) for x in (q, k, v)]
    y = softmax(split[0] @ split[1].transpose(0, 2, 1) / np.float32(width**0.5)) @ split[2]
    y = y.transpose(1, 0, 2).reshape(1, tokens, heads * width)
    return [
        ("net.b.attn.to_q", "output", q),
        ("net.b.attn.to_k", "output", k),
        ("net.b.attn.to_v", "output", v),
        ("net.b.attn.to_out.0", "input", y),
    ], {}


def conv(channels=96, size=209):
    x, w, b = normal(1, channels, size, size), normal(channels, channels, 3, 3) / 30, normal(channels)
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    y = b[:, None] + sum(
        w[:, :, i, j] @ padded[:, i : i + size, j : j + size].reshape(channels, -1) for i in range(3) for j in range(3)
    )
    return ([("vae.decoder.conv", "input", x), ("vae.decoder.conv", "output", y.reshape(x.shape))],
            {"vae.decoder.conv.weight": w, "vae.decoder.conv.bias": b})  # fmt: skip


def space_norm():
    x, w = normal(1, 96, 1, 209, 209), 1 + 0.1 * normal(96, 1, 1, 1)
    y = x / np.sqrt((x * x).sum(1, keepdims=True)) * np.float32(96**0.5) * w
    return [("vae.decoder.norm", "input", x), ("vae.decoder.norm", "output", y)], {"vae.decoder.norm.gamma": w}


def layout():
    x = normal(1, 16, 1, 512, 512)
    packed = x.reshape(1, 16, 256, 2, 256, 2).transpose(0, 2, 4, 1, 3, 5).reshape(1, 65536, 64)
    return [("latents", "checkpoint", x), ("packed", "checkpoint", packed)], {}


def guidance():
    cond, uncond = normal(1, 65536, 64), normal(1, 65536, 64)
    combined = uncond + 4 * (cond - uncond)
    lengths = [np.sqrt((x * x).sum(-1, keepdims=True)) for x in (cond, combined)]
    return [("transformer", "output", cond, 0, "cond"), ("transformer", "output", uncond, 0, "uncond"),
            ("noise_pred", "checkpoint", combined * lengths[0] / lengths[1], 0)], {}  # fmt: skip


def scheduler():
    latents, prediction = normal(1, 65536, 64), normal(1, 65536, 64)
    return [("sigmas", "checkpoint", np.linspace(1, 0, 21, dtype=np.float32)), ("noise_pred", "checkpoint", prediction, 0),
            ("latents_in", "checkpoint", latents, 0), ("latents", "checkpoint", latents - np.float32(0.05) * prediction, 0)], {}  # fmt: skip


def picture():
    x = np.clip(normal(1, 3, 1182, 1182), -1, 1)
    return [("vae", "output", x), ("image", "checkpoint", x / 2 + np.float32(0.5))], {}


STAGES = [
    norm,
    modulation,
    residual,
    linear,
    linear_wide,
    activation,
    gate_up,
    attention,
    conv,
    space_norm,
    layout,
    guidance,
    scheduler,
    picture,
]


def gelu(x, c=np.float32(0.7978845608)):
    return 0.5 * x * (1 + np.tanh(c * (x + np.float32(0.044715) * x**3)))


def full_linear():
    return linear(4352, 3072, 12288)


def full_activation():
    x = normal(1, 4352, 12288)
    return [("net.b.act", "input", x), ("net.b.act", "output", gelu(x))], {}


# Each pair of full size: its stage, what went wrong (None: nothing that explains it), and the cause that is expected.
FULL = {
    "linear": (full_linear, None, None),
    "activation": (full_activation, None, None),
    "linear, bias missing": (
        full_linear,
        lambda records, weights: records[-1][2] - weights["net.proj.bias"],
        "linear.bias_missing",
    ),
    "activation left out": (full_activation, lambda records, weights: records[0][2], "activation.missing"),
    "SiLU for GELU": (full_activation, lambda records, weights: silu(records[0][2]), "activation.kind"),
    "times two": (full_linear, lambda records, weights: 2 * records[-1][2], "affine.scale"),
}


def compare_command(folder: Path, records, wrong, weights) -> list[str]:
    write_run(folder / "right", records)
    name, role, _, *where = records[-1]
    write_run(folder / "wrong", [*records[:-1], (name, role, wrong, *where)])
    command = [BINARY, "compare", str(folder / "right"), str(folder / "wrong"), "--json"]
    if weights:
        save_file(weights, folder / "model.safetensors")
        command += ["--weights", str(folder / "model.safetensors")]
    return command


def with_noise(values: np.ndarray) -> np.ndarray:
    return values + np.float32(0.2 * values.std()) * normal(*values.shape)


def full_size(home: Path, wanted: list[str]) -> None:
    for title, (stage, mistake, cause) in FULL.items():
        if wanted and title not in wanted:
            continue
        records, weights = stage()
        wrong = mistake(records, weights) if mistake else with_noise(records[-1][2])
        command = compare_command(home / "full", records, wrong, weights)
        del records, weights
        seconds, memory = min(timed(command) for _ in range(2))
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)["causes"]
        said = found[0]["cause"] if found else "nothing"
        bars = "bar 3" if cause else "bars 15, 1500 MB"
        right = "" if said == (cause or "nothing") else f", expected {cause or 'nothing'}"
        print(
            f"{title:22s} {wrong.size / 1e6:4.1f} M elements: {seconds:5.2f} s, {memory:4.0f} MB ({bars}): {said}{right}",
            flush=True,
        )
        shutil.rmtree(home / "full")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a stage's name, or several with commas")
    parser.add_argument("--keep", type=Path, help="leave the runs there")
    parser.add_argument("--full", action="store_true", help="pairs of 4352 x 12288")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [stage.__name__ for stage in STAGES]
    home = arguments.keep or Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        if arguments.full:
            full_size(home, arguments.only.split(",") if arguments.only else [])
            return
        for stage in STAGES:
            if stage.__name__ not in wanted:
                continue
            records, weights = stage()
            folder = home / stage.__name__
            values = records[-1][2]
            command = compare_command(folder, records, with_noise(values), weights)
            seconds, memory = min(timed(command) for _ in range(2))
            print(
                f"{stage.__name__:12s} {values.size / 1e6:4.1f} M elements: {seconds:5.2f} s (bar 5), {memory:4.0f} MB",
                flush=True,
            )
            if not arguments.keep:
                shutil.rmtree(folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
