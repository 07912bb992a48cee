"""Writes a folder of web files as one C++ file: each file plain and compressed, with a hash of all of them.

    embed_web.py FOLDER OUTPUT.cpp NAME

NAME is `web` or `docs`: the functions are NAME_files() and NAME_version() of src/web/web_files.h. Equal files give an
equal output: nothing of the time or the machine is in it.
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
    ".png": "image/png",
}


def array(name, data):
    numbers = ",".join(map(str, data)) or "0"
    return f"const unsigned char {name}[] = {{{numbers}}};\n"


def main(folder, output, name):
    folder, output = pathlib.Path(folder), pathlib.Path(output)
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.suffix in TYPES}
    if name == "web":
        files["page.js"] = join(folder, "app.js").encode()  # all modules of the page joined
    whole, arrays, rows = hashlib.sha256(), "", ""
    for number, (address, data) in enumerate(sorted(files.items())):
        suffix = pathlib.PurePosixPath(address).suffix
        whole.update(address.encode() + b"\0" + data + b"\0")
        # A picture is compressed already: no second copy of it.
        packed = b"" if suffix == ".png" else gzip.compress(data, 9, mtime=0)
        plain_name, packed_name = f"k_{name}_plain_{number}", f"k_{name}_packed_{number}"
        arrays += array(plain_name, data) + array(packed_name, packed)
        rows += f'    {{"{address}", "{TYPES[suffix]}", {name}_text({plain_name}, {len(data)}), '
        rows += f"{name}_text({packed_name}, {len(packed)})}},\n"
    source = (
        '// Made by tools/embed_web.py.\n#include "web/web_files.h"\n\nnamespace lockstep {\nnamespace {\n'
        f"{arrays}\nstd::string_view {name}_text(const unsigned char* bytes, size_t size) {{\n"
        "  return {reinterpret_cast<const char*>(bytes), size};\n}\n\n}  // namespace\n\n"
        f"std::span<const WebFile> {name}_files() {{\n  static const WebFile files[] = {{\n"
        f"{rows}  }};\n  return files;\n}}\n\n"
        f'std::string_view {name}_version() {{\n  return "{whole.hexdigest()[:16]}";\n}}\n\n'
        "}  // namespace lockstep\n"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    if not output.exists() or output.read_text() != source:
        output.write_text(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
