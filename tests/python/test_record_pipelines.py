"""Pipelines other than the official one: their steps and passes, and what a program puts in a component's place."""

import pytest
from recorded import record

pytest.importorskip("torch")
pytest.importorskip("diffusers")

PIPELINE = """
import torch
from diffusers import DDIMScheduler, DiffusionPipeline

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.proj(x)                    # no tuple, no dataclass
class Port(Net):
    pass

class Theirs(DiffusionPipeline):
    def __init__(self, DENOISER, scheduler):
        super().__init__()
        self.register_modules(DENOISER=DENOISER, scheduler=scheduler)
    @torch.no_grad()
    def __call__(self, true_cfg_scale=4.0):
        x = torch.ones(2, 3, 4)
        self.scheduler.set_timesteps(2)
        for time in self.scheduler.timesteps:
            cond = self.DENOISER(x)
            uncond = self.DENOISER(x * 0)
            x = self.scheduler.step(uncond + true_cfg_scale * (cond - uncond), time, x).prev_sample
        return x

official = Net()
pipeline = Theirs(official, DDIMScheduler())
"""


@pytest.mark.parametrize("denoiser", ["transformer", "unet"])
def test_steps_and_passes_are_counted_whatever_the_denoiser_is_called(tmp_path, denoiser):
    """The modules of a `unet` had no step in the first step, and a bare tensor's first row was taken for the output."""
    run = record(tmp_path, PIPELINE.replace("DENOISER", denoiser) + "pipeline()\n")
    assert run.done.returncode == 0, run.done.stderr
    keys = [(one["step"], one["tags"].get("pass")) for one in run.records if one["name"] == f"{denoiser}.proj"]
    assert keys == [(0, "cond"), (0, "uncond"), (1, "cond"), (1, "uncond")]
    outputs = [one for one in run.records if one["name"] == "noise_pred"]
    assert [(one["step"], one["tags"]["pass"]) for one in outputs][:3] == [(0, "cond"), (0, "uncond"), (0, "combined")]
    assert all(one["shape"] == [2, 3, 4] for one in outputs)
    assert all(one["hit"] == 0 for one in run.records)


def test_what_replaces_a_component_bears_its_name(tmp_path):
    """A port in the official module's place is compared with it by name; it was called by its class."""
    source = (
        PIPELINE.replace("DENOISER", "transformer")
        + """
pipeline.transformer = Port()
pipeline()
pipeline.transformer.proj = torch.nn.Sequential(torch.nn.Linear(4, 4))
pipeline.transformer.proj(torch.ones(1, 4))    # alone, as pipelines call a part of their autoencoder
pipeline()
other = Theirs(Net(), DDIMScheduler())         # of two pipelines that live at once, each keeps its own
other()
"""
    )
    run = record(tmp_path, source)
    assert list(dict.fromkeys(run.names("output"))) == ["transformer.proj", "transformer.proj.0", "transformer_2.proj"]


def test_the_references_value_stands_for_a_bare_tensor(tmp_path):
    seeded = (
        "import torch\ntorch.manual_seed({})\n"
        + PIPELINE.replace("DENOISER", "transformer")
        + "print('SUM', float(pipeline().sum()))\n"
    )
    reference = record(tmp_path, seeded.format(0), "--name", "reference")
    healed = record(tmp_path, seeded.format(1), "--reference", "latest:reference", "--substitute", "noise_pred")

    def printed(run):
        return (run.path / "output.log").read_text().rsplit("SUM", 1)[1]

    assert printed(healed) == printed(reference)
