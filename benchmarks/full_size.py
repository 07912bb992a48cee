"""The whole DiT of Qwen-Image (60 layers, 20 B parameters) with 4-bit weights: one 256x256 step on this machine.

    ./dev bench full_size [--work DIR] [--layers 60] [--rounds 2]

Random 4-bit weights (group 64, as mflux and mlx-community publish them, about 11.5 GB) are written once to --work, then the
engine runs one denoising step of one pass on them, used in place in the map. Prints seconds, rate and peak memory.
"""

import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
GROUP = 64


def shapes(layers):
    """Names and [outputs, inputs] of every linear, names and sizes of every norm, as the official module has them."""
    width, linears, norms = 3072, {}, {"txt_norm.weight": 3584}
    linears["img_in"], linears["txt_in"] = (width, 64), (width, 3584)
    linears["time_text_embed.timestep_embedder.linear_1"] = (width, 256)
    linears["time_text_embed.timestep_embedder.linear_2"] = (width, width)
    for i in range(layers):
        block = f"transformer_blocks.{i}."
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0", "to_add_out"):
            linears[block + "attn." + name] = (width, width)
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            norms[block + "attn." + name + ".weight"] = 128
        for stream in ("img", "txt"):
            linears[block + stream + "_mod.1"] = (6 * width, width)
            linears[block + stream + "_mlp.net.0.proj"] = (4 * width, width)
            linears[block + stream + "_mlp.net.2"] = (width, 4 * width)
    linears["norm_out.linear"], linears["proj_out"] = (2 * width, width), (64, width)
    return linears, norms


def write(folder, layers):
    """One safetensors file, written as a stream: no tensor is ever held whole."""
    linears, norms = shapes(layers)
    entries = []  # name, dtype, shape, two bytes to repeat (None: random)
    for name, (outputs, inputs) in linears.items():
        groups = inputs // GROUP
        entries += [
            (name + ".weight", "U32", [outputs, inputs // 8], None),
            (name + ".scales", "BF16", [outputs, groups], b"\x03\x3b"),  # 0.002
            (name + ".biases", "BF16", [outputs, groups], b"\x83\xbc"),  # -0.016: the middle of 16 levels
            (name + ".bias", "BF16", [outputs], b"\x00\x00"),
        ]
    entries += [(name, "BF16", [size], b"\x80\x3f") for name, size in norms.items()]
    header, at = {}, 0
    for name, dtype, shape, _ in entries:
        size = {"U32": 4, "BF16": 2}[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    if shutil.disk_usage(folder).free < at + (1 << 30):
        raise SystemExit(f"[full_size] too little disk space; expected {at >> 30} GiB and one more, try --work")
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    block = os.urandom(1 << 24)
    with open(folder / "diffusion_pytorch_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, pattern in entries:
            begin, end = header[name]["data_offsets"]
            source = pattern * (1 << 20) if pattern else block
            while begin < end:
                begin += file.write(source[: end - begin])
    config = {
        "_class_name": "QwenImageTransformer2DModel",
        "attention_head_dim": 128,
        "axes_dims_rope": [16, 56, 56],
        "guidance_embeds": False,
        "in_channels": 64,
        "joint_attention_dim": 3584,
        "num_attention_heads": 24,
        "num_layers": layers,
        "out_channels": 16,
        "patch_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/bench-full-size")
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    folder = options.work / f"{options.layers}-layers"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"wrote {write(folder, options.layers) / 1e9:.1f} GB of random 4-bit weights to {folder}")
    subprocess.run(["ninja", "-C", ROOT / "build", "bench_stages"], check=True, stdout=subprocess.DEVNULL)
    answer = subprocess.run(
        [
            ROOT / "build/bin/bench_stages",
            "transformer",
            folder,
            "bf16",
            str(options.size),
            "64",
            str(options.rounds),
            str(options.threads),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = json.loads(answer.stdout)
    best = min(result["seconds"])
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    print(
        f"{result['backend']}; machine with {total / 1e9:.1f} GB\n"
        f"{options.layers} layers, 4-bit, {options.size}x{options.size}, 64 text tokens: load {result['loading']:.1f} s, "
        f"one pass {best:.1f} s (rounds {', '.join(f'{s:.1f}' for s in result['seconds'])}), "
        f"{result['operations'] / best / 1e9:.0f} GFLOP/s = {100 * result['operations'] / best / result['linear_rate']:.0f} % "
        f"of a lone product, peak memory {result['peak_bytes'] / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    main()
