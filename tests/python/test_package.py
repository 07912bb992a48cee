"""The package `lockstep`: every framework's tensors come out as they went in, and it costs nothing when off."""

import json
import os
import pathlib
import sys
import threading

import numpy as np
import pytest
from package_program import ROOT, run_python

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


@pytest.fixture(params=["c", "python"])
def checkpoint(request):
    """checkpoint() in both its forms: the C one, and the Python one of an installation without it."""
    if request.param == "c" and lockstep._fast is None:
        pytest.skip("lockstep_fast.abi3.so is not built")
    return lockstep.checkpoint if request.param == "c" else lockstep._python_checkpoint


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
            threading.Thread(target=lambda: [lockstep.checkpoint("x", torch.ones(30_000)) for _ in range(20)])
            for _ in range(4)
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


def test_off_returns_what_it_was_given():
    a, b = object(), object()
    for checkpoint in {lockstep.checkpoint, getattr(lockstep, "_python_checkpoint", lockstep.checkpoint)}:
        assert checkpoint("x", a) is a
        assert checkpoint("x", a, step=1, tags={}) is a
        assert checkpoint("x", hidden=a) is a
        assert checkpoint("x", hidden=a, temb=b, step=1) == (a, b)
        assert checkpoint("x", a, temb=b) == (a, b) and checkpoint("x", None, temb=b) is b
        assert checkpoint() is None and checkpoint("x") is None and checkpoint("x", None) is None
        assert checkpoint("x", step=1) is None


def test_both_forms_record_alike(checkpoint):
    def stage(hidden):
        own = hidden + 1
        checkpoint("all")
        checkpoint()
        return own

    x = torch.ones(2)
    with lockstep.run("t") as run:
        assert checkpoint("x", x) is x
        assert checkpoint("x", x, step=2, tags={"pass": "cond"}) is x
        assert checkpoint("x", x, mask=None) == (x, None)
        assert (
            checkpoint("x", None) is None
        )  # a mask that is absent: nothing is recorded, least of all the local variables
        assert checkpoint("pair", a=x, b=None) == (x, None)
        stage(x)
    assert checkpoint("x", x) is x  # off again
    records = records_of(run.path)
    names = [record["name"] for record in records]
    function = "test_both_forms_record_alike.<locals>.stage"
    assert names == ["x", "x", "x", "pair.a", "all.hidden", "all.own", f"{function}.hidden", f"{function}.own"]
    assert all(record["where"]["file"] == __file__ for record in records)
    assert records[1]["step"] == 2 and records[1]["tags"] == {"pass": "cond"}


def test_quantised_and_small_floats():
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    by_tensor = torch.quantize_per_tensor(x, 0.01, 3, torch.quint8)
    by_channel = torch.quantize_per_channel(
        x, torch.tensor([0.01, 0.02, 0.03]), torch.tensor([0, 1, 2]), 0, torch.qint8
    )
    cases = {
        "tensor": by_tensor,
        "channel": by_channel,
        "f8": x.to(torch.float8_e4m3fn),
        "f8b": x.to(torch.float8_e5m2),
    }
    with lockstep.run("reference") as run:
        for name, value in cases.items():
            assert lockstep.checkpoint(name, value) is value
    records = {record["name"]: record for record in records_of(run.path)}
    for name in ("tensor", "channel"):
        np.testing.assert_array_equal(values_of(run.path, records[name]), cases[name].dequantize().numpy())
    for name, kind in (("f8", ml_dtypes.float8_e4m3fn), ("f8b", ml_dtypes.float8_e5m2)):
        values = np.load(pathlib.Path(run.path, records[name]["file"])).view(kind)
        np.testing.assert_array_equal(values.astype("f4"), cases[name].float().numpy())
    with lockstep.run("mine", reference="latest:reference", substitute="*"):
        for name, value in cases.items():
            replaced = lockstep.checkpoint(name, torch.zeros_like(value) if not value.is_quantized else value.clone())
            assert replaced.dtype == value.dtype
            assert torch.equal(replaced.dequantize() if value.is_quantized else replaced.float(),
                               value.dequantize() if value.is_quantized else value.float()), name  # fmt: skip


def test_mlx_quantised_and_complex():
    mx = pytest.importorskip("mlx.core")
    weights, scales, biases = mx.quantize(mx.arange(128, dtype=mx.float32).reshape(2, 64), group_size=32, bits=4)
    waves = mx.array([1 + 2j, 3 - 4j])
    with lockstep.run("reference") as run:
        lockstep.checkpoint("quantised", weights=weights, scales=scales, biases=biases)
        lockstep.checkpoint("waves", waves)
    records = {record["name"]: record for record in records_of(run.path)}
    np.testing.assert_array_equal(values_of(run.path, records["quantised.weights"]), np.array(weights))
    assert records["quantised.weights"]["dtype"] == "u32" and records["waves"]["preview"] == [1, 2, 3, -4]
    with lockstep.run("mine", reference="latest:reference", substitute="*"):
        assert lockstep.checkpoint("waves", mx.zeros(2, dtype=mx.complex64)).tolist() == [1 + 2j, 3 - 4j]


def test_modes_of_torch_and_a_program_in_two_files(tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / f"{name}_part.py").write_text(
            "from lockstep import checkpoint\ndef forward(x):\n    for i in range(3):\n        x = checkpoint('x', x + 1)\n    return x\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    import first_part
    import second_part

    with lockstep.run("t") as run:
        with torch.no_grad():
            x = first_part.forward(torch.zeros(2))
        with torch.inference_mode():
            x = second_part.forward(x)
        layer = torch.nn.Linear(2, 2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = lockstep.checkpoint("autocast", layer(torch.ones(1, 2)))
        y.sum().backward()  # the graph goes through the checkpoint
    records = records_of(run.path)
    assert [record["hit"] for record in records] == [0, 1, 2, 3, 4, 5, 0]  # one run, one count, whichever file
    assert [record["preview"][0] for record in records[:6]] == [1, 2, 3, 4, 5, 6]
    assert {pathlib.Path(record["where"]["file"]).name for record in records[:6]} == {"first_part.py", "second_part.py"}
    assert records[6]["dtype"] == "bf16" and layer.weight.grad is not None
    assert x.tolist() == [6, 6]


def test_a_hundred_thousand_hits(checkpoint):
    x = torch.zeros(4)
    with lockstep.run("t", stats_only=True) as run:
        for i in range(100_000):
            checkpoint("loop", x)
    count = 0
    with open(pathlib.Path(run.path, "records.jsonl"), encoding="utf-8") as lines:
        for count, line in enumerate(lines, 1):
            if count in (1, 50_000, 100_000):
                assert json.loads(line)["hit"] == count - 1
    assert count == 100_000


def test_load_takes_framework_and_dtype_from_like():
    x = torch.tensor([[1.5, -2.0], [0.25, 3.0]])
    for source in (x, x.bfloat16(), x.half(), x.numpy()):
        lockstep.save(source, "x")
        for like in (
            x,
            x.double(),
            x.bfloat16(),
            np.zeros(1, "f4"),
            np.zeros(1, "f8"),
            np.zeros(1, ml_dtypes.bfloat16),
        ):
            loaded = lockstep.load("x", like=like)
            assert type(loaded) is type(like) and loaded.dtype == like.dtype
            assert loaded.tolist() == x.tolist()
    waves = torch.tensor([1 + 2j, 3 - 4j])
    lockstep.save(waves, "waves")
    assert torch.equal(lockstep.load("waves", like=waves), waves)
    assert lockstep.load("waves", like=np.zeros(1, "c8")).tolist() == [1 + 2j, 3 - 4j]
    mx = pytest.importorskip("mlx.core")
    assert lockstep.load("x", like=mx.zeros(1, dtype=mx.float16)).dtype == mx.float16
    for shape in ((), (0, 3)):
        lockstep.save(np.full(shape, 7, "f4"), "odd")
        for like in (x, np.zeros(1, "f4"), mx.zeros(1)):
            assert tuple(lockstep.load("odd", like=like).shape) == shape


def test_without_ml_dtypes_bfloat16_is_still_right(home):
    lockstep.save(torch.tensor([1.5, -2.0]).bfloat16(), "x")
    done = run_python(
        "import numpy, lockstep\nprint(lockstep.load('x', like=numpy.zeros(1, 'f4')).tolist(), lockstep.load('x').dtype)",
        home,
    )
    assert done.stdout == "[1.5, -2.0] |V2\n", done.stderr


def test_the_names_of_mflux(home, capsys, monkeypatch):
    """Each debug_* name, each argument."""
    mx = pytest.importorskip("mlx.core")
    x = torch.arange(4.0)
    lockstep.debug_save(x, "skipped", exit_after=True, skip=True)
    lockstep.debug_save(x, "x")
    lockstep.debug_save(x * 2, "x")  # the newer one replaces the older
    lockstep.debug_save(tensor=mx.array([1, 2]), name="ids")
    assert lockstep.debug_list() == ["ids", "x"] and lockstep.debug_list("i*") == lockstep.debug_list(pattern="i*") == [
        "ids"
    ]
    assert lockstep.debug_load("x").tolist() == [0, 2, 4, 6] and isinstance(lockstep.debug_load("x"), mx.array)
    assert lockstep.debug_load("x", to="mlx", dtype=mx.float16).dtype == mx.float16
    loaded = lockstep.debug_load("x", exact_version=True, to="pytorch", device="cpu", dtype=torch.bfloat16)
    assert loaded.dtype == torch.bfloat16 and loaded.device.type == "cpu"
    assert lockstep.debug_load("x", to="torch", dtype="float16").dtype == torch.float16
    assert lockstep.debug_load("x", to="numpy", dtype="f8").dtype == np.float64
    with pytest.raises(FileNotFoundError, match="nothing"):
        lockstep.debug_load("nothing")
    with pytest.raises(lockstep.LockstepError, match="tensorflow"):
        lockstep.debug_load("x", to="tensorflow")
    about = lockstep.debug_info("x")
    assert about["shape"] == [4] and about["dtype"] == "f32" and about["bytes"] > 16
    with pytest.raises(FileNotFoundError, match="nothing"):
        lockstep.debug_info("nothing")
    lockstep.debug_show_all()
    shown = capsys.readouterr().out
    assert "ids" in shown and "[4]" in shown and "2 tensors" in shown
    monkeypatch.setattr("sys.stdin", open(os.devnull))
    with pytest.raises(lockstep.LockstepError, match="confirm=False"):
        lockstep.debug_clear()
    for answer, removed in (("n", 0), ("y", 2)):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda question: answer)
        assert lockstep.debug_clear() == removed
    assert lockstep.debug_list() == [] and lockstep.debug_clear(confirm=False) == 0 and lockstep.debug_clear("x") == 0
    lockstep.debug_checkpoint("off", x=x)
    with lockstep.run("t") as run:
        local = x + 1  # noqa: F841
        lockstep.debug_checkpoint("locals", skip=True)
        lockstep.debug_checkpoint(
            "all",
            stream="img",
            context={"block": 3, "timestep": 7},
            metadata={"note": "n"},
            skip=True,
            verified=True,
            hidden=x,
            scale=2.0,
        )
        with pytest.raises(SystemExit):
            lockstep.debug_checkpoint("last", terminate_after=True, x=x)
    records = {record["name"]: record for record in records_of(run.path)}
    assert {"locals.x", "locals.local", "all.hidden", "all.scale", "last.x"} <= set(records)
    assert records["all.hidden"]["step"] == 7
    assert records["all.hidden"]["tags"] == {"block": "3", "note": "n", "stream": "img", "verified": "true"}
    for off in {lockstep.debug_checkpoint, lockstep._python_debug_checkpoint}:
        off("off", terminate_after=False, x=x)
        off(checkpoint_name="off", x=x)
        with pytest.raises(SystemExit):
            off("off", terminate_after=True)
        with pytest.raises(SystemExit):
            off("off", None, None, None, False, False, True)


def test_what_cannot_be_saved_costs_one_warning(home):
    source = (
        "import array, sys\nimport lockstep\nx = array.array('d', [1])\n"
        "assert all(lockstep.save(x, f'x{i}') is x for i in range(20))\nlockstep.save('text', 'text')\nprint('same')\n"
        "try: lockstep.load('x1')\nexcept lockstep.LockstepError: print('absent')\n"
    )
    (home.parent / "file").write_text("x")
    done = run_python(source, home, LOCKSTEP_HOME=str(home.parent / "file" / "inside"))
    assert done.stdout == "same\nabsent\n" and done.returncode == 0, done.stderr
    assert done.stderr.count("lockstep:") == 2  # the folder once, the text once
