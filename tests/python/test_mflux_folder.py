"""Folders as mflux writes them: other names, channels-last convolutions, MLX quantisation. Each is made here from a diffusers folder
whose weights hold the same values, so that both must draw the same picture."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

numpy = pytest.importorskip("numpy")
mlx = pytest.importorskip("mlx.core")
safetensors = pytest.importorskip("safetensors.numpy")

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))
MODEL = ROOT / "tests/goldens/t2i_f32/model"
RES_BLOCKS = 1  # of the golden model's VAE
GROUP = 32


def draw(model, output, tmp_path):
    done = subprocess.run(
        [
            ENGINE,
            "generate",
            "--model",
            str(model),
            "--prompt",
            "a fox",
            "--negative-prompt",
            " ",
            "--width",
            "32",
            "--height",
            "48",
            "--steps",
            "3",
            "--seed",
            "4",
            "--output",
            output,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    from PIL import Image

    return numpy.asarray(Image.open(tmp_path / output)).astype(int)


def load(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.load_file(path))
    return tensors


def transformer_name(name):
    name = re.sub(r"\.(img|txt)_mod\.1\.", r".\1_mod_linear.", name)
    name = re.sub(r"\.(img|txt)_mlp\.net\.0\.proj\.", r".\1_ff.mlp_in.", name)
    name = re.sub(r"\.(img|txt)_mlp\.net\.2\.", r".\1_ff.mlp_out.", name)
    return name.replace(".attn.to_out.0.", ".attn.attn_to_out.0.")


def vae_entry(name, value):
    flat = re.match(r"encoder\.down_blocks\.(\d+)\.(.*)", name)
    if flat:
        level, within = divmod(int(flat.group(1)), RES_BLOCKS + 1)
        place = f"resnets.{within}" if within < RES_BLOCKS else "downsamplers.0"
        name = f"encoder.down_blocks.{level}.{place}.{flat.group(2)}"
    name = re.sub(r"decoder\.up_blocks\.(\d+)", r"decoder.up_block\1", name)
    name = name.replace("conv_shortcut", "skip_conv").replace("resample.1", "resample_conv")
    if name.endswith("gamma"):
        return name[:-5] + "weight", value.reshape(-1)
    if re.search(r"(conv1|conv2|skip_conv|conv_in|conv_out|quant_conv|time_conv)\.(weight|bias)$", name):
        name = re.sub(r"(weight|bias)$", r"conv3d.\1", name)
    if value.ndim >= 4:
        value = numpy.moveaxis(value, 1, -1)  # channels last
    return name, numpy.ascontiguousarray(value)


def write_mflux(source, target, transformer):
    """`transformer`: its tensors under mflux names. Configs are kept only because the model is smaller than the released one."""
    for component in ("text_encoder", "transformer", "vae"):
        (target / component).mkdir(parents=True)
        shutil.copy(source / component / "config.json", target / component)
    shutil.copytree(source / "tokenizer", target / "tokenizer")
    shutil.copytree(source / "scheduler", target / "scheduler")
    text = {
        re.sub(r"^model\.", "encoder.", k): v
        for k, v in load(source / "text_encoder").items()
        if k.startswith("model.")
    }
    safetensors.save_file(text, target / "text_encoder/0.safetensors")
    safetensors.save_file(dict(vae_entry(k, v) for k, v in load(source / "vae").items()), target / "vae/0.safetensors")
    names = sorted(transformer)
    for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):  # two files, as for large models
        safetensors.save_file({k: transformer[k] for k in part}, target / f"transformer/{i}.safetensors")


def without_output_bias(tmp_path):
    """A copy of the model whose norm_out.linear.bias is zero: mflux has no such bias."""
    copy = tmp_path / "official"
    shutil.copytree(MODEL, copy)
    path = copy / "transformer/diffusion_pytorch_model.safetensors"
    tensors = safetensors.load_file(path)
    tensors["norm_out.linear.bias"][:] = 0
    safetensors.save_file(tensors, path)
    return copy, tensors


def test_dense_weights_under_mflux_names(tmp_path):
    official, tensors = without_output_bias(tmp_path)
    write_mflux(
        official,
        tmp_path / "mflux",
        {transformer_name(k): v for k, v in tensors.items() if k != "norm_out.linear.bias"},
    )
    assert numpy.abs(draw(official, "a.png", tmp_path) - draw(tmp_path / "mflux", "b.png", tmp_path)).max() == 0


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_weights_are_what_mlx_says_they_are(tmp_path, bits):
    official, tensors = without_output_bias(tmp_path)
    quantised = {}
    for name, value in tensors.items():
        if name == "norm_out.linear.bias":
            continue
        if name.endswith(".weight") and value.ndim == 2 and value.shape[1] % GROUP == 0:
            packed = mlx.quantize(mlx.array(value), group_size=GROUP, bits=bits)
            for part, tensor in zip(("weight", "scales", "biases"), packed):
                quantised[transformer_name(name[: -len("weight")] + part)] = numpy.array(tensor)
            tensors[name] = numpy.array(mlx.dequantize(*packed, group_size=GROUP, bits=bits))
        else:
            quantised[transformer_name(name)] = value
    safetensors.save_file(tensors, official / "transformer/diffusion_pytorch_model.safetensors")
    write_mflux(official, tmp_path / "mflux", quantised)
    assert any(k.endswith("scales") for k in quantised)
    assert numpy.abs(draw(official, "a.png", tmp_path) - draw(tmp_path / "mflux", "b.png", tmp_path)).max() <= 1


def test_an_unknown_key_stops_the_load(tmp_path):
    official, tensors = without_output_bias(tmp_path)
    named = {transformer_name(k): v for k, v in tensors.items() if k != "norm_out.linear.bias"}
    named["transformer_blocks.0.attn.to_q.lora"] = numpy.zeros(3, "f4")
    write_mflux(official, tmp_path / "mflux", named)
    done = subprocess.run(
        [ENGINE, "generate", "--model", str(tmp_path / "mflux"), "--prompt", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "unused: transformer_blocks.0.attn.to_q.lora" in done.stderr
