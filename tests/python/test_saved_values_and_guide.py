"""The debugger's guide runs as it is written; saved tensors, statistics and weights of every dtype are what they were. Each test says
in a sentence what went wrong in an earlier debugger."""

import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest
from debug_client import ROOT, Session, program
from program import PROGRAM, installed_frameworks, run, run_json

needs_program = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
GUIDE = (ROOT / "docs" / "debugger.md").read_text()


@pytest.fixture
def lockstep(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    import lockstep

    return lockstep


@needs_program
def test_every_step_of_the_guide_is_a_command():
    """The guide that said START HERE printed none of its steps, and one of its chapters was refused."""
    steps = re.findall(r"^\$ lockstep (debug (?:trace )?\w+|serve|mcp)", GUIDE, re.M)
    assert len(steps) >= 20 and {
        "debug start",
        "debug break",
        "debug continue",
        "debug eval",
        "debug next",
        "debug why",
    } <= set(steps)
    for step in sorted(set(steps)):
        done = run(*step.split(), "--help")
        assert done.returncode == 0 and f"lockstep {step}" in done.stdout, step


def test_the_examples_run(tmp_path, lockstep):
    """Both example programs left out an argument that was required and died with a TypeError."""
    source = re.search(r"^\$ printf '(.+)' > steps.py$", GUIDE, re.M).group(1).replace("\\n", "\n")
    path = program(tmp_path, source, "steps.py")
    bare = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout
    with Session(path) as s:
        s.stopped()
        assert s.finish()["code"] == 0 and s.output() == bare == "5 steps\n"
    required = [
        name
        for name, one in inspect.signature(lockstep.debug_checkpoint).parameters.items()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    assert required == ["checkpoint_name"]
    lockstep.debug_checkpoint("a", metadata={"ab_run_id": "1"}, context={"block": 3}, stream="img", verified=True, q=1)


@pytest.mark.parametrize("framework", ["numpy", *installed_frameworks()])
def test_whole_numbers_stay_floats(lockstep, framework):
    """float32 tensors of whole, or only of large, numbers came back as integers."""
    import numpy

    for values in ([1.0, 2.0, 3.0], [60000.4, 70000.6, 80000.2]):
        lockstep.save(numpy.array(values, numpy.float32), "x")
        back = lockstep.load("x", to=framework)
        assert str(back.dtype).rpartition(".")[2] == "float32"
        assert numpy.asarray(back).tobytes() == numpy.array(values, numpy.float32).tobytes()


def test_every_dtype_is_saved_as_it_is(lockstep):
    """bfloat16 of MLX could not be saved, and float64 lost half of its bits."""
    import numpy

    exact = numpy.array([1 / 3, 1e-300])
    lockstep.save(exact, "double")
    assert lockstep.load("double").tobytes() == exact.tobytes() and lockstep.debug_info("double")["dtype"] == "f64"
    mx = pytest.importorskip("mlx.core")
    half = mx.array([1.0, -2.5, 3.140625], dtype=mx.bfloat16)
    lockstep.debug_save(half, "half")
    assert lockstep.debug_info("half")["dtype"] == "bf16"
    back = lockstep.debug_load("half", to="mlx")
    assert back.dtype == mx.bfloat16 and back.tolist() == half.tolist()
    torch = pytest.importorskip("torch")
    assert lockstep.load("half", to="torch").dtype == torch.bfloat16


def test_statistics_of_every_dtype(tmp_path):
    """float16 of torch was not widened, that of MLX could not be, and integers had no statistics at all."""
    pytest.importorskip("torch")
    path = program(
        tmp_path,
        """
        import torch, numpy
        kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool)
        values = {str(kind): torch.tensor([1, 2, 3]).to(kind) for kind in kinds}
        large = torch.full((100_000,), 1000.0, dtype=torch.float16)  # its sum is beyond float16
        array = numpy.arange(24, dtype="int16").reshape(2, 3, 4)[:, ::-1, ::2]
        try:
            import mlx.core as mx
            values["mlx"] = mx.array([1, 2, 3], dtype=mx.float16)
        except ImportError:
            pass
        x = 1
    """,
    )
    with Session(path) as s:
        s.stopped()
        s.ask("break", where="x = 1")
        s.go()
        kinds = ["torch." + kind for kind in ("float16", "bfloat16", "float64", "int8", "int32", "int64", "uint8")]
        for kind in kinds + (["mlx"] if s.eval("'mlx' in values") else []):
            stats = s.ask("eval", expression=f"values[{kind!r}]")["value"]["tensor"]["stats"]
            assert (stats["min"], stats["max"], stats["mean"]) == (1.0, 3.0, 2.0), kind
        assert s.ask("eval", expression="large")["value"]["tensor"]["stats"]["mean"] == 1000.0
        stats = s.ask("eval", expression="array")["value"]["tensor"]
        assert stats["stats"]["mean"] == pytest.approx(11.0) and stats["values"][:4] == [8, 10, 4, 6]


@needs_program
def test_components_keep_their_weights_apart(tmp_path):
    """Shards of different components were merged without a prefix, so that equal names replaced each other, and every report said 100 %."""
    safetensors = pytest.importorskip("safetensors.numpy")
    import numpy

    for number, component in enumerate(("transformer", "vae")):
        folder = tmp_path / "model" / component
        os.makedirs(folder)
        safetensors.save_file(
            {"proj.weight": numpy.full((2, 2), number + 1, numpy.float32)}, folder / "model.safetensors"
        )
    done, found = run_json("weights", "search", tmp_path / "model", "*proj.weight")
    assert done.returncode == 0 and len(found["tensors"]) == 2, found
    names = [one["name"] for one in found["tensors"]]
    assert len(set(names)) == 2 and all(any(part in name for name in names) for part in ("transformer", "vae")), names
    means = [run_json("weights", "show", tmp_path / "model", name)[1]["stats"]["mean"] for name in names]
    assert sorted(means) == [1, 2]
    safetensors.save_file({"proj.weight": numpy.full((2, 2), 5, numpy.float32)}, tmp_path / "port.safetensors")
    done, _ = run_json("weights", "compare", tmp_path / "model" / "vae", tmp_path / "port.safetensors")
    assert done.returncode == 1  # a comparison that can say no
