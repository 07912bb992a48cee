"""torch and MLX programs under the debugger."""

import json

import pytest
from debug_client import ROOT, Session, program

torch = pytest.importorskip("torch")
PACKAGE = {"PYTHONPATH": str(ROOT / "python")}


def have_mlx():
    try:
        import mlx.core  # noqa: F401

        return True
    except ImportError:
        return False


needs_mlx = pytest.mark.skipif(not have_mlx(), reason="mlx is not installed")

NET = """
    import torch
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(8)
            self.proj = torch.nn.Linear(8, 8)
        def forward(self, x, scale):
            h = self.norm(x)
            return self.proj(h) * scale
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
        def forward(self, x):
            for i, block in enumerate(self.blocks):
                x = block(x, 1e6 if i == 1 else 1.0)
            return x
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        y = net(torch.randn(2, 8))
    print(tuple(y.shape))
"""


def test_tensors_are_described_without_a_flood(tmp_path):
    path = program(
        tmp_path,
        """
        import torch
        class Loud(torch.Tensor):
            def __repr__(self): raise SystemError("repr was called")
        big = torch.arange(4_000_000, dtype=torch.float32).reshape(2000, 2000).t()
        half = torch.tensor([1.0, float("nan"), float("inf"), -0.0], dtype=torch.bfloat16)
        ints = torch.arange(6, dtype=torch.int64).reshape(2, 3)
        meta = torch.empty(3, device="meta")
        cplx = torch.tensor([1 + 2j])
        loud = torch.zeros(3).as_subclass(Loud)
        empty = torch.empty(0, 3)
        x = 1
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where="x = 1")
        s.go()
        found = {one["name"]: one["value"] for one in s.ask("vars")["variables"]}
        assert found["big"]["tensor"] == {
            "framework": "torch",
            "shape": [2000, 2000],
            "dtype": "float32",
            "device": "cpu",
            "count": 4_000_000,
            "requires_grad": False,
        }
        assert found["loud"]["tensor"]["shape"] == [3]
        value = s.ask("eval", expression="big")["value"]["tensor"]
        assert value["stats"]["max"] == 3999999.0 and value["strides"] == [1, 2000] and value["contiguous"] is False
        assert value["first"][:3] == [0.0, 2000.0, 4000.0] and value["last"][-1] == 3999999.0
        assert value["edges"]["axis1"]["first"] == [0.0, 2000.0, 4000.0]
        stats = s.ask("eval", expression="half")["value"]["tensor"]
        assert (stats["stats"]["nan"], stats["stats"]["inf"], stats["stats"]["max"]) == (1, 1, 1.0)
        assert stats["values"] == [1.0, "NaN", "Infinity", -0.0]
        ints = s.ask("eval", expression="ints")["value"]["tensor"]
        assert ints["stats"]["mean"] == 2.5 and ints["values"] == [0, 1, 2, 3, 4, 5]
        assert "meta" in s.ask("eval", expression="meta")["value"]["tensor"]["note"]
        assert s.ask("eval", expression="cplx")["value"]["tensor"]["stats"]["max"] == 2.0
        assert s.ask("eval", expression="empty")["value"]["tensor"]["values"] == []
        assert s.ask("summary", expression="big", slice="0, :5")["value"]["tensor"]["values"] == [
            0.0,
            2000.0,
            4000.0,
            6000.0,
            8000.0,
        ]
        assert len(json.dumps(s.ask("eval", expression="[big] * 30"))) < 20_000


@pytest.mark.parametrize("glob", ["*", "Net.blocks.*", "blocks.?"])  # with the component's name or without
def test_stop_at_the_first_module_whose_output_fits(tmp_path, glob):
    path = program(tmp_path, NET)
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        assert s.ask("break", module=glob, when="absmax > 1e4")["breakpoint"]["state"] == "pending"
        stop = s.go()
        assert (
            stop["reason"] == "data"
            and stop["data"]["module"] == "Net.blocks.1"
            and stop["data"]["stats"]["absmax"] > 1e4
        )
        absmax = f"{stop['data']['stats']['absmax']:.6g}"
        assert (
            f"the output of Net.blocks.1 (Block) has absmax {absmax}; torch.Tensor[2, 8] float32 on cpu"
            in stop["description"]
        ), stop["description"]
        assert stop["location"]["function"] == "Net.forward" and s.eval("i") == 1
        assert s.eval("_output.shape[1]") == 8 and s.eval("type(_module).__name__") == "Block"
        s.ask("clear")
        s.ask("break", module="Net.blocks.2.norm", nan=True)
        assert s.finish()["code"] == 0
        (cause, *_) = next(e for e in s.passed if e["event"] == "final")["why"]["2"]["causes"]
        assert cause["cause"] == "condition_false" and cause["times"] == 1


def test_nan_is_found_where_it_begins(tmp_path):
    path = program(tmp_path, NET.replace("1e6 if i == 1", "float('nan') if i == 1"))
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", module="*", nan=True)
        assert s.go()["data"]["module"] == "Net.blocks.1"


def test_checkpoints_stop_by_name_glob_hit_and_context(tmp_path):
    path = program(
        tmp_path,
        """
        import torch
        from lockstep import checkpoint, debug_checkpoint
        def block(i, x):
            y = x * (i + 1)
            debug_checkpoint("block", context={"block": i}, skip=(i == 0), hidden=y)
            return checkpoint("out", y, step=i, tags={"pass": "cond" if i % 2 else "uncond"})
        x = torch.ones(2, 3)
        for i in range(4):
            x = block(i, x)
        print(x.sum().item())
    """,
    )
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", checkpoint="block", context={"block": 2})
        s.ask("break", checkpoint="ou*", context={"pass": "cond"}, when="max > 20")
        stop = s.go()
        assert (
            stop["reason"] == "checkpoint" and stop["checkpoint"]["name"] == "block" and stop["checkpoint"]["hit"] == 3
        )
        assert stop["checkpoint"]["context"] == {"block": "2"} and stop["location"]["function"] == "block"
        assert stop["checkpoint"]["values"]["hidden"]["tensor"]["stats"]["max"] == 6.0
        assert s.eval("i") == 2 and [f["location"]["function"] for f in s.ask("stack")["frames"]] == [
            "block",
            "<module>",
        ]
        assert s.go("next")["location"]["text"].startswith("return checkpoint")
        stop = s.go()
        assert stop["checkpoint"]["name"] == "out" and s.eval("i") == 3
        seen = {one["name"]: one["hits"] for one in s.ask("checkpoints")["checkpoints"]}
        assert seen == {"block": 4, "out": 4}
        s.ask("break", checkpoint="blok")
        assert s.finish()["code"] == 0
        why = next(e for e in s.passed if e["event"] == "final")["why"]
        assert why["3"]["causes"][0]["cause"] == "name_never_seen" and "block" in why["3"]["causes"][0]["seen"]


def test_capture_records_without_stopping(tmp_path):
    path = program(tmp_path, NET)
    with Session(path, env={**PACKAGE, "LOCKSTEP_HOME": str(tmp_path / "home")}) as s:
        s.stopped()
        s.ask("break", where=f"{path}:9", capture="normed=h")
        assert s.finish()["code"] == 0
        outputs = [e for e in s.passed if e["event"] == "output" and e["category"] == "capture"]
        assert len(outputs) == 3 and outputs[0]["value"]["tensor"]["shape"] == [2, 8]
    records = [
        json.loads(line)
        for file in (tmp_path / "home").rglob("records.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [one["name"] for one in records] == ["normed"] * 3 and records[0]["shape"] == [2, 8]


def test_torch_compile_runs_with_a_breakpoint_inside(tmp_path):
    path = program(
        tmp_path,
        """
        import torch
        def inner(x):
            y = x * 2
            z = y + 1
            return z
        compiled = torch.compile(inner, backend="eager")
        print(compiled(torch.ones(3)).sum().item())
        print(compiled(torch.ones(3)).sum().item())
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where=f"{path}:4", condition="y.sum() > 1000")
        s.ask("break", where=f"{path}:5", hits=2)
        s.ask("continue")
        gone = None
        while gone is None:
            while not s.events:
                s._read(120)
            event = s.events.pop(0)
            if event["event"] == "stopped":
                assert event["reason"] in ("breakpoint", "condition_error"), event
                s.ask("continue")
            gone = event if event["event"] == "exited" else None
        assert gone["code"] == 0 and s.output().split() == ["9.0", "9.0"], s.output()


# -- MLX ----------------------------------------------------------------------------------------------------------------
@needs_mlx
def test_mlx_stays_lazy_until_it_is_asked_for(tmp_path):
    path = program(
        tmp_path,
        """
        import mlx.core as mx
        a = mx.arange(6, dtype=mx.float32).reshape(2, 3)
        b = a * 2 + 1
        c = b.astype(mx.bfloat16)
        x = 1
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where="x = 1")
        s.go()
        found = {one["name"]: one["value"] for one in s.ask("vars")["variables"]}
        assert found["b"]["tensor"]["shape"] == [2, 3] and "stats" not in found["b"]["tensor"]
        value = s.ask("eval", expression="b")["value"]["tensor"]
        assert value["values"] == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0] and value["stats"]["mean"] == 6.0
        assert s.ask("eval", expression="c")["value"]["tensor"]["stats"]["max"] == 11.0
        assert s.ask("eval", expression="c")["value"]["tensor"]["dtype"] == "bfloat16"
        s.ask("eval", expression="b = b + 1")
        assert s.ask("eval", expression="b[0, 0]")["value"]["tensor"]["values"] == [2.0]


@needs_mlx
def test_an_index_beyond_the_end_is_reported(tmp_path):
    path = program(
        tmp_path,
        """
        import mlx.core as mx
        sigmas = mx.linspace(1.0, 0.0, 1000)
        def step(timestep):
            good = sigmas[999]
            sigma = sigmas[timestep]
            return sigma
        step(1000)
        step(1000)
        print(mx.take(sigmas, mx.array([5, 2000])).shape, sigmas[-1000].item())
    """,
    )
    with Session(path, options={"check_bounds": True}) as s:
        s.stopped()
        stop = s.go()
        assert stop["reason"] == "bounds" and stop["bounds"]["index"] == 1000 and stop["bounds"]["size"] == 1000
        assert stop["location"]["text"] == "sigma = sigmas[timestep]" and s.eval("timestep") == 1000
        stop = s.go()
        assert stop["bounds"]["index"] == 2000  # each place once
        assert s.finish()["code"] == 0


@needs_mlx
def test_mlx_modules_are_watched(tmp_path):
    path = program(
        tmp_path,
        """
        import mlx.core as mx
        import mlx.nn as nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)
                self.b = nn.Linear(4, 4)
            def __call__(self, x):
                return self.b(self.a(x) * float("inf"))
        net = Net()
        mx.eval(net(mx.ones((2, 4))))
    """,
    )
    with Session(path, env=PACKAGE) as s:
        s.stopped()
        s.ask("break", module="*", nan=True)
        stop = s.go()
        assert stop["data"]["module"] == "Net.b" and stop["location"]["line"] == 9
