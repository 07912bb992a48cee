"""The check of what `./dev macos` links: a symbol that nobody has must be seen, whichever way the linker writes it."""

import pathlib
import struct
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "dev" / "check_mach_o.py"
SELF, SYSTEM, FLAT = 0x00, 0x01, 0xFE  # a symbol's library: none said (zig's linker), the first one, "look everywhere"


def check(tmp_path, symbols, cpu=0x0100000C, magic=0xFEEDFACF):
    """A program of nothing but a table of undefined symbols: [(name, number of its library)]."""
    strings, table = b"\0", b""
    for name, library in symbols:
        table += struct.pack("<IBBHQ", len(strings), 0x01, 0, library << 8, 0)
        strings += name.encode() + b"\0"
    begin = 32 + 24
    command = struct.pack("<6I", 0x2, 24, begin, len(symbols), begin + len(table), len(strings))
    file = tmp_path / "program"
    file.write_bytes(struct.pack("<8I", magic, cpu, 0, 2, 1, 24, 0, 0) + command + table + strings)
    done = subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_what_is_known_passes(tmp_path):
    known = [("_printf", SYSTEM), ("_png_read_image", FLAT), ("__ZN3fmt3v97vformatB", SELF), ("_PyList_New", SELF)]
    status, text = check(tmp_path, known)
    assert status == 0 and "Mach-O program for ARM, 3 symbols of outside libraries" in text, text


@pytest.mark.parametrize("library", [SELF, FLAT])
def test_what_nobody_has_fails(tmp_path, library):
    status, text = check(tmp_path, [("_printf", SYSTEM), ("_inotify_init", library)])
    assert status == 1 and "nobody has _inotify_init" in text, text


@pytest.mark.parametrize("other", [{"cpu": 0x01000007}, {"magic": 0x464C457F}])
def test_files_for_other_machines_fail(tmp_path, other):
    status, text = check(tmp_path, [], **other)
    assert status == 1 and "no Mach-O for ARM" in text
