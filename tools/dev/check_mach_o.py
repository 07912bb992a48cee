#!/usr/bin/env python3
"""check_mach_o.py FILE...: whether each file is a Mach-O for ARM, and whether what it leaves to be found when it is started is
known: a symbol of an outside library, of Python or of our own capture library. Anything else would be missing on a Mac too."""

import pathlib
import re
import struct
import sys

MAGIC, ARM64 = 0xFEEDFACF, 0x0100000C
KINDS = {2: "program", 6: "library", 8: "bundle"}
SYMTAB = 0x2
EXTERNAL, TYPE, UNDEFINED = 0x01, 0x0E, 0x0
FOUND_WHEN_STARTED = (0x00, 0xFE)  # in place of the number of the library that has it: zig's linker, Apple's

# As the linker sees them: C names begin with a line, C++ names with _Z behind it.
OUTSIDE = re.compile(
    r"_(png_|jpeg_|WebP|pcre2_|utf8proc_|XXH|deflate|inflate|crc32|zlib|compress|uncompress|adler32|__kmpc_|omp_|Py|_Py)"
    r"|__ZN?K?[A-Z0-9]*(3fmt|8simdjson|3hwy|7httplib|7testing|2rc)|__ZT[VIS]N(3fmt|8simdjson|7httplib|7testing|2rc)|__ZN?K?St.*(3fmt|8simdjson|7testing)"
)


def left_open(data):
    """Names that the loader looks for in everything that is loaded."""
    magic, cpu, _, kind, commands, _, _, _ = struct.unpack_from("<8I", data, 0)
    if magic != MAGIC or cpu != ARM64:
        raise ValueError("no Mach-O for ARM")
    names, at = [], 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command == SYMTAB:
            symbols, count, strings, _ = struct.unpack_from("<4I", data, at + 8)
            for i in range(count):
                name, sort, _, about, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * i)
                if sort & EXTERNAL and sort & TYPE == UNDEFINED and about >> 8 in FOUND_WHEN_STARTED:
                    begin = strings + name
                    names.append(data[begin : data.index(b"\0", begin)].decode())
        at += size
    return KINDS.get(kind, f"kind {kind}"), names


def main():
    failed = False
    for name in sys.argv[1:]:
        try:
            kind, names = left_open(pathlib.Path(name).read_bytes())
        except (OSError, ValueError, struct.error) as error:
            print(f"{name}: {error}")
            failed = True
            continue
        unknown = sorted({symbol for symbol in names if not OUTSIDE.match(symbol)})
        print(f"{pathlib.Path(name).name}: Mach-O {kind} for ARM, {len(names)} symbols of outside libraries")
        for symbol in unknown:
            print(f"  nobody has {symbol}")
        failed = failed or bool(unknown)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
