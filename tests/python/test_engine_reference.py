"""A run of our own engine is as good a reference as one of the official pipeline: it holds inputs too, under the same names."""

import json
import pathlib
import subprocess

import pytest
from program import PROGRAM
from recorded import ENVIRONMENT, record

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "tiny"
SETTINGS = [
    "--prompt",
    "a red circle",
    "--seed",
    "7",
    "--steps",
    "2",
    "--guidance",
    "3.5",
    "--width",
    "64",
    "--height",
    "96",
    "--dtype",
    "f32",
]

# The official pipeline with something planted in it.
OFFICIAL = f"""
import sys, torch
settings = {SETTINGS!r}
{{planted}}
sys.argv = ["reference", "--model", {str(MODEL)!r}, "--negative-prompt", " ", *settings]
from lockstep.reference import main
main()
"""

# Queries and keys turned in halves of the head, where Qwen-Image turns neighbours.
HALF_SPLIT = OFFICIAL.format(
    planted="""
from diffusers.models.transformers import transformer_qwenimage as official

def half_split(x, freqs_cis, *args, **kwargs):
    first, second = x.float().chunk(2, -1)
    turned = torch.complex(first, second) * freqs_cis.unsqueeze(1)
    return torch.cat([turned.real, turned.imag], -1).type_as(x)

official.apply_rotary_emb_qwen = half_split
"""
)


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory):
    home = tmp_path_factory.mktemp("engine")
    command = [PROGRAM, "--home", home, "--debug", "generate", "--model", MODEL, "--negative-prompt", " ", *SETTINGS]
    done = subprocess.run(
        [*map(str, command), "--run-name", "ours", "--output", str(home / "ours.png")],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    return (home / "latest" / "ours").resolve()


def test_the_engine_records_what_goes_into_its_modules(engine_run):
    records = [json.loads(line) for line in (engine_run / "records.jsonl").read_text().splitlines()]
    inputs = {one["name"]: one for one in records if one["role"] == "input"}
    block = "transformer.transformer_blocks.0"
    for name in (f"{block}.attn.to_out.0", f"{block}.attn.norm_q", f"{block}.img_mlp.net.2", f"{block}.img_norm1", "transformer.img_in",
                 "transformer.hidden_states", "text_encoder.model.layers.0.self_attn.o_proj", "text_encoder.model.embed_tokens",
                 "vae.decoder.conv_in", "vae.decoder.mid_block.resnets.0.norm1"):  # fmt: skip
        assert name in inputs, name
    outputs = {one["name"]: one for one in records if one["role"] == "output"}
    assert outputs["transformer.pos_embed.0"]["shape"] == [24, 32, 2]
    assert inputs[f"{block}.attn.to_out.0"]["shape"] == outputs[f"{block}.attn.to_out.0"]["shape"]
    # What one module hands to the next is stored once.
    assert any("same_as" in one for one in records if one["role"] == "input")


def answer(engine_run, folder, program):
    port = record(folder, program, "--inputs")
    assert port.done.returncode == 0, port.done.stderr
    done = subprocess.run(
        [PROGRAM, "compare", str(engine_run), str(port.path), "--json"], capture_output=True, text=True, env=ENVIRONMENT
    )
    result = json.loads(done.stdout)
    assert result["verdict"] == "mismatch"
    return result


def test_a_half_split_rotation_is_named_with_the_engine_as_the_reference(engine_run, tmp_path):
    pytest.importorskip(
        "diffusers", reason="diffusers is absent: there is no official pipeline to plant the mistake in"
    )
    result = answer(engine_run, tmp_path, HALF_SPLIT)
    assert result["first_divergence"]["name"].startswith("transformer.transformer_blocks.0.attn.to_")
    assert result["causes"] and result["causes"][0]["cause"] == "rotary.style"


# What passes between the models is a stage, not a module: a mistake there is the sampler's.
STEP_BACK = OFFICIAL.format(
    planted="""
from diffusers import FlowMatchEulerDiscreteScheduler as Scheduler
forward = Scheduler.step
Scheduler.step = lambda self, output, *args, **more: forward(self, -output, *args, **more)
"""
)
OTHER_SCALE = OFFICIAL.format(planted="settings[settings.index('--guidance') + 1] = '4.5'")


@pytest.mark.parametrize(
    ("program", "stage", "cause"),
    [(STEP_BACK, "latents", "scheduler.sign"), (OTHER_SCALE, "noise_pred", "guidance.scale")],
    ids=["step", "guidance"],
)
def test_the_samplers_mistakes_are_named_with_the_engine_as_the_reference(engine_run, tmp_path, program, stage, cause):
    pytest.importorskip(
        "diffusers", reason="diffusers is absent: there is no official pipeline to plant the mistake in"
    )
    result = answer(engine_run, tmp_path, program)
    assert result["first_divergence"]["role"] == "checkpoint"
    assert result["first_divergence"]["name"] == stage
    assert result["causes"] and result["causes"][0]["cause"] == cause
