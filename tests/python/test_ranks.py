"""Programs of several processes: one run with a part for each rank, and shards that compare puts together."""

import json
import subprocess
import sys

import pytest
from program import PROGRAM, run_json
from recorded import ENVIRONMENT, record

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

# One source for all: two blocks of attention (heads cut over the ranks) and a gated-free MLP (columns, then rows).
MODEL = """
import os, sys
import torch, torch.distributed as dist
from torch import nn

def part(weight, axis, rank, world):
    return weight.chunk(world, axis)[rank].contiguous()

class Cut(nn.Linear):
    def __init__(self, full, axis, rank, world):
        super().__init__(1, 1, bias=False)
        self.weight = nn.Parameter(part(full, axis, rank, world))

class Attention(nn.Module):
    def __init__(self, width, heads, here):
        super().__init__()
        make = lambda axis: Cut(torch.randn(width, width) * width**-0.5, axis, here.rank, here.world)
        self.to_q, self.to_k, self.to_v, self.to_out = make(0), make(0), make(0), make(1)
        self.heads, self.here = heads // here.world, here
    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        mixed = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
        return self.here.sum(self.to_out(mixed.transpose(1, 2).flatten(2)), "attention")

class Mlp(nn.Module):
    def __init__(self, width, here):
        super().__init__()
        self.up = Cut(torch.randn(4 * width, width) * width**-0.5, 0, here.rank, here.world)
        self.down = Cut(torch.randn(width, 4 * width) * (4 * width) ** -0.5, 1, here.rank, here.world)
        self.here = here
    def forward(self, x):
        return self.here.sum(self.down(torch.nn.functional.gelu(self.up(x))), "mlp")

class Block(nn.Module):
    def __init__(self, width, heads, here):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads, here)
        self.norm2, self.mlp, self.here = nn.LayerNorm(width), Mlp(width, here), here
    def forward(self, x):
        x = x + self.attn(self.here.gather(self.norm1(x)))
        return x + self.mlp(self.here.gather(self.norm2(x)))

class Model(nn.Module):
    def __init__(self, here):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block(16, 8, here) for _ in range(2))
        self.here = here
    def forward(self, x):
        x = self.here.share(x)
        for index, block in enumerate(self.blocks):
            self.here.block = index
            x = block(x)
        return x

class Here:
    def __init__(self, rank, world, variant):
        self.rank, self.world, self.variant, self.block = rank, world, variant, 0
    def sum(self, x, what):
        if self.world == 1 or (self.variant == "missing" and (self.block, what) == (1, "mlp")):
            return x
        dist.all_reduce(x)
        return part(x, 1, self.rank, self.world) if self.variant == "sequence" else x
    def share(self, x):
        return part(x, 1, self.rank, self.world) if self.variant == "sequence" else x
    def gather(self, x):
        if self.variant != "sequence":
            return x
        parts = [torch.empty_like(x) for _ in range(self.world)]
        dist.all_gather(parts, x)
        return torch.cat(parts, 1)

def work(rank, world, variant, meeting):
    torch.set_num_threads(1)
    if world > 1 and meeting:
        dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    elif world > 1:
        dist.init_process_group("gloo")
    with torch.no_grad():
        model = Model(Here(rank, world, variant))
        if variant == "odd" and rank == 1:
            model.blocks[1].norm1.bias.add_(0.5)
        if variant in ("killed", "raised") and rank == 1:
            model.blocks[0].norm1(torch.zeros(1, 8, 16))
            if variant == "raised":
                raise ValueError("a rank that raises")
            os.kill(os.getpid(), 9)
        model(torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)))
    if world > 1:
        dist.destroy_process_group()

if __name__ == "__main__":
    if "RANK" in os.environ:  # started by torchrun
        work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1], None)
    elif int(sys.argv[2]) == 1:
        work(0, 1, sys.argv[1], None)
    else:
        # Forked: one import of torch for all ranks.
        ranks = [torch.multiprocessing.get_context("fork").Process(
                     target=work, args=(r, int(sys.argv[2]), sys.argv[1], os.path.abspath(sys.argv[3])))
                 for r in range(int(sys.argv[2]))]
        for rank in ranks: rank.start()
        for rank in ranks: rank.join()
"""


def recorded(folder, variant, world):
    return record(
        folder,
        MODEL,
        "--inputs",
        "--name",
        f"{variant}{world}",
        arguments=(variant, str(world), f"meet-{variant}{world}"),
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for variant, world in (("tensor", 1), ("tensor", 2), ("tensor", 4), ("tensor", 8)):
        made = recorded(folder, variant, world)
        assert made.done.returncode == 0, made.done.stderr
        assert made.manifest["status"] == "finished", made.done.stderr
    return folder


def compared(folder, reference, candidate, *options):
    return run_json("--home", folder / "home", "compare", f"latest:{reference}", f"latest:{candidate}", *options)


def test_each_rank_is_a_part_of_one_run(home):
    shown = run_json("--home", home / "home", "runs", "show", "latest:tensor2")[1]
    assert [(rank["rank"], rank["status"]) for rank in shown["run"]["ranks"]] == [(0, "finished"), (1, "finished")]
    assert shown["run"]["world"] == 2 and shown["run"]["ranks"][0]["records"] == shown["summary"]["records"] / 2 > 10
    assert shown["run"]["versions"]["torch"]  # what a rank knows of its program is known of the run
    assert not run_json("--home", home / "home", "runs", "show", "latest:tensor2", "--verify")[1]["verified"]["bad"]
    names = [run["name"] for run in run_json("--home", home / "home", "runs", "list")[1]["runs"]]
    assert sorted(names) == ["tensor1", "tensor2", "tensor4", "tensor8"]  # no run for a rank beside it
    text = subprocess.run(
        [PROGRAM, "--home", home / "home", "runs", "show", "latest:tensor4"], capture_output=True, text=True
    ).stdout
    assert "rank 3    finished" in text


@pytest.mark.parametrize(
    "pair",
    [
        ("tensor1", "tensor2"),
        ("tensor1", "tensor4"),
        ("tensor2", "tensor4"),
        ("tensor2", "tensor8"),
        ("tensor8", "tensor2"),
        ("tensor4", "tensor1"),
    ],
)
def test_ranks_are_put_together(home, pair):
    done, answer = compared(home, *pair)
    assert answer["verdict"] == "match" and done.returncode == 0, answer["first_divergence"]
    assert answer["coverage"]["paired"] == answer["coverage"]["of"] > 30
    side = "candidate" if pair[1] != "tensor1" else "reference"
    ways = answer["ranks"][side]
    assert ways["Model.blocks.#.attn.to_q"] == "concatenate 2"
    assert ways["Model.blocks.#.mlp.up"] == "concatenate 2" and ways["Model.blocks.#.mlp.down"] == "sum"
    assert ways["input Model.blocks.#.mlp.up"] == "replicate"
    assert ways["Model"] == "replicate"
    notes = {(t["name"], t["role"]): t.get("note", "") for t in answer["tensors"]}
    ranks = max(name.removeprefix("tensor") for name in pair)
    assert f"assembled from {ranks} ranks: summed" in notes["Model.blocks.0.mlp.down", "output"]
    assert f"assembled from {ranks} ranks: concatenated along axis 2" in notes["Model.blocks.1.attn.to_v", "output"]


def test_a_sequence_that_is_cut(home):
    made = recorded(home, "sequence", 2)
    assert made.done.returncode == 0, made.done.stderr
    answer = compared(home, "tensor1", "sequence2")[1]
    assert answer["verdict"] == "match", answer["first_divergence"]
    assert answer["ranks"]["candidate"]["Model.blocks.#.norm#"] == "concatenate 1"


@pytest.mark.parametrize("world", [2, 4])
def test_a_sum_that_was_left_out_is_named(home, world):
    made = recorded(home, "missing", world)
    assert made.done.returncode == 0, made.done.stderr
    done, answer = compared(home, "tensor1", f"missing{world}")
    assert answer["verdict"] == "mismatch" and done.returncode == 1
    assert answer["causes"][0]["cause"] == "ranks.missing_sum", answer["causes"]
    assert "Model.blocks.1.mlp.down" in answer["causes"][0]["look_at"]


def test_a_rank_that_differs_is_found(home):
    recorded(home, "odd", 2)
    answer = compared(home, "tensor1", "odd2")[1]
    assert answer["first_divergence"]["name"] == "Model.blocks.1.norm1"
    assert "ranks.one_differs" in [cause["cause"] for cause in answer["causes"]], answer["causes"]


@pytest.mark.parametrize("variant", ["killed", "raised"])
def test_a_rank_that_crashes_fails_the_run_and_is_named(home, variant):
    made = recorded(home, variant, 2)
    told = json.loads(made.done.stdout)
    assert (told["status"], told["failed_rank"], told["world"]) == ("failed", 1, 2), made.done.stderr
    assert made.done.returncode == 0  # the launcher's own: it did not look
    expected = {"killed": "killed", "raised": "failed"}[variant]
    assert made.manifest["failed_rank"] == {"rank": 1, "status": expected}
    answer = compared(home, "tensor1", f"{variant}2")[1]
    assert "(rank 1 first)" in answer["coverage"]["failure"]


def test_the_map_confirms_or_says_how(home, tmp_path):
    written = tmp_path / "map.json"
    compared(home, "tensor1", "tensor2", "--propose-map", written)
    told = json.loads(written.read_text())
    assert told["ranks"]["candidate"]["Model.blocks.#.mlp.down"] == "sum"
    (tmp_path / "ranks.json").write_text(json.dumps({"ranks": told["ranks"]}))
    assert compared(home, "tensor1", "tensor2", "--map", tmp_path / "ranks.json")[1]["verdict"] == "match"
    wrong = {"ranks": {"candidate": {"Model.blocks.#.attn": "sum"}}}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    assert compared(home, "tensor1", "tensor2", "--map", tmp_path / "wrong.json")[1]["verdict"] == "mismatch"
    wrong["ranks"]["candidate"]["Model.blocks.#.attn"] = "concatenate 9"
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    done = subprocess.run(
        [
            PROGRAM,
            "--home",
            home / "home",
            "compare",
            "latest:tensor1",
            "latest:tensor2",
            "--map",
            tmp_path / "wrong.json",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and 'cannot be put together as "concatenate 9"' in done.stderr


def test_torchrun(home):
    """The launcher's environment says the rank, before the group is joined; torchrun itself records nothing."""
    script = home / "their_script.py"
    script.write_text(MODEL)
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    made = record(home, MODEL, "--inputs", program=[*program, str(script), "tensor"])
    assert made.done.returncode == 0, made.done.stderr
    assert made.manifest["name"] == "their_script" and made.manifest["world"] == 2
    assert compared(home, "tensor1", "their_script")[1]["verdict"] == "match"


@pytest.mark.parametrize(
    "launcher",
    [
        {"OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_SIZE": "2"},
        {"PMI_RANK": "{}", "PMI_SIZE": "2"},
        {"MLX_RANK": "{}", "MLX_HOSTFILE": "hosts.json"},
        {"RANK": "{}", "WORLD_SIZE": "1"},
    ],
    ids=lambda given: next(iter(given)) + next(reversed(given.values())),
)
def test_launchers_say_the_rank_in_the_environment(tmp_path, launcher):
    (tmp_path / "hosts.json").write_text('[["127.0.0.1:1"], ["127.0.0.1:2"]]')
    source = f"""
import array, os, subprocess, sys
from lockstep import checkpoint
if len(sys.argv) > 1:
    checkpoint("x", array.array("f", [float(sys.argv[1]), 2.0]))
else:
    for rank in range(2):
        own = {{key: value.format(rank) for key, value in {launcher!r}.items()}}
        subprocess.run([sys.executable, __file__, str(rank)], env={{**os.environ, **own}}, check=True)
"""
    made = record(tmp_path, source, "--name", "port")
    assert made.done.returncode == 0, made.done.stderr
    parts = sorted(folder.name for folder in (made.path / "ranks").glob("*"))
    if "WORLD_SIZE" in launcher:  # alone
        assert not parts and made.names() == ["x"]
        return
    assert parts == ["0", "1"] and not made.records
    listed = run_json("--home", tmp_path / "home", "runs", "show", "latest:port")[1]
    assert listed["summary"]["records"] == 2 and listed["run"]["world"] == 2


def test_ranks_without_a_run_in_common_have_names_of_their_own(tmp_path):
    environment = {**ENVIRONMENT, "LOCKSTEP_HOME": str(tmp_path / "home"), "LOCKSTEP_RECORD": "port", "WORLD_SIZE": "2"}
    source = "import array\nfrom lockstep import checkpoint\ncheckpoint('x', array.array('f', [1.0]))\n"
    from program import ROOT

    for rank in "01":
        subprocess.run(
            [sys.executable, "-c", source],
            env={**environment, "RANK": rank, "PYTHONPATH": str(ROOT / "python")},
            check=True,
        )
    names = [run["name"] for run in run_json("--home", tmp_path / "home", "runs", "list")[1]["runs"]]
    assert sorted(names) == ["port.rank0", "port.rank1"]


def test_a_part_that_is_no_run_or_lies_elsewhere_is_not_read(tmp_path):
    source = "import array\nfrom lockstep import checkpoint\ncheckpoint('x', array.array('f', [1.0]))\n"
    made = record(tmp_path, source, "--name", "port")
    ranks = made.path / "ranks"
    (ranks / "0").mkdir(parents=True)
    (ranks / "0" / "run.json").write_text('{"format": "something else"}')
    (ranks / "1").symlink_to(made.path)  # a circle
    (ranks / "-1").mkdir()
    done, shown = run_json("--home", tmp_path / "home", "runs", "show", "latest:port")
    assert done.returncode == 0 and shown["summary"]["records"] == 1 and shown["summary"]["skipped_lines"] == 1
