"""A port with names of its own and no hooks, against the official module: one command names the line to fix."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from program import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "tiny" / "transformer"
pytest.importorskip("diffusers")

OFFICIAL = """
import sys, numpy, torch
from diffusers import QwenImageTransformer2DModel
model = QwenImageTransformer2DModel.from_pretrained(sys.argv[1], torch_dtype=torch.float32)
random = torch.Generator().manual_seed(3)
latents, text, time = torch.randn(1, 48, 64, generator=random), 3 * torch.randn(1, 11, 128, generator=random), 0.83
numpy.savez(sys.argv[2], latents=latents[0], text=text[0], time=numpy.float32(time))
with torch.no_grad():
    model(hidden_states=latents, encoder_hidden_states=text, encoder_hidden_states_mask=torch.ones(1, 11, dtype=torch.bool),
          timestep=torch.tensor([time]), img_shapes=[[(1, 8, 6)]], return_dict=False)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("port")
    (folder / "official.py").write_text(OFFICIAL)
    command = [
        PROGRAM,
        "--home",
        str(folder / "home"),
        "record",
        "--inputs",
        "--name",
        "official",
        "--",
        sys.executable,
    ]
    done = subprocess.run(
        [*command, str(folder / "official.py"), str(MODEL), str(folder / "inputs.npz")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def compared(home, mistake, *options):
    environment = {**os.environ, "LOCKSTEP_HOME": str(home / "home"), "PYTHONPATH": str(ROOT / "python")}
    port = [
        sys.executable,
        str(pathlib.Path(__file__).with_name("numpy_port.py")),
        str(MODEL),
        str(home / "inputs.npz"),
        mistake,
    ]
    subprocess.run(port, check=True, env=environment)
    done = subprocess.run(
        [
            PROGRAM,
            "--home",
            str(home / "home"),
            "--json",
            "compare",
            "latest:official",
            "latest:port",
            "--weights",
            str(MODEL),
        ]
        + ["--propose-map", str(home / "map.json"), *options],
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_a_right_port_matches_and_every_tensor_finds_its_partner(home):
    result = compared(home, "none")
    assert result["verdict"] == "match"
    assert len([t for t in result["tensors"] if t["state"] in ("match", "layout")]) == 114
    rules = {rule["candidate"]: rule["reference"] for rule in json.loads((home / "map.json").read_text())["rules"]}
    assert rules["layers.#.attn_out"].endswith("transformer_blocks.#.attn.to_out.0")
    assert len(rules) == 24


@pytest.mark.parametrize(
    "mistake, cause, place",
    [
        ("rope", "rotary.style", "transformer_blocks.0.attn.to_out.0"),
        ("positions", "rotary.offset", "transformer_blocks.0.attn.to_out.0"),
        ("modulation", "modulate.shift_scale_exchanged", "transformer_blocks.1.attn.to_q"),
        ("gelu", "activation.kind", "transformer_blocks.0.img_mlp.net.2"),
        ("gate", "gate.missing", "transformer_blocks.2.img_mlp.net.2"),
    ],
)
def test_the_line_to_fix_is_named(home, mistake, cause, place):
    result = compared(home, mistake)
    assert result["verdict"] == "mismatch"
    assert result["first_divergence"]["name"].endswith(place)
    assert result["causes"][0]["cause"] == cause
