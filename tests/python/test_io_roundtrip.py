"""Files written by numpy, torch and safetensors are read by us, and ours by them: all dtypes, bit for bit."""

import collections
import json
import struct

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from io_probe import NUMPY_DTYPES, TORCH_DTYPES, Probe, sample, samples, torch_bytes, torch_tensor


@pytest.fixture(scope="module")
def probe():
    with Probe() as p:
        yield p


def numpy_array(dtype, shape, data):
    return np.frombuffer(data, NUMPY_DTYPES[dtype]).reshape(shape)


def as_stored(dtype):
    """What a .npy tells about a dtype: bf16 is V2; fp8 is V1, which without a hint reads as bytes."""
    return {"f8_e4m3fn": "u8"}.get(dtype, dtype)


@pytest.mark.parametrize("name,tensor", samples().items())
def test_npy_from_numpy(probe, tmp_path, name, tensor):
    np.save(tmp_path / "x.npy", numpy_array(*tensor))
    assert probe.dump(tmp_path / "x.npy", tmp_path / "d") == {"x": (as_stored(tensor[0]), *tensor[1:])}


@pytest.mark.parametrize("name,tensor", samples().items())
def test_npy_to_numpy(probe, tmp_path, name, tensor):
    probe.write({"x": tensor}, tmp_path / "d", tmp_path / "x.npy")
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.shape == tensor[1] and loaded.tobytes() == tensor[2]
    assert loaded.dtype.itemsize == np.dtype(NUMPY_DTYPES[tensor[0]]).itemsize
    if tensor[0] not in ("bf16", "f8_e4m3fn", "f8_e5m2"):
        assert loaded.dtype == NUMPY_DTYPES[tensor[0]]
    assert loaded.flags.c_contiguous


def test_npy_bf16_has_the_descr_ml_dtypes_writes(probe, tmp_path):
    tensor = ("bf16", (4,), sample("bf16", (4,)))
    probe.write({"x": tensor}, tmp_path / "d", tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", numpy_array(*tensor))
    assert b"'<V2'" in (tmp_path / "x.npy").read_bytes() and b"'<V2'" in (tmp_path / "y.npy").read_bytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
def test_npy_versions_orders_and_byte_orders(probe, tmp_path, version, order, endian):
    for kind in ["f8", "f4", "f2", "i2", "i4", "i8", "u2", "u4", "u8"]:
        array = np.asarray(np.arange(24).reshape(2, 3, 4) * 1.5, dtype=endian + kind, order=order)
        with open(tmp_path / "x.npy", "wb") as f:
            np.lib.format.write_array(f, array, version=version)
        ((_, shape, data),) = probe.dump(tmp_path / "x.npy", tmp_path / "d").values()
        assert shape == (2, 3, 4) and data == np.ascontiguousarray(array).astype("<" + kind).tobytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_from_numpy(probe, tmp_path, save):
    tensors = samples()
    save(tmp_path / "x.npz", **{name: numpy_array(*t) for name, t in tensors.items()})
    expected = {name: (as_stored(d), s, b) for name, (d, s, b) in tensors.items()}
    assert probe.dump(tmp_path / "x.npz", tmp_path / "d") == expected


def test_npz_to_numpy(probe, tmp_path):
    tensors = samples()
    probe.write(tensors, tmp_path / "d", tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as loaded:
        assert set(loaded.files) == set(tensors)
        for name, (_, shape, data) in tensors.items():
            assert loaded[name].shape == shape and loaded[name].tobytes() == data


def test_safetensors_from_the_official_library(probe, tmp_path):
    tensors = samples()
    safetensors.torch.save_file(
        {n: torch_tensor(*t) for n, t in tensors.items()}, tmp_path / "x.safetensors", {"a": "b"}
    )
    assert probe.dump(tmp_path / "x.safetensors", tmp_path / "d") == tensors


def test_safetensors_to_the_official_library_is_the_same_file(probe, tmp_path):
    tensors = samples() | {'odd "name"\n\t\\ ü €': ("f32", (1,), sample("f32", (1,)))}
    probe.write(tensors, tmp_path / "d", tmp_path / "x.safetensors")
    loaded = safetensors.torch.load_file(tmp_path / "x.safetensors")
    assert set(loaded) == set(tensors)
    for name, (dtype, shape, data) in tensors.items():
        assert loaded[name].dtype == TORCH_DTYPES[dtype] and tuple(loaded[name].shape) == shape
        assert torch_bytes(loaded[name]) == data
    safetensors.torch.save_file({n: torch_tensor(*t) for n, t in tensors.items()}, tmp_path / "y.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_sharded_checkpoint(probe, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    tensors = samples()
    weight_map = {}
    for shard in range(3):
        part = {n: torch_tensor(*t) for i, (n, t) in enumerate(tensors.items()) if i % 3 == shard}
        file = f"model-{shard + 1:05}-of-00003.safetensors"
        safetensors.torch.save_file(part, folder / file)
        weight_map |= {n: file for n in part}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    )
    assert probe.dump(folder, tmp_path / "d") == tensors


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_from_torch(probe, tmp_path, zipped):
    tensors = samples()
    torch.save(
        {n: torch_tensor(*t) for n, t in tensors.items()}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped
    )
    assert probe.dump(tmp_path / "x.pt", tmp_path / "d") == tensors


def test_torch_to_torch(probe, tmp_path):
    tensors = samples() | {"ü.€": ("f32", (300, 70), sample("f32", (300, 70)))}
    probe.write(tensors, tmp_path / "d", tmp_path / "x.pt")
    for options in ({}, {"mmap": True}):
        loaded = torch.load(tmp_path / "x.pt", weights_only=True, **options)
        assert list(loaded) == list(tensors)
        for name, (dtype, shape, data) in tensors.items():
            assert loaded[name].dtype == TORCH_DTYPES[dtype] and tuple(loaded[name].shape) == shape
            assert torch_bytes(loaded[name]) == data


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_nested_objects_views_and_modules(probe, tmp_path, zipped):
    base = torch.arange(24.0).reshape(2, 3, 4)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    saved = {
        "step": 7,
        "big": 2**70,
        "negative": -(2**40),
        "lr": 1e-3,
        "none": None,
        "flag": True,
        "text": "é",
        "list": [base, (base.transpose(0, 2), {"deep": base[:, 1, ::2]})],
        5: base[1],
        "ordered": collections.OrderedDict(a=base.half()),
        "parameter": torch.nn.Parameter(base.clone()),
        "state": module.state_dict(),
        "size": base.shape,
        "dtype": torch.float16,
        "empty": {},
        "shared": base,
    }
    torch.save(saved, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    expected = {
        "list.0": base,
        "list.1.0": base.transpose(0, 2),
        "list.1.1.deep": base[:, 1, ::2],
        "5": base[1],
        "ordered.a": base.half(),
        "parameter": base,
        "shared": base,
    } | {f"state.{n}": t for n, t in module.state_dict().items()}
    found = probe.dump(tmp_path / "x.pt", tmp_path / "d")
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name][1] == tuple(tensor.shape) and found[name][2] == torch_bytes(tensor), name


@pytest.mark.parametrize("zipped", [True, False])
def test_a_bare_tensor_is_named_by_its_file(probe, tmp_path, zipped):
    torch.save(torch.ones(3), tmp_path / "latents.pt", _use_new_zipfile_serialization=zipped)
    assert list(probe.dump(tmp_path / "latents.pt", tmp_path / "d")) == ["latents"]


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    "thing,name",
    [
        (Evil(), "__builtin__.print"),
        (np.zeros(2), "numpy"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (torch.device("cpu"), "torch.device"),
        (1j, "complex"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_everything_else_is_refused_by_name(probe, tmp_path, capfd, thing, name, zipped):
    torch.save({"a": torch.ones(1), "x": thing}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    reply = probe.ask("check", tmp_path / "x.pt")
    assert reply.get("error") == "unsupported" and name in reply["message"], reply
    assert "executed" not in capfd.readouterr().out


def test_newer_pickle_protocols_are_refused_by_opcode(probe, tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pt", pickle_protocol=4)
    reply = probe.ask("check", tmp_path / "x.pt")
    assert reply.get("error") == "unsupported" and "protocol" in reply["message"], reply
    with pytest.raises(Exception):
        torch.load(tmp_path / "x.pt", weights_only=True)


def test_an_expanded_tensor_is_not_unfolded_in_memory(probe, tmp_path):
    torch.save({"huge": torch.ones(1).expand(1 << 20, 1 << 20)}, tmp_path / "x.pt")
    assert probe.ask("check", tmp_path / "x.pt") == {"tensors": [["huge", [1 << 20, 1 << 20], None]]}


def test_ten_thousand_tensors_list(probe, tmp_path):
    """Sparse shards: the listing must not touch the data. The time is a benchmark's business."""
    header = {
        f"blocks.{i}.attn.to_q.weight": {
            "dtype": "BF16",
            "shape": [1024, 1024],
            "data_offsets": [i << 21, (i + 1) << 21],
        }
        for i in range(2000)
    }
    text = json.dumps(header).encode()
    with open(tmp_path / "x.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + (2000 << 21))
    assert probe.ask("list", tmp_path / "x.safetensors")["tensors"] == 2000
