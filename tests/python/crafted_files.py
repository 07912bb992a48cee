"""Files at the borders of each format, made by hand for the test that compares us with the official libraries."""

import io
import json
import struct
import zipfile

import numpy as np


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
