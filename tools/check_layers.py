#!/usr/bin/env python3
"""Rejects includes that go upward or sideways between the layers of cmake/layers.txt, and between the leaves of src/backend."""

import pathlib
import re
import sys

# Quoted, but no layers: Highway asks for quotes so that it can include itself again, and lockstep/ is our public C ABI in include/.
NOT_LAYERS = {"hwy", "lockstep"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([a-z0-9_]+)/([^"]+)"', re.M)


def read_layers(path):
    direct = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, below = line.partition(":")
            direct[name.strip()] = below.split()
    allowed = {}
    for name in direct:  # the file lists lower layers first, so every closure below is complete
        closure = {name}
        for below in direct[name]:
            if below not in allowed:
                raise SystemExit(f"{path}: layer '{name}' may include '{below}', which is not listed above it")
            closure |= allowed[below]
        allowed[name] = closure
    return allowed


def violations(root):
    allowed = read_layers(root / "cmake" / "layers.txt")
    for source in sorted((root / "src").rglob("*")):
        if source.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        relative = source.relative_to(root / "src")
        layer = relative.parts[0]
        if layer not in allowed:
            yield f"src/{relative}: folder '{layer}' is no layer of cmake/layers.txt"
            continue
        for target, rest in INCLUDE.findall(source.read_text()):
            if target in NOT_LAYERS:
                continue
            if target not in allowed:
                yield f"src/{relative}: includes \"{target}/{rest}\", and '{target}' is no layer"
            elif target not in allowed[layer]:
                yield f"src/{relative}: layer '{layer}' may not include '{target}' ({rest})"
            elif target == layer == "backend" and "/" in rest and len(relative.parts) > 2 and rest.split("/")[0] != relative.parts[1]:
                yield f"src/{relative}: backend leaves never see each other ({rest})"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    for line in found:
        print(line)
    print(f"layers: {len(found)} forbidden includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
