"""lockstep zoom in the code between modules: a pipeline of diffusers, and Lockstep's own engine as the reference."""

import json
import subprocess
import sys

import pytest
from program import PROGRAM

pytest.importorskip("torch")
pytest.importorskip("diffusers")

SETTINGS = ["--prompt", "a red circle", "--seed", "7", "--steps", "2", "--width", "64", "--height", "64"]

# The official pipeline with a method of its own in the place of one of its class: the mistake is in line 9.
PORT = """
import sys, torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline

class Scheduler(FlowMatchEulerDiscreteScheduler):
    def step(self, model_output, timestep, sample, return_dict=True, **_):
        index = self.index_for_timestep(timestep)
        change = self.sigmas[index + 1] - self.sigmas[index]
        result = sample - change * model_output
        return (result,)

pipeline = QwenImagePipeline.from_pretrained(sys.argv[1], dtype=torch.float32)
pipeline.scheduler = Scheduler.from_config(pipeline.scheduler.config)
pipeline(prompt="a red circle", negative_prompt=" ", true_cfg_scale=4.0, num_inference_steps=2, width=64, height=64,
         generator=torch.Generator("cpu").manual_seed(7))
print("the end")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "port.py").write_text(PORT)

    def run(*words, status=0):
        done = subprocess.run(
            [PROGRAM, "--home", str(folder / "home"), "--quiet", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    negative = ["--negative-prompt", " ", "--guidance", "4.0"]
    run("--debug", "generate", *SETTINGS, *negative, "--run-name", "engine", "--output", "engine.png")
    run("reference", "generate", *SETTINGS, *negative, "--python", sys.executable)
    model = json.loads((folder / "home" / "latest" / "reference" / "run.json").read_text())["model"]
    run("record", "--inputs", "--name", "port", "--", sys.executable, "port.py", model)
    return run


def test_a_mistake_in_the_pipelines_own_code_is_named(place):
    answer = json.loads(place("--json", "zoom", "latest:reference", "latest:port", status=1))
    assert answer["call"]["yours"] == "pipeline" and not answer["official_reference"]
    named = [(one["file"].rpartition("/")[2], one["line"]) for region in answer["regions"] for one in region["yours"]]
    assert ("port.py", 9) in named and len(named) <= 2


def test_the_official_pipeline_is_traced_in_the_place_of_the_engine(place, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_PYTHON", sys.executable)
    answer = json.loads(place("--json", "zoom", "latest:engine", "latest:port", status=1))
    assert answer["official_reference"]
    named = [(one["file"].rpartition("/")[2], one["line"]) for region in answer["regions"] for one in region["yours"]]
    assert ("port.py", 9) in named


def test_the_engine_cannot_be_the_candidate(place):
    place("zoom", "latest:reference", "latest:engine", "--stage", "transformer", status=2)
