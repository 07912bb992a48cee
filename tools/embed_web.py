"""Writes web/ as one C++ file: each file plain and compressed, and page.js, all modules of the page joined, with a hash of all.

    embed_web.py WEB_FOLDER OUTPUT.cpp

Equal files give an equal output: nothing of the time or the machine is in it.
"""

import gzip
import hashlib
import pathlib
import sys

from join_modules import join

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def array(name, data):
    numbers = ",".join(map(str, data)) or "0"
    return f"const unsigned char {name}[] = {{{numbers}}};\n"


def main(folder, output):
    folder, output = pathlib.Path(folder), pathlib.Path(output)
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.suffix in TYPES}
    files["page.js"] = join(folder, "app.js").encode()
    whole, arrays, rows = hashlib.sha256(), "", ""
    for number, (name, data) in enumerate(sorted(files.items())):
        whole.update(name.encode() + b"\0" + data + b"\0")
        packed = gzip.compress(data, 9, mtime=0)
        arrays += array(f"kPlain{number}", data) + array(f"kPacked{number}", packed)
        rows += f'    {{"{name}", "{TYPES[pathlib.PurePosixPath(name).suffix]}", text(kPlain{number}, {len(data)}), text(kPacked{number}, {len(packed)})}},\n'
    source = (
        '// Made by tools/embed_web.py from web/.\n#include "web/web_files.h"\n\nnamespace lockstep {\nnamespace {\n'
        f"{arrays}\nstd::string_view text(const unsigned char* bytes, size_t size) {{\n"
        "  return {reinterpret_cast<const char*>(bytes), size};\n}\n\n}  // namespace\n\n"
        "std::span<const WebFile> web_files() {\n  static const WebFile files[] = {\n"
        f'{rows}  }};\n  return files;\n}}\n\nstd::string_view web_version() {{\n  return "{whole.hexdigest()[:16]}";\n}}\n\n'
        "}  // namespace lockstep\n"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    if not output.exists() or output.read_text() != source:
        output.write_text(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
