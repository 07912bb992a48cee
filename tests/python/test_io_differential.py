"""Good and damaged files: we accept and reject what the official libraries accept and reject. Where we are stricter the
reason must stand in docs/formats.md, and every reason there must be met by a file here."""

import io
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from io_probe import ROOT, Probe

FORMATS = {"npy": ".npy", "npz": ".npz", "safetensors": ".safetensors", "torch_file": ".pt"}


class Judge:
    def __init__(self):
        self.process = None

    def ask(self, path):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, pathlib.Path(__file__).with_name("io_judge.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(10)
            self.process = None
            return {"error": "the official library died"}
        return json.loads(line)

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(60)


def reasons(heading):
    """The phrases in the first column of the table under a heading of docs/formats.md."""
    text = (ROOT / "docs/formats.md").read_text()
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.M)


def damaged(data, rng):
    yield from (data[:n] for n in range(0, min(len(data), 160)))
    yield from (data[:-n] for n in range(1, min(len(data), 120)))
    yield from (data[: rng.randrange(len(data))] for _ in range(20))
    for _ in range(250):
        at = rng.randrange(len(data))
        yield data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    for _ in range(60):
        at, other, n = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 9)
        yield data[:at] + data[at + n :]
        yield data[:at] + data[other : other + n] + data[at:]
        yield data[:at] + rng.choice([b"\0", b"\xff", b"\x7f"]) * n + data[at + n :]
    yield data + b"\0"
    yield data + data


def safetensors_file(header, data=b"", size=None):
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if size is None else size) + raw + data


def crafted_safetensors():
    a = '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    with_field = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":%s}}'
    one = '{"a":{"dtype":"%s","shape":%s,"data_offsets":[0,%d]}}'
    for header, data in [
        ("{" + a + "}", b"x"),
        ("{" + a + "," + a + "}", b"x"),
        (" {" + a + "}", b"x"),
        ("{" + a + "} \n\t", b"x"),
        ("{" + a + "}\0", b"x"),
        ('{"a":["U8",[1],[0,1]]}', b"x"),
        (with_field % "[[{}]]", b"x"),
        ('{"__metadata__":null,' + a + "}", b"x"),
        ('{"__metadata__":{},"__metadata__":{},' + a + "}", b"x"),
        ('{"__metadata__":{"k":"1","k":"2"},' + a + "}", b"x"),
        ('{"__metadata__":{"k":1},' + a + "}", b"x"),
        ('{"__metadata__":[],' + a + "}", b"x"),
        ('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        (one % ("U8", "[1.0]", 1), b"x"),
        (one % ("U8", "[0,18446744073709551615]", 0), b""),
        (one % ("U8", "[9223372036854775808,2,0]", 0), b""),
        (one % ("U8", "[4611686018427387904,4]", 0), b""),
        (one % ("F32", json.dumps([1] * 64), 4), b"abcd"),
        (one % ("F32", json.dumps([1] * 65), 4), b"abcd"),
        (one % ("C64", "[1]", 8), b"x" * 8),
        (one % ("F4", "[2]", 1), b"x"),
        (one % ("F8_E8M0", "[1]", 1), b"x"),
        (one % ("F6_E2M3", "[4]", 3), b"xyz"),
        (one % ("F6_E3M2", "[4]", 3), b"xyz"),
        (one % ("C64", "[2,0]", 0), b""),
        (one % ("f32", "[1]", 4), b"abcd"),
        (one % ("U8", "[]", 1), b"x"),
        (one % ("U8", "[01]", 1), b"x"),
        (one % ("U8", "[-0]", 0), b""),
        (one % ("U8", "[-1]", 1), b"x"),
        (one % ("BOOL", "[2]", 2), b"\7\0"),
        ('{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        ("\ufeff{" + a + "}", b"x"),
        (with_field % ("[" * 200 + "]" * 200), b"x"),
        (with_field % ("[" * 100 + "]" * 100), b"x"),
        (with_field % "1e999", b"x"),
        (with_field % "123456789012345678901234567890", b"x"),
        (with_field % "nul", b"x"),
        ('{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        ('{"\\u0000":' + a[4:] + "}", b"x"),
        ('{"a":{"dtype":"U8","shape":[1]}}', b"x"),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}', b"x"),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}', b"x"),
        (
            '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"x",
        ),
        (
            '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}',
            b"xyz",
        ),
        (
            '{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"xy",
        ),
        (
            '{"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"xyzuv",
        ),
        (
            '{"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"x",
        ),
        (b'{"\xff":1}', b""),
        ("[]", b""),
        ("null", b""),
        ("", b""),
        ("{}", b""),
        ("{}", b"x"),
        ('{"a":1}', b""),
        ('{"a":{}}', b""),
    ]:
        yield safetensors_file(header, data)
    yield safetensors_file("{}", size=2**63)
    yield safetensors_file("{}", size=100_000_001)
    yield safetensors_file("{}", size=3)
    yield safetensors_file(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],' + '"pad":"' + " " * 1_000_000 + '"}}', b"x"
    )


def npy_file(header, data=b"", version=1):
    raw = header.encode("latin1" if version < 3 else "utf8")
    return b"\x93NUMPY" + bytes([version, 0]) + len(raw).to_bytes(2 if version == 1 else 4, "little") + raw + data


def crafted_npy():
    full = "{'descr': %s, 'fortran_order': %s, 'shape': %s}"
    for descr in [
        "'|u1'",
        "'u1'",
        "'=u1'",
        "'<u1'",
        "'>u1'",
        "'|b1'",
        "'?'",
        "'|V1'",
        "'|S1'",
        "'|O'",
        "'<f1'",
        "'B'",
        "'uint8'",
        "'<U1'",
        "'<M8[s]'",
        "'<c8'",
        "'<f16'",
        "[('a', '|u1')]",
        "('|u1', (2,))",
        "1",
        "None",
        "''",
        "'|i1,|i1'",
        '"|u1"',
        "u'|u1'",
        "'\\x7cu1'",
        "'<i3'",
    ]:
        yield npy_file(full % (descr, "False", "(2,)"), b"\1\2")
        yield npy_file(full % (descr, "False", "(1,)"), b"\1\2\3\4\5\6\7\1" * 2)
    for order in ["True", "False", "0", "1", "None", "true", "'a'"]:
        yield npy_file(full % ("'|u1'", order, "(1, 2)"), b"\1\2")
    for shape in [
        "(2,)",
        "(2)",
        "2",
        "[2]",
        "(2L,)",
        "(1, 2,)",
        "(1,2)",
        "( 1 , 2 )",
        "(2,,)",
        "(,)",
        "()",
        "(-2,)",
        "(-1, -2)",
        "(2.0,)",
        "('2',)",
        "(True, 2)",
        "(0x2,)",
        "(0b10,)",
        "(1_0,)",
        "(02,)",
        "(00,)",
        "(9223372036854775807,)",
        "(9223372036854775808,)",
        "(4294967296, 4294967296)",
        "(0, 9223372036854775807)",
        "(9223372036854775807, 0, 4)",
        str((1,) * 64),
        str((1,) * 65),
        "None",
        "(1 + 1,)",
        "(2,)#",
        "((2,))",
        "(2,) ",
    ]:
        yield npy_file(full % ("'|u1'", "False", shape), b"\1\2")
    good = full % ("'|u1'", "False", "(2,)")
    for header in [
        good + " " * 20 + "\n",
        " " + good,
        "\n" + good,
        "\t" + good,
        good + "\0",
        good[:-1] + ",}",
        good[:-1] + ", 'x': 1}",
        good + "x",
        good + "#c",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|u1', 'shape': (2,)}",
        "{'shape': (2,), 'fortran_order': False, 'descr': '|u1'}",
        "{}",
        "[]",
        "",
        "{",
        "None",
        good.replace("'descr'", "b'descr'"),
        good.replace("'descr'", '"descr"'),
        good.replace(",", ",\n"),
        "(" + good + ")",
        good + " " * 9900,
        good + " " * 9999,
        good + " " * 20000,
        good.replace("'descr'", "'d' 'escr'"),
        good.replace("(2,)", "(2,\r\n)"),
    ]:
        for version in (1, 2, 3):
            yield npy_file(header, b"\1\2", version)
    yield npy_file(good, b"\1")
    yield npy_file(good, b"\1\2\3")
    yield b"\x93NUMPY\4\0" + npy_file(good, b"\1\2")[8:]
    yield b"\x93NUMPY\1\1" + npy_file(good, b"\1\2")[8:]
    yield b"\x80\x04K\1."


def crafted_npz():
    def archive(*entries, **options):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", **options) as target:
            for name, content in entries:
                target.writestr(name, content)
        return out.getvalue()

    array = io.BytesIO()
    np.save(array, np.arange(5))
    npy = array.getvalue()
    yield archive()
    yield archive(("a.npy", npy))
    yield archive(("a.npy", npy), ("a.npy", npy))
    yield archive(("a", npy))
    yield archive(("ü/€.npy", npy))
    yield archive(("../a.npy", npy), ("/etc/x.npy", npy))
    yield archive(("a.npy", b""))
    yield archive(("a.npy", npy[:50]))
    yield archive(("a.npy", npy + b"\0"))
    yield archive(("readme.txt", "text"), ("a.npy", npy), compression=zipfile.ZIP_DEFLATED)
    yield archive(("a.npy", npy), compression=zipfile.ZIP_BZIP2)
    yield archive(("a.npy", npy), compression=zipfile.ZIP_LZMA)
    zeros = io.BytesIO()
    np.savez_compressed(zeros, z=np.zeros(1_000_000))
    yield zeros.getvalue()
    bomb = bytearray(archive(("a.npy", npy), compression=zipfile.ZIP_DEFLATED))
    at = bomb.rfind(b"PK\1\2")
    for size in (0xFFFFFFFE, len(npy) + 1, len(npy) - 1):
        bomb[at + 24 : at + 28] = struct.pack("<I", size)
        yield bytes(bomb)
    two = bytearray(archive(("a.npy", npy), ("b.npy", npy)))
    at = two.rfind(b"PK\1\2")
    two[at + 42 : at + 46] = struct.pack("<I", 0)
    yield bytes(two)
    encrypted = bytearray(archive(("a.npy", npy)))
    encrypted[6] |= 1
    encrypted[encrypted.rfind(b"PK\1\2") + 8] |= 1
    yield bytes(encrypted)


def crafted_torch():
    def archive(pickle, storages=(("0", b"\0" * 8),), name="archive", **extra):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as target:
            target.writestr(f"{name}/data.pkl", pickle)
            target.writestr(f"{name}/byteorder", extra.get("order", "little"))
            for key, data in storages:
                target.writestr(f"{name}/data/{key}", data)
            target.writestr(f"{name}/version", "3\n")
            for path in extra.get("more", ()):
                target.writestr(f"{name}/{path}", "")
        return out.getvalue()

    def tensor(
        kind=b"FloatStorage",
        key=b"0",
        count=b"K\2",
        offset=b"K\0",
        size=b"K\2\x85",
        stride=b"K\1\x85",
        persistent=b"storage",
    ):
        def text(t):
            return b"X" + struct.pack("<I", len(t)) + t

        return (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("
            + text(persistent)
            + b"ctorch\n"
            + kind
            + b"\n"
            + text(key)
            + text(b"cpu")
            + count
            + b"tQ"
            + offset
            + size
            + stride
            + b"\x89ccollections\nOrderedDict\n)RtR."
        )

    yield archive(tensor())
    yield archive(tensor(b"ComplexFloatStorage"), storages=[("0", bytes(range(16)))])
    yield archive(tensor(b"ComplexFloatStorage", offset=b"K\1", size=b"K\1\x85"), storages=[("0", bytes(range(16)))])
    yield archive(tensor(b"ComplexFloatStorage", size=b"K\3\x85"), storages=[("0", bytes(range(16)))])
    yield archive(tensor(b"ComplexFloatStorage"))
    yield archive(tensor(b"ComplexDoubleStorage"), storages=[("0", bytes(range(32)))])
    for metadata in (b"}", b"}X\4\0\0\0conj\x88s", b"}X\3\0\0\0neg\x89s"):
        yield archive(tensor(b"ComplexFloatStorage")[:-3] + metadata + b"tR.", storages=[("0", bytes(range(16)))])
    yield archive(tensor(), order="big")
    yield archive(tensor(), more=["constants.pkl"])
    yield archive(tensor(), storages=[("0", b"\0" * 7)])
    yield archive(tensor(), storages=[("0", b"\0" * 9)])
    yield archive(tensor(), storages=[("1", b"\0" * 8)])
    yield archive(tensor(kind=b"ComplexFloatStorage", count=b"K\1", size=b"K\1\x85"))
    yield archive(tensor(kind=b"NoSuchStorage"))
    yield archive(tensor(key=b"../0"))
    yield archive(tensor(persistent=b"module"))
    for offset in (b"K\1", b"K\2", b"J\xff\xff\xff\xff"):
        yield archive(tensor(offset=offset))
        yield archive(tensor(offset=offset, size=b"K\1\x85"))
        yield archive(tensor(offset=offset, size=b"K\0\x85"))
    for size, stride in [
        (b"K\3\x85", b"K\1\x85"),
        (b"K\2\x85", b"K\2\x85"),
        (b"K\2\x85", b"K\0\x85"),
        (b"K\5\x85", b"K\0\x85"),
        (b")", b")"),
        (b"K\2K\1\x86", b"K\1\x85"),
        (b"K\2\x85", b"J\xff\xff\xff\xff\x85"),
        (b"J\xff\xff\xff\xff\x85", b"K\1\x85"),
        (b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85", b"K\1\x85"),
        (b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85", b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85"),
        (b"]", b"]"),
        (b"N", b"N"),
        (b"K\2", b"K\1"),
    ]:
        yield archive(tensor(size=size, stride=stride))
    for pickle in [
        b"\x80\x02N.",
        b"\x80\x02}.",
        b"N.",
        b".",
        b"",
        b"\x80\x02",
        b"\x80\x03N.",
        b"\x80\x04N.",
        b"\x80\x02c__builtin__\neval\nX\1\0\0\x001\x85R.",
        b"\x80\x02cos\nsystem\nX\1\0\0\0w\x85R.",
        b"\x80\x02ccollections\nOrderedDict\n.",
        b"\x80\x02ccollections\nOrderedDict\n)R.",
        b"\x80\x02ccollections\nOrderedDict\n)R}b.",
        b"\x80\x02}}b.",
        b"\x80\x02h\0.",
        b"\x80\x02Nq\0h\0\x86.",
        b"\x80\x02(.",
        b"\x80\x02t.",
        b"\x80\x02(K\1t.",
        b"\x80\x02]K\1a.",
        b"\x80\x02]q\0h\0a.",
        b"\x80\x02)K\1a.",
        b"\x80\x02}K\1K\2s.",
        b"\x80\x02}]K\2s.",
        b"\x80\x02}(K\1u.",
        b"\x80\x02X\1\0\0\0\xff.",
        b"\x80\x02X\xff\xff\xff\xffa.",
        b"\x80\x02U\1\xff.",
        b"\x80\x02U\1a.",
        b"\x80\x02K\1K\2.",
        b"\x80\x02K\1.trailing",
        b"\x80\x02\x8a\0.",
        b"\x80\x02\x8a\x09" + b"\1" * 9 + b".",
        b"\x80\x02\x8f.",
        b"\x80\x02I1\n.",
        b"\x80\x02\x8c\1a.",
        b"\x80\x02G" + b"\0" * 8 + b".",
        b"\x80\x02ctorch\nSize\nK\1\x85\x85R.",
        b"\x80\x02ctorch\nfloat32\n.",
        b"\x80\x02ctorch\ndevice\nX\3\0\0\0cpu\x85R.",
        b"\x80\x02" + b"]" + b"\x85" * 100 + b".",
        b"\x80\x02" + b"(" * 1000 + b".",
        b"\x80\x02K\1Q.",
        b"\x80\x02)Q.",
    ]:
        yield archive(pickle)


CRAFTED = {"npy": crafted_npy, "npz": crafted_npz, "safetensors": crafted_safetensors, "torch_file": crafted_torch}


def corpus(kind):
    rng = random.Random(7)
    for path in sorted((ROOT / "fuzz/corpus" / kind).iterdir()):
        data = path.read_bytes()
        if len(data) < 3000 and not re.fullmatch("[0-9a-f]{40}", path.name):  # what the fuzzers found is theirs
            yield data
            yield from damaged(data, rng)
    yield from CRAFTED[kind]()


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """(format, bytes, ours, theirs) of every file of the corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    judge, found = Judge(), []
    with Probe() as probe:
        for kind, extension in FORMATS.items():
            for data in dict.fromkeys(corpus(kind)):
                path = folder / f"file{extension}"
                path.write_bytes(data)
                found.append((kind, data, probe.ask("check", path), judge.ask(path)))
    judge.close()
    return found


def show(kind, data, ours, theirs):
    return f"{kind} {data[:200]!r}{'...' if len(data) > 200 else ''}\n   ours: {ours}\n   theirs: {theirs}"


def test_nothing_they_refuse_is_accepted(verdicts):
    listed = reasons("Where Lockstep accepts more")
    wider = [
        v
        for v in verdicts
        if "error" not in v[2] and "error" in v[3] and not any(phrase in v[3]["error"] for phrase in listed)
    ]
    assert not wider, f"{len(wider)} files\n" + "\n".join(show(*v) for v in wider[:12])


def test_what_we_refuse_and_they_accept_has_a_listed_reason(verdicts):
    listed = reasons("Where Lockstep is stricter")
    stricter = [v for v in verdicts if "error" in v[2] and "error" not in v[3]]
    unlisted = [v for v in stricter if not any(phrase in v[2]["message"] for phrase in listed)]
    assert not unlisted, f"{len(unlisted)} files\n" + "\n".join(show(*v) for v in unlisted[:12])
    unmet = [phrase for phrase in listed if not any(phrase in v[2]["message"] for v in stricter)]
    assert not unmet, f"no file of the corpus meets {unmet}"


def test_what_both_accept_has_the_same_content(verdicts):
    both = [v for v in verdicts if "error" not in v[2] and "error" not in v[3]]
    # Formats whose numbers we give, and the library their bytes: docs/formats.md says so.
    both = [v for v in both if not (v[0] == "safetensors" and re.search(rb'"dtype":"(F4|F8_E8M0)"', v[1]))]
    different = [v for v in both if sorted(v[2]["tensors"], key=str) != sorted(v[3]["tensors"], key=str)]
    assert not different, f"{len(different)} of {len(both)}\n" + "\n".join(show(*v) for v in different[:12])
    assert len(both) > 300


def test_our_refusals_name_the_file_and_the_place_and_are_never_our_bug(verdicts):
    bare = {}
    for kind, data, ours, _ in verdicts:
        if "error" in ours:
            assert ours["error"] in ("corrupt", "unsupported", "bad_input", "memory"), show(kind, data, ours, {})
            if f"file{FORMATS[kind]}" not in ours["message"] or not re.search(r"offset \d+|expected ", ours["message"]):
                bare[re.sub(r"\d+", "N", ours["message"])] = show(kind, data, ours, {})
    assert not bare, "\n".join(bare)
