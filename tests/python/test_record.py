"""`lockstep record`: module calls of programs that know nothing of it."""

import functools
import json
import os
import pathlib
import shlex
import subprocess
import sys

import numpy as np
import pytest
import recorded
from recorded import ENVIRONMENT

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin" / "lockstep"))
pytestmark = pytest.mark.skipif(not BINARY.exists(), reason=f"{BINARY} is not built")
pytest.importorskip("torch")


@pytest.fixture
def record(tmp_path):
    return functools.partial(recorded.record, tmp_path)


NET = """
import sys, torch
torch.manual_seed(0)
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)
    def forward(self, x, scale=1.0, *, mask=None):
        return self.proj(x) * scale, {"half": x / 2, "text": "no tensor"}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.again = self.first
        self.listed = [torch.nn.ReLU(), torch.nn.Linear(4, 2)]
    def forward(self, x):
        x, extra = self.first(x, mask=torch.ones(2))
        x, extra = self.again(x, mask=None)
        for layer in self.listed:
            x = layer(x)
        return x.sum()
net = Net()
net.first.proj(torch.ones(1, 4))     # a part is called before the whole
for _ in range(2):
    print(float(net(torch.ones(1, 4)).detach()))
"""


def test_torch_modules(record):
    plain = subprocess.run([sys.executable, "-c", NET], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    run = record(NET)
    assert run.manifest["status"] == "finished" and run.manifest["name"] == "their_script"
    assert run.manifest["program"]["exit_code"] == 0
    assert (run.path / "output.log").read_text() == plain.stdout  # the same results, and kept
    assert run.done.stderr.startswith(plain.stdout)
    assert run.names()[0] == "Net.first.proj"
    assert run.names()[1:9] == [
        "Net.first.proj",
        "Net.first.0",
        "Net.first.1.half",
        "Net.first.proj",
        "Net.first.0",
        "Net.first.1.half",
        "Net.listed.0",
        "Net.listed.1",
    ]
    assert run.names()[9] == "Net" and len(run.names()) == 19
    assert run.manifest["aliases"]["Net.first"] == ["Net.again"]
    hits = [record["hit"] for record in run.records if record["name"] == "Net.first.proj"]
    assert hits == [0, 1, 2, 3, 4]
    # Nobody mends torch's own code: a layer of the framework is found at the line that calls it.
    assert run.records[0]["role"] == "output"
    for number, call in (
        (0, "net.first.proj("),
        (1, "self.proj(x)"),
        (2, "def forward(self, x, scale"),
        (8, "layer(x)"),
    ):
        where = run.records[number]["where"]
        assert where["file"].endswith("their_script.py") and call in NET.splitlines()[where["line"] - 1], where
    assert run.manifest["versions"]["torch"]


def test_inputs_and_filters(record):
    run = record(NET, "--inputs", "--modules", "first*")  # as Net.first*: the component's name may be left out
    assert set(run.names("output")) == {"Net.first.proj", "Net.first.0", "Net.first.1.half"}
    inputs = run.names("input")
    # Two tensors carry their parameters, one alone the module's name.
    assert inputs[:4] == ["Net.first.proj", "Net.first.x", "Net.first.mask", "Net.first.proj"]
    np.testing.assert_array_equal(run.values("Net.first.mask"), np.ones(2, "f4"))
    files = [record["file"] for record in run.records]
    assert len(set(files)) == len(files)

    run = record(NET, "--stats-only", "--no-tap", "*.proj")
    assert "Net.first.proj" not in run.names()
    assert all(record["file"] is None and record["checksum"] and record["stats"] for record in run.records)

    run = record(NET, "--full", "Net.listed.*", "--budget", "1")
    assert {record["name"] for record in run.records if record["file"]} == {"Net.listed.0", "Net.listed.1"}


def test_a_second_run_keeps_what_compare_names(record, tmp_path):
    """Statistics of everything first; compare names the suspect and how to record it; the second run is compared in full."""

    def compare():
        command = [
            str(BINARY),
            "--json",
            "--home",
            str(tmp_path / "home"),
            "compare",
            "latest:reference",
            "latest:mine",
        ]
        return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)

    wrong = NET.replace("self.proj(x) * scale", "self.proj(x) * 1.5")
    record(NET, "--stats-only", "--name", "reference")
    record(wrong, "--stats-only", "--name", "mine")
    first = compare()
    assert first["verdict"] == "mismatch" and first["first_divergence"]["name"] == "Net.first.0"
    hint = first["first_divergence"]["hint"]
    options = shlex.split(hint[hint.index("lockstep record") :])[2:]
    options = options[: options.index("--")] if "--" in options else options
    record(NET, *options, "--name", "reference")
    record(wrong, *options, "--name", "mine")
    second = compare()
    assert second["verdict"] == "mismatch" and second["first_divergence"]["name"] == "Net.first.0"


def test_how_programs_end(record):
    failed = record(NET + "\nsys.exit(5)")
    assert failed.done.returncode == 5
    assert failed.manifest["status"] == "failed" and failed.manifest["program"]["exit_code"] == 5
    killed = record(NET + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert killed.manifest["status"] == "killed" and killed.manifest["program"]["signal"] == 9
    assert len(killed.records) == 19  # nothing that had been recorded is lost
    assert killed.manifest["program"]["exit_code"] == 137
    other = record("", program=["sh", "-c", "echo out; echo err >&2; exit 0"])
    assert other.manifest["status"] == "finished" and other.records == []
    assert sorted((other.path / "output.log").read_text().split()) == ["err", "out"]


def test_mlx_modules(record):
    pytest.importorskip("mlx.core")
    source = """
import mlx.core as mx, mlx.nn as nn
class Base(nn.Module):
    def __call__(self, x):
        return x + 1
class Derived(Base):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(3, 3), nn.RMSNorm(3)]
        self.tail = nn.Linear(3, 2)
    def __call__(self, x):
        x = super().__call__(x)
        for layer in self.layers:
            x = layer(x)
        return self.tail(x).astype(mx.bfloat16)
model = Derived()
step = mx.compile(lambda x: model(x))
print(model(mx.ones((1, 3))).shape, step(mx.ones((1, 3))).shape)
"""
    run = record(source)
    assert run.done.returncode == 0, run.done.stderr
    assert run.names() == ["Derived.layers.0", "Derived.layers.1", "Derived.tail", "Derived"]
    assert run.records[-1]["dtype"] == "bf16" and run.manifest["versions"]["mlx"]


def test_mlx_shared_quantised_and_packed_outputs(record):
    pytest.importorskip("mlx.core")
    source = """
import dataclasses, mlx.core as mx, mlx.nn as nn
@dataclasses.dataclass
class Result:
    sample: mx.array
    extra: tuple
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.parts = {"left": nn.Linear(64, 64), "right": [nn.Linear(64, 64)]}
    def __call__(self, x, *, mask=None):
        x = self.again(self.first(x))
        return Result(sample=self.parts["right"][0](self.parts["left"](x)), extra=(x, {"half": x / 2}))
net = Net()
nn.quantize(net, group_size=32, bits=4)
net.again = net.first   # shared only now: quantising makes new modules
out = net(mx.ones((2, 64)), mask=mx.ones((2,)))
print(out.sample.shape)
"""
    run = record(source, "--inputs")
    assert run.done.returncode == 0, run.done.stderr
    assert run.names("output") == [
        "Net.first", "Net.first", "Net.parts.left", "Net.parts.right.0", "Net.sample", "Net.extra.0", "Net.extra.1.half"
    ]  # fmt: skip
    assert run.manifest["aliases"] == {"Net.first": ["Net.again"]}
    assert [
        record["hit"] for record in run.records if record["name"] == "Net.first" and record["role"] == "output"
    ] == [0, 1]
    assert {"Net.x", "Net.mask"} <= set(run.names("input"))
    np.testing.assert_array_equal(run.values("Net.extra.1.half") * 2, run.values("Net.extra.0"))


PACKED = """
import collections, dataclasses, torch
Pair = collections.namedtuple("Pair", "left right")
@dataclasses.dataclass
class Result:
    sample: torch.Tensor
    hidden: tuple = ()
    note: str = "text"
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.split, self.join = Split(), Join()
    def forward(self, x):
        pair = self.split(x)
        assert isinstance(pair, Pair)
        return self.join(pair, {"scale": torch.tensor(2.0)})
class Split(torch.nn.Module):
    def forward(self, x):
        return Pair(*x.chunk(2, -1))
class Join(torch.nn.Module):
    def forward(self, pair, more):
        return Result(torch.cat(list(pair), -1) * more["scale"], (pair.left, [pair.right]))
with torch.no_grad():
    result = Net()(torch.arange(4.0))
assert isinstance(result, Result), result
print(result.sample.tolist())
"""


def test_tuples_dicts_and_dataclasses_are_opened(record):
    run = record(PACKED, "--inputs", "--name", "reference")
    assert run.done.returncode == 0, run.done.stderr
    joined = ["sample", "hidden.0", "hidden.1.0"]
    assert run.names("output") == ["Net.split.left", "Net.split.right"] or run.names("output")[:2] == [
        "Net.split.0",
        "Net.split.1",
    ]
    assert run.names("output")[2:5] == [f"Net.join.{part}" for part in joined]
    assert run.names("output")[5:] == [f"Net.{part}" for part in joined]
    assert [name for name in run.names("input") if name.startswith("Net.join")] == [
        "Net.join.pair.0",
        "Net.join.pair.1",
        "Net.join.more.scale",
    ]
    assert run.values("Net.sample").tolist() == [0, 2, 4, 6]
    # Replaced inside, whatever they are packed in; the types stay what they were.
    wrong = PACKED.replace("x.chunk(2, -1)", "(3 * x).chunk(2, -1)")
    healed = record(
        wrong, "--reference", "latest:reference", "--substitute", "Net.split*,Net.join.hidden*", "--name", "healed"
    )
    assert healed.done.returncode == 0, healed.done.stderr
    assert healed.values("Net.sample").tolist() == [0, 2, 4, 6]


def test_the_component_is_the_pipelines_attribute(record):
    pytest.importorskip("diffusers")
    source = """
import torch
from diffusers import DiffusionPipeline
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.proj(x)
class MyPipeline(DiffusionPipeline):
    def __init__(self, denoiser, decoder):
        super().__init__()
        self.register_modules(denoiser=denoiser, decoder=decoder)
    @torch.no_grad()
    def __call__(self, x):
        return self.decoder(self.denoiser(x))
pipeline = MyPipeline(Net(), torch.nn.Sequential(torch.nn.Linear(4, 2)))
pipeline(torch.ones(1, 4))
Net()(torch.ones(1, 4))   # outside of any pipeline: its class
"""
    run = record(source)
    assert run.done.returncode == 0, run.done.stderr
    assert {"denoiser.proj", "decoder.0", "Net.proj", "Net"} <= set(run.names())


def test_nothing_recorded_is_said(record, tmp_path):
    run = record("print('no tensors here')")
    assert run.done.returncode == 0 and "recorded nothing" in run.done.stderr
    script = tmp_path / "isolated.py"
    script.write_text(NET)
    run = record("", program=[sys.executable, "-I", str(script)])
    assert run.records == [] and "recorded nothing" in run.done.stderr


def test_a_full_disk_changes_no_result(record):
    """Tensors larger than a file may be: one warning, the same output, and statistics of every tensor."""
    source = """
import resource, torch
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
with torch.no_grad():
    print(float(net(torch.ones(1024, 512)).sum()))   # 2 MB each
"""
    plain = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    run = record(source)
    assert run.done.returncode == 0 and plain.stdout in (run.path / "output.log").read_text()
    assert run.done.stderr.count("lockstep: [record]") == 1, run.done.stderr
    assert len(run.records) == 5 and all(record["stats"] and record["file"] is None for record in run.records)
    assert not list((run.path / "tensors").iterdir())


def test_traced_programs_are_left_alone(record):
    source = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
traced = torch.jit.trace(net, torch.ones(1, 3))
graph = torch.fx.symbolic_trace(net)
print(traced.code.count("lockstep"), torch.equal(traced(torch.ones(1, 3)), net(torch.ones(1, 3))))
"""
    run = record(source)
    assert run.done.returncode == 0, run.done.stderr
    assert (run.path / "output.log").read_text().splitlines()[-1] == "0 True"


def test_an_existing_sitecustomize_still_runs(record, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = 'ran'\n")
    run = record("import os\nprint(os.environ.get('THEIRS'))\n" + NET, environment={"PYTHONPATH": str(folder)})
    assert (run.path / "output.log").read_text().startswith("ran\n")
    assert len(run.records) == 19


def test_children_get_runs_of_their_own(record, tmp_path):
    source = (
        NET
        + "\nimport subprocess\nif len(sys.argv) < 2: subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    )
    run = record(source)
    assert len(run.records) == 19
    runs = [*(tmp_path / "home" / "runs").glob("*/run.json"), *(tmp_path / "home" / "archive").glob("*/run.json")]
    assert len(runs) == 2
    counts = [len((path.parent / "records.jsonl").read_text().splitlines()) for path in runs]
    assert counts == [19, 19]


def test_substituting_module_outputs(record):
    reference = record(NET, "--name", "reference")
    # A port whose first layer is wrong: with the reference's value in its place, the rest is right again.
    wrong = NET.replace("self.proj(x) * scale", "self.proj(x) * 2")
    candidate = record(wrong, "--name", "mine")
    assert not np.allclose(candidate.values("Net"), reference.values("Net"))
    healed = record(wrong, "--name", "healed", "--reference", "latest:reference", "--substitute", "Net.first.0")
    np.testing.assert_array_equal(healed.values("Net"), reference.values("Net"))
    np.testing.assert_array_equal(healed.values("Net.first.0"), candidate.values("Net.first.0"))  # recorded as it was
    marks = {record["name"] for record in healed.records if record.get("substituted")}
    assert marks == {"Net.first.0"}


def test_names_that_are_hard_for_files(record, tmp_path):
    source = """
from lockstep import checkpoint
import array
x = array.array("d", [1.0])
names = ["../../out", "/etc/x", "..", "a/b", "ü 漢", "n" * 4096, "\\ud800", "a\\0b", "line\\nbreak"]
for name in names:
    checkpoint(name, x)
"""
    before = {path for path in tmp_path.parent.rglob("*.npy")}
    run = record(source)
    assert len(run.records) == 9 and len({record["file"] for record in run.records}) == 9
    outside = [path for path in tmp_path.parent.rglob("*.npy") if path not in before and run.path not in path.parents]
    assert outside == []


def test_runs_commands(record, tmp_path):
    first = record(NET)
    second = record(NET)
    home = ["--home", str(tmp_path / "home"), "--json"]

    def lockstep(*arguments, status=0):
        done = subprocess.run([str(BINARY), *home, *arguments], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    listed = lockstep("runs", "list")["runs"]
    assert [run["id"] for run in listed] == [second.path.name, first.path.name]
    assert [run["archived"] for run in listed] == [False, True]
    assert lockstep("runs", "show", first.path.name)["summary"]["records"] == 19
    assert lockstep("runs", "limits") == {
        "used_bytes": lockstep("runs", "limits")["used_bytes"],
        "warn_bytes": 10**9,
        "refuse_bytes": 10**10,
    }
    assert lockstep("runs", "show", "latest", "--verify")["verified"] == {
        "tensors": 19,
        "bad": [],
        "dropped_records": 0,
    }
    changed = second.path / second.records[3]["file"]
    values = np.load(changed)
    changed.unlink()  # the same values may stand in several records
    np.save(changed, values + 1)
    assert len(lockstep("runs", "show", "latest", "--verify", status=1)["verified"]["bad"]) == 1
    assert lockstep("runs", "limits", "--warn", "1MB", "--refuse", "2MB")["refuse_bytes"] == 2_000_000
    assert lockstep("runs", "limits")["warn_bytes"] == 1_000_000
    lockstep("runs", "limits", "--warn", "3MB", status=2)
    lockstep("runs", "show", "latest:their_scrip", status=2)
    assert lockstep("runs", "remove", first.path.name)["removed"] == [first.path.name]
    assert lockstep("runs", "archive", "latest")["archived"] == [second.path.name]
    assert [run["archived"] for run in lockstep("runs", "list")["runs"]] == [True]
