"""Writes the first corpus of every file format: small good files of each kind, made by the official libraries.

Usage: python fuzz/make_corpus.py fuzz/corpus. What the fuzzers find worth keeping is added beside these files.
"""

import collections
import io
import json
import pathlib
import sys
import zipfile

import ml_dtypes
import numpy as np
import safetensors.torch
import torch
from PIL import Image


def npy(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def npy_files():
    yield "f32", npy(np.arange(6, dtype="<f4").reshape(2, 3))
    yield "fortran_big_endian", npy(np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)))
    yield "scalar_v3", npy(np.float64(1.5), (3, 0))
    yield "empty_v2", npy(np.zeros((0, 3), "|b1"), (2, 0))
    yield "bf16", npy(np.zeros(3, ml_dtypes.bfloat16))


def npz_files():
    for name, save in [("stored", np.savez), ("deflated", np.savez_compressed)]:
        out = io.BytesIO()
        save(out, a=np.arange(4, dtype=np.uint8), b=np.zeros((2, 30)))
        yield name, out.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.comment = b"comment"
        archive.writestr("readme.txt", "not an array")
        with archive.open("x.npy", "w", force_zip64=True) as entry:
            entry.write(npy(np.ones(2, "<f2")))
    yield "zip64", out.getvalue()


def safetensors_files():
    kinds = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64, torch.uint16]
    yield (
        "kinds",
        safetensors.torch.save({f"t{i}": torch.ones(i, 2).to(k) for i, k in enumerate(kinds)}, {"format": "pt"}),
    )
    yield "none", safetensors.torch.save({})


def index_files():
    yield (
        "two",
        json.dumps(
            {"metadata": {"total_size": 8}, "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}
        ).encode(),
    )
    yield "outside", json.dumps({"weight_map": {"a": "../x.safetensors"}}).encode()


def torch_objects():
    base = torch.arange(6.0).reshape(2, 3)
    yield "dict", {"a": base, "b": base.t(), "c": [1, -5, 2**40, 2**70, 0.5, None, True, "x", (1, 2)]}
    yield "state", collections.OrderedDict(torch.nn.Linear(2, 1).state_dict())
    yield "kinds", [torch.zeros(2, dtype=torch.float8_e5m2), torch.zeros(1, dtype=torch.uint32), torch.zeros(1).bool()]
    yield "parameter", torch.nn.Parameter(base[:, 1])


def torch_files():
    for name, thing in torch_objects():
        for zipped in (True, False):
            out = io.BytesIO()
            torch.save(thing, out, _use_new_zipfile_serialization=zipped)
            yield f"{name}_{'zip' if zipped else 'legacy'}", out.getvalue()


def pickles():
    for name, thing in torch_objects():
        out = io.BytesIO()
        torch.save(thing, out)
        yield (
            name,
            next(zipfile.ZipFile(out).read(n) for n in zipfile.ZipFile(out).namelist() if n.endswith("data.pkl")),
        )
    yield "eval", b"\x80\x02c__builtin__\neval\nX\x01\x00\x00\x001\x85R."


def pictures(kind, variants):
    rng = np.random.default_rng(0)
    for name, mode, options in variants:
        pixels = rng.integers(0, 256, (6, 5, 4), dtype=np.uint8)
        image = Image.fromarray(pixels, "RGBA").convert(mode)
        exif = Image.Exif()
        exif[0x0112] = 6
        out = io.BytesIO()
        image.save(out, kind, **options | ({"exif": exif} if "exif" in name else {}))
        yield name, out.getvalue()


def png_files():
    yield from pictures(
        "PNG",
        [
            ("rgb", "RGB", {}),
            ("rgba_exif", "RGBA", {}),
            ("grey", "L", {}),
            ("palette", "P", {}),
            ("bits", "1", {}),
            ("grey_alpha", "LA", {}),
            ("transparent", "P", {"transparency": 3}),
        ],
    )
    out = io.BytesIO()
    Image.fromarray(np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000).save(out, "PNG")
    yield "grey16", out.getvalue()


def jpeg_files():
    yield from pictures(
        "JPEG",
        [
            ("rgb", "RGB", {}),
            ("grey_exif", "L", {}),
            ("cmyk", "CMYK", {}),
            ("progressive", "RGB", {"progressive": True}),
        ],
    )


def webp_files():
    yield from pictures(
        "WEBP", [("lossy_exif", "RGB", {}), ("lossless", "RGBA", {"lossless": True}), ("alpha", "RGBA", {})]
    )


def json_files():
    yield "kinds", b'{"a": [1, -2.5e3, true, false, null, "\\u00e9\\ud83d\\ude00"], "b": {"c": {}}}'
    yield "twice", b'{"a": 1, "a": 2}'
    yield "deep", b"[" * 100 + b"]" * 100


def main(folder):
    makers = {
        "npy": npy_files,
        "npz": npz_files,
        "safetensors": safetensors_files,
        "safetensors_index": index_files,
        "torch_file": torch_files,
        "pickle": pickles,
        "png": png_files,
        "jpeg": jpeg_files,
        "webp": webp_files,
        "json": json_files,
    }
    for target, make in makers.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, data in make():
            (folder / target / name).write_bytes(data)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
