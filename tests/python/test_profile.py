"""`lockstep profile`: time and memory land on the module that took them, on torch, MLX, plain Python and the engine."""

import json
import pathlib
import sys

import pytest
from browser import PROGRAM as BROWSER
from browser import Browser
from debug_service import PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

TORCH = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Heavy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(256, 256)
    def forward(self, x):
        for _ in range(WORK):
            x = self.lin(x)
        return x

class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(256, 256), Heavy(), torch.nn.Linear(256, 256)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Vae(torch.nn.Module):
    def forward(self, x):
        room = torch.ones(MEGABYTES, 1 << 18)  # float32: a MiB each
        return x + room[0, 0]

transformer, vae = Transformer(), Vae()
with torch.no_grad():
    x = torch.randn(512, 256)
    for step in range(3):
        x = transformer(x)
    print(float(vae(x).mean()) != 0)
"""

MLX = """
import mlx.core as mx, mlx.nn as nn

class Block(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.lin, self.work = nn.Linear(256, 256), work
    def __call__(self, x):
        for _ in range(self.work):
            x = self.lin(x)
        return x

class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [Block(1), Block(60), Block(1)]
    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x

model = Transformer()
x = mx.random.normal((256, 256))
for step in range(2):
    x = model(x)
print(x.sum().item() == 0)
"""

PLAIN = """
def inner(n):
    return sum(i * i for i in range(n))

def outer():
    return [inner(10) for _ in range(5)]

outer()
"""


def profile(home, source, *words, name="port"):
    script = home.write(f"{name}.py", source)
    return json.loads(home.run("--json", "profile", *words, "--", sys.executable, script).stdout)


def by_name(document):
    return {module["name"]: module for module in document["modules"]}


def torch_program(work=40, megabytes=64):
    return TORCH.replace("WORK", str(work)).replace("MEGABYTES", str(megabytes))


def test_time_and_memory_land_on_their_module(home):
    pytest.importorskip("torch")
    document = profile(home, torch_program())
    modules = by_name(document)
    assert modules["Transformer"]["calls"] == 3 and modules["Transformer.blocks.1.lin"]["calls"] == 120
    # The blocks are equal but for what Heavy repeats; its time is that of the layer inside it.
    assert modules["Transformer.blocks.1"]["cpu_secs"] > 5 * modules["Transformer.blocks.0"]["cpu_secs"]
    assert modules["Transformer.blocks.1"]["cpu_self_secs"] < modules["Transformer.blocks.1.lin"]["cpu_self_secs"]
    assert modules["Transformer.blocks.1"]["wall_secs"] > modules["Transformer.blocks.1.lin"]["wall_secs"]
    for module in document["modules"]:
        assert 0 <= module["self_secs"] <= module["wall_secs"] <= document["wall_secs"]
    assert document["memory"] == "heap"
    assert 64 << 20 <= modules["Vae"]["allocated_bytes"] < 80 << 20
    assert (
        modules["Vae"]["peak_bytes"] - modules["Transformer"]["peak_bytes"] > 60 << 20
        and document["peak_bytes"] == modules["Vae"]["peak_bytes"]
    )
    assert modules["Transformer.blocks.0"]["allocated_bytes"] >= 3 * 512 * 256 * 4
    assert [stage["name"] for stage in document["stages"] if stage["depth"] == 0][:2] == ["Transformer", "Vae"]
    assert 0 < document["first_step_secs"] < document["wall_secs"]
    assert document["evaluation_secs"] == 0


def test_which_stage_of_the_port_is_slower_and_larger(home):
    pytest.importorskip("torch")
    profile(home, torch_program(), name="reference")
    profile(home, torch_program(work=400, megabytes=256), name="candidate")
    document = json.loads(home.run("--json", "profile", "compare", "latest:reference", "latest:candidate").stdout)
    stages = {stage["name"]: stage for stage in document["stages"]}
    assert stages["transformer"]["time_ratio"] > 1.5 and stages["vae"]["peak_ratio"] > 1.5
    assert stages["transformer"]["reference"]["calls"] == stages["transformer"]["candidate"]["calls"] == 3
    shown = home.run("profile", "compare", "latest:reference", "latest:candidate").stdout
    assert "transformer" in shown and "vae" in shown and "the program" in shown
    assert home.run("profile", "compare", "latest:reference", "nothing", check=False).returncode == 2


def test_lazy_graphs_are_evaluated_where_the_work_is(home):
    pytest.importorskip("mlx.core")
    document = profile(home, MLX)
    modules = by_name(document)
    assert modules["Transformer.blocks.1"]["wall_secs"] > 3 * modules["Transformer.blocks.0"]["wall_secs"]
    assert document["evaluations"] == 8 and 0 < document["evaluation_secs"] and 0 < document["evaluation_share"] < 1
    untouched = profile(home, MLX, "--evaluate", "none")
    assert untouched["evaluations"] == 0 and untouched["evaluation_secs"] == 0
    assert by_name(untouched)["Transformer.blocks.1"]["calls"] == 2
    everywhere = profile(home, MLX, "--evaluate", "modules")
    assert everywhere["evaluations"] == 8 + 2 * 62


def test_plain_functions_and_threads(home):
    home.write("glue.py", PLAIN)
    document = profile(
        home,
        "import glue, threading\nglue.outer()\nt = threading.Thread(target=glue.outer)\nt.start(); t.join()\n",
        "--functions",
        "glue",
        name="user",
    )
    modules = by_name(document)
    assert modules["inner"]["calls"] == 10 and modules["outer"]["calls"] == 2
    assert modules["outer"]["wall_secs"] >= modules["inner"]["wall_secs"]
    failed = home.run(
        "--json", "profile", "--", sys.executable, home.write("bad.py", "raise SystemExit(5)"), check=False
    )
    assert failed.returncode == 3 and json.loads(failed.stdout)["calls"] == 0


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_page_and_the_trace_open(home):
    pytest.importorskip("torch")
    page, trace = home.folder / "times.html", home.folder / "times.json"
    document = profile(home, torch_program(work=3, megabytes=8), "--html", page, "--trace", trace)
    told = json.loads(trace.read_text())
    calls = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert len(calls) == document["calls"] and all(event["dur"] >= 0 and event["ts"] >= 0 for event in calls)
    with Browser(home.folder) as browser:
        browser.open(page)
        assert browser.run("document.querySelectorAll('#flame rect').length") > 4
        titles = browser.run("[...document.querySelectorAll('#flame title')].map(t => t.textContent).join()")
        assert "Transformer.blocks.1" in titles
        assert browser.run("document.querySelector('#memory polyline').points.numberOfItems") > 5
        # Read as a viewer does: slices of a thread by time, each inside the one that is open around it.
        depths = browser.run(
            "(told => { const open = {}, depths = {}; for (const e of told.traceEvents.filter(e => e.ph == 'X').sort((a, b) => a.ts - b.ts || b.dur - a.dur)) {"
            " const key = e.pid + ':' + e.tid, stack = open[key] = open[key] || []; while (stack.length && stack.at(-1).ts + stack.at(-1).dur <= e.ts) stack.pop();"
            " if (stack.length && e.ts + e.dur > stack.at(-1).ts + stack.at(-1).dur + 0.01) throw new Error(e.name + ' reaches out of its parent');"
            f" stack.push(e); depths[e.name] = stack.length; }} return depths; }})({trace.read_text()})"
        )
    assert (
        depths["Transformer"] == 1 and depths["Transformer.blocks.1"] == 2 and depths["Transformer.blocks.1.lin"] == 3
    )
    assert any(event["ph"] == "C" and event["args"]["bytes"] > 0 for event in told["traceEvents"])


def test_hostile_names_stay_text(home):
    pytest.importorskip("torch")
    page = home.folder / "times.html"
    source = (
        torch_program(1, 1)
        + "\nHostile = type('</title><script>alert(1)</script>', (torch.nn.Linear,), {})\nHostile(4, 4)(torch.ones(1, 4))\n"
    )
    profile(home, source, "--html", page)
    assert "<script" not in page.read_text() and "&lt;script" in page.read_text()


def test_damaged_profiles_are_read_as_far_as_they_go(home):
    run = json.loads(
        home.run("--json", "record", "--name", "plain", "--", sys.executable, home.write("p.py", "pass")).stdout
    )["run"]
    assert "lockstep profile --" in home.run("profile", "--run", "latest:plain", check=False).stderr
    (folder,) = home.home.glob(f"*/{run}")
    (folder / "profile").mkdir()
    (folder / "profile" / "1.jsonl").write_text(
        '{"names": ["a", 3], "begin_ns": 5, "end_ns": 1, "memory": [], "frameworks": 7}\n[0,-1,1,10,20,5,0,0,0,0,0]\n[9,-1,1,10,20,5,0,0,0,0,0]\n[0,0,1,10,20,5,0,0,0,0,0]\n{"left_out": "x"}\n[[['
    )
    assert json.loads(home.run("--json", "profile", "--run", "latest:plain").stdout)["calls"] == 1


def test_the_engine_tells_its_own_times(home):
    words = [
        "--json",
        "generate",
        "--prompt",
        "a red circle",
        "--steps",
        "2",
        "--width",
        "64",
        "--height",
        "64",
        "--seed",
        "3",
        "--device",
        "cpu",
    ]
    home.run(*words, "--output", "bare.png")
    document = json.loads(home.run(*words, "--profile", "--output", "timed.png").stdout)["profile"]
    assert (home.folder / "bare.png").read_bytes() == (home.folder / "timed.png").read_bytes()
    names = set(by_name(document))
    assert {"transformer", "vae", "text_encoder"} <= names and any(name.startswith("load") for name in names)
    assert any(name.startswith("transformer.transformer_blocks.0.") for name in names)
    assert document["memory"] == "tensors" and document["peak_bytes"] > 0 and document["frameworks"] == ["lockstep"]
    shown = json.loads(home.run("--json", "profile", "--run", "latest:generate").stdout)
    assert shown["calls"] == document["calls"]


def test_official_pipeline_against_the_engine(home):
    """The names of both sides meet: stage by stage, and module by module."""
    pytest.importorskip("diffusers")
    source = f"""
import torch
torch.set_num_threads(1)
from diffusers import QwenImagePipeline
pipeline = QwenImagePipeline.from_pretrained({str(ROOT / "models" / "tiny")!r}, dtype=torch.float32)
pipeline.set_progress_bar_config(disable=True)
pipeline("a red circle", num_inference_steps=2, width=64, height=64, generator=torch.Generator().manual_seed(0))
"""
    document = profile(home, source, name="official")
    stages = {stage["name"] for stage in document["stages"]}
    assert {"pipeline", "encode_prompt", "scheduler.step", "vae.decode"} <= stages
    assert by_name(document)["scheduler.step"]["calls"] == 2 and document["first_step_secs"] > 0
    home.run(
        "generate",
        "--profile",
        "--prompt",
        "a red circle",
        "--steps",
        "2",
        "--width",
        "64",
        "--height",
        "64",
        "--device",
        "cpu",
    )
    compared = json.loads(home.run("--json", "profile", "compare", "latest:official", "latest:generate").stdout)
    both = {stage["name"] for stage in compared["stages"] if stage["reference"] and stage["candidate"]}
    assert {"text encoder", "transformer", "vae", "loading"} <= both
    assert any(module["name"] == "transformer.transformer_blocks.0.attn" for module in compared["modules"])


def test_over_rest(home):
    home.ensure()
    home.write("glue.py", PLAIN)
    script = home.write("user.py", "import glue\nglue.outer()\n")
    answer = home.call("profile", program=[sys.executable, str(script)], cwd=str(home.folder), functions="glue")
    assert by_name(answer)["inner"]["calls"] == 5  # what importing it ran is not counted
    compared = home.get("profile/compare", reference=answer["run"], candidate=answer["run"])
    assert all(module["time_ratio"] == 1 for module in compared["modules"] if module["time_ratio"])
