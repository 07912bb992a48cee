"""The package `lockstep`: every framework's tensors come out as they went in, and it costs nothing when off."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import timeit

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
lockstep = pytest.importorskip("lockstep")
LIBRARY = pathlib.Path(os.environ.get("LOCKSTEP_LIBRARY", ROOT / "build" / "lib" / "liblockstep_capture.so"))
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
torch = pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def records_of(path):
    return [json.loads(line) for line in pathlib.Path(path, "records.jsonl").read_text("utf-8").splitlines()]


def values_of(path, record):
    array = np.load(pathlib.Path(path, record["file"]))
    return array.view(ml_dtypes.bfloat16) if record["dtype"] == "bf16" else array


TORCH_CASES = {
    "f32": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "sliced": lambda: torch.arange(20).reshape(4, 5)[::2, 1:4],
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "f16": lambda: torch.randn(5).half(),
    "i64": lambda: torch.tensor([1, -(2**40)]),
    "bool": lambda: torch.tensor([True, False]),
    "scalar": lambda: torch.tensor(2.5),
    "empty": lambda: torch.empty(0, 3),
    "grad": lambda: torch.randn(3, requires_grad=True),
    "grad_result": lambda: torch.randn(3, requires_grad=True) * 2,
}


@pytest.mark.parametrize("case", TORCH_CASES)
def test_torch(case):
    value = TORCH_CASES[case]()
    with lockstep.run("t") as run:
        assert lockstep.checkpoint("x", value) is value
    (record,) = records_of(run.path)
    assert record["shape"] == list(value.shape)
    np.testing.assert_array_equal(values_of(run.path, record), value.detach().numpy())


def test_torch_odd_kinds():
    complex_value = torch.tensor([1 + 2j, 3 - 4j]).conj()
    bf16 = torch.randn(4, 4).bfloat16().T
    with lockstep.run("t") as run:
        lockstep.checkpoint("bf16", bf16)
        lockstep.checkpoint("complex", complex_value)
        lockstep.checkpoint("sparse", torch.eye(3).to_sparse())
        lockstep.checkpoint("neg", torch._neg_view(torch.ones(2)))
        lockstep.checkpoint("meta", torch.empty(3, device="meta"))  # nothing to record, nothing raised
    records = {record["name"]: record for record in records_of(run.path)}
    assert set(records) == {"bf16", "complex", "sparse", "neg"}
    np.testing.assert_array_equal(values_of(run.path, records["bf16"]).astype("f4"), bf16.float().numpy())
    assert records["complex"]["preview"] == [1, -2, 3, 4] and records["complex"]["shape"] == [2, 2]
    assert records["sparse"]["preview"][:4] == [1, 0, 0, 0]
    assert records["neg"]["preview"] == [-1, -1]


def test_numpy_kinds():
    cases = {
        "reversed": np.arange(5.0)[::-1],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big_endian": np.arange(3, dtype=">i4"),
        "unaligned": np.ndarray((3,), dtype="f4", buffer=bytearray(np.arange(4, dtype="f4").tobytes())[:13], offset=1),
        "field": np.zeros(3, dtype=[("a", "i1"), ("b", "f4")])["b"],
        "scalar": np.float32(3),
        "read_only": np.broadcast_to(np.arange(3), (2, 3)),
    }
    with lockstep.run("t") as run:
        for name, value in cases.items():
            lockstep.checkpoint(name, value)
        lockstep.checkpoint("objects", np.array([{}]))  # cannot be recorded: said once, nothing raised
    records = {record["name"]: record for record in records_of(run.path)}
    assert set(records) == set(cases)
    for name, value in cases.items():
        np.testing.assert_array_equal(values_of(run.path, records[name]), value)


def test_mlx_kinds():
    mx = pytest.importorskip("mlx.core")
    cases = {
        "lazy": mx.arange(6).reshape(2, 3) + 1,
        "transposed": (mx.arange(6).reshape(2, 3) + 1).T,
        "bf16": mx.array([1.5, 2.5]).astype(mx.bfloat16),
        "bf16_scalar": mx.array(3.0).astype(mx.bfloat16),
        "empty": mx.zeros((0, 3)),
        "f16": mx.array([1.0]).astype(mx.float16),
    }
    with lockstep.run("t") as run:
        for name, value in cases.items():
            assert lockstep.checkpoint(name, value) is value
    records = {record["name"]: record for record in records_of(run.path)}
    for name, value in cases.items():
        np.testing.assert_array_equal(
            values_of(run.path, records[name]).astype("f4"), np.array(value.astype(mx.float32)), err_msg=name
        )
        assert records[name]["shape"] == list(value.shape)
    assert records["bf16"]["dtype"] == "bf16"


def test_dlpack_and_buffers():
    import array

    class OnlyDlpack:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **kwargs):
            return self.tensor.__dlpack__(**kwargs)

    with lockstep.run("t") as run:
        lockstep.checkpoint("dlpack", OnlyDlpack(torch.arange(6.0).reshape(2, 3).T))
        lockstep.checkpoint("dlpack_bf16", OnlyDlpack(torch.ones(2, dtype=torch.bfloat16)))
        lockstep.checkpoint("buffer", array.array("d", [1, 2]))
        lockstep.checkpoint("numbers", scale=0.5, count=3)
    records = {record["name"]: record for record in records_of(run.path)}
    assert records["dlpack"]["preview"] == [0, 3, 1, 4, 2, 5]
    assert records["dlpack_bf16"]["dtype"] == "bf16"
    assert records["buffer"]["preview"] == [1, 2]
    assert records["numbers.scale"]["preview"] == [0.5] and records["numbers.count"]["dtype"] == "i64"


def test_values_are_those_of_the_call():
    tensor = torch.zeros(200_000)
    with lockstep.run("t") as run:
        for i in range(10):
            tensor.fill_(i)
            lockstep.checkpoint("reused", tensor)
            tensor.fill_(-1)
    for i, record in enumerate(records_of(run.path)):
        assert record["hit"] == i and record["stats"]["min"] == record["stats"]["max"] == i
        assert (values_of(run.path, record) == i).all()


def test_places_steps_tags_and_locals():
    def block(hidden, note):
        scale = hidden * 2
        lockstep.checkpoint()
        lockstep.checkpoint("named")
        return scale

    with lockstep.run("t") as run:
        block(torch.ones(2), "text")
        a, b = lockstep.checkpoint("pair", first=torch.ones(1), second=torch.zeros(1), step=3, tags={"pass": "cond"})
        assert float(a) == 1 and float(b) == 0
    records = records_of(run.path)
    names = [record["name"] for record in records]
    prefix = records[0]["where"]["function"]
    assert names[:4] == [f"{prefix}.hidden", f"{prefix}.scale", "named.hidden", "named.scale"]
    assert all(record["role"] == "variable" for record in records[:4])
    assert records[0]["where"]["file"] == __file__
    assert records[4]["step"] == 3 and records[4]["tags"] == {"pass": "cond"}


def test_threads_share_one_run():
    with lockstep.run("t") as run:
        threads = [
            threading.Thread(target=lambda: [lockstep.checkpoint("x", torch.ones(30_000)) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = records_of(run.path)
    assert [record["seq"] for record in records] == list(range(80))
    assert sorted(record["hit"] for record in records) == list(range(80))


def test_substitution_gives_the_references_values():
    with lockstep.run("reference"):
        lockstep.checkpoint("a", torch.full((2, 2), 7.0))
        lockstep.checkpoint("b", torch.full((2,), 8.0))
    with lockstep.run("mine", reference="latest:reference", substitute="a,c"):
        own = torch.zeros(2, 2, dtype=torch.bfloat16)
        replaced = lockstep.checkpoint("a", own)
        assert replaced.dtype == torch.bfloat16 and replaced.tolist() == [[7, 7], [7, 7]] and own.sum() == 0
        kept = torch.zeros(2)
        assert lockstep.checkpoint("b", kept) is kept
        assert lockstep.checkpoint("c", kept) is kept
        wrong_shape = torch.zeros(3)
        assert lockstep.checkpoint("a", wrong_shape) is wrong_shape  # hit 1: not in the reference
    with lockstep.run("numpy", reference="latest:reference", substitute="*"):
        assert lockstep.checkpoint("b", np.zeros(2)).tolist() == [8, 8]
    mx = pytest.importorskip("mlx.core")
    with lockstep.run("mlx", reference="latest:reference", substitute="*"):
        assert lockstep.checkpoint("b", mx.zeros((2,)).astype(mx.bfloat16)).tolist() == [8, 8]


def test_save_and_load(home):
    tensor = torch.randn(3, 4).bfloat16().T
    assert lockstep.save(tensor, "a/b") is tensor
    assert torch.equal(lockstep.load("a/b", like=tensor), tensor)
    assert lockstep.load("a/b", to="pytorch", dtype=torch.float32).dtype == torch.float32
    np.testing.assert_array_equal(lockstep.load("a/b").astype("f4"), tensor.float().numpy())
    mx = pytest.importorskip("mlx.core")
    assert lockstep.debug_load("a/b", to="mlx").dtype == mx.bfloat16
    assert lockstep.debug_list() == ["a/b"] and lockstep.debug_info("a/b")["shape"] == [4, 3]
    with pytest.raises(lockstep.LockstepError, match="a/b"):
        lockstep.load("a/c")
    lockstep.save(np.ones(1), "x_1")
    lockstep.save(np.ones(1), "x_10")
    assert lockstep.debug_clear("x_1") == 1 and lockstep.debug_list() == ["a/b", "x_10"]
    with pytest.raises(SystemExit):
        lockstep.debug_save(np.ones(1), "last", exit_after=True)
    assert "last" in lockstep.debug_list()
    assert not list(home.parent.glob("b*"))


def test_off_costs_a_branch():
    value = object()
    checkpoint = lockstep.checkpoint
    count = 200_000

    def loop():
        for _ in range(count):
            checkpoint("x", value)

    def empty():
        for _ in range(count):
            pass

    cost = (min(timeit.repeat(loop, number=1, repeat=7)) - min(timeit.repeat(empty, number=1, repeat=7))) / count
    if lockstep._fast is None:
        pytest.skip("lockstep_fast.abi3.so is not built")
    assert cost < 100e-9, f"{cost * 1e9:.0f} ns"


def test_off_returns_what_it_was_given():
    a, b = object(), object()
    for checkpoint in {lockstep.checkpoint, getattr(lockstep, "_python_checkpoint", lockstep.checkpoint)}:
        assert checkpoint("x", a) is a
        assert checkpoint("x", a, step=1, tags={}) is a
        assert checkpoint("x", hidden=a) is a
        assert checkpoint("x", hidden=a, temb=b, step=1) == (a, b)
        assert checkpoint() is None and checkpoint("x") is None


def run_python(source, home, **environment):
    script = home.parent / "script.py"
    script.write_text(source, "utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "LOCKSTEP_HOME": str(home), **environment},
        capture_output=True,
        text=True,
    )


def test_nothing_is_imported(home):
    done = run_python(
        "import sys\nfrom lockstep import checkpoint\ncheckpoint('x', [1])\n"
        "print([m for m in ('torch', 'numpy', 'mlx', 'jax') if m in sys.modules])",
        home,
        LOCKSTEP_RECORD="1",
    )
    assert done.stdout.strip() == "[]", done.stderr
    assert "not recorded" in done.stderr


@pytest.mark.parametrize("target", ["a file", "a missing library"])
def test_what_fails_costs_one_warning(home, target):
    home.parent.mkdir(exist_ok=True)
    environment = {"LOCKSTEP_RECORD": "1"}
    if target == "a file":
        (home.parent / "file").write_text("x")
        environment["LOCKSTEP_HOME"] = str(home.parent / "file" / "inside")
    else:
        environment["LOCKSTEP_LIBRARY"] = "/nowhere/lib.so"
    done = run_python(
        "import array\nfrom lockstep import checkpoint\nx = array.array('d', [1])\n"
        "for i in range(50): assert checkpoint('x', x) is x\nprint('same')",
        home,
        **environment,
    )
    assert done.stdout == "same\n" and done.returncode == 0
    assert done.stderr.count("lockstep:") == 1


def test_status_of_a_program(home):
    source = "import array\nfrom lockstep import checkpoint\ncheckpoint('x', array.array('d', [1]))\n"
    for tail, status in (("", "finished"), ("raise ValueError", "failed"), ("import os; os._exit(0)", "killed")):
        run_python(source + tail, home, LOCKSTEP_RECORD="state")
        binary = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build" / "bin" / "lockstep"))
        shown = subprocess.run(
            [binary, "--json", "--home", str(home), "runs", "show", "latest:state"], capture_output=True, text=True, check=True
        )
        document = json.loads(shown.stdout)
        assert (document["run"]["status"], document["summary"]["records"]) == (status, 1), tail
