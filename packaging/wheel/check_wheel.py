"""Whether a wheel keeps what its name and ours promise: its size, the glibc it needs, and no library from outside."""

import pathlib
import re
import sys
import tempfile
import zipfile

from bundle_libraries import OF_THE_SYSTEM, answer_of

MOST_BYTES = 95_000_000  # what a package index takes
PARTS = {  # what must be in it, by patterns of names
    "the program": r".*\.data/scripts/lockstep",
    "an agent's extension": r"lockstep/agent/_lockstep_agent\..*\.so",
    "the agent": r"lockstep/agent/bootstrap\.py",
    "the recorder": r"lockstep/inject/sitecustomize\.py",
    "the capture library": r"lockstep/liblockstep_capture\.so",
    "the heap counter": r"lockstep/liblockstep_memory\.so",
    "oneDNN": r".*/share/lockstep/libraries/libdnnl-lockstep\.so.*",
    "OpenMP": r".*/share/lockstep/libraries/libgomp-lockstep\.so.*",
    "a model": r".*/share/lockstep/models/tiny/model_index\.json",
    "an edit model": r".*/share/lockstep/models/tiny-edit/model_index\.json",
    "headers": r".*/include/lockstep/lockstep\.h",
    "files for find_package": r".*/lib/cmake/lockstep/lockstepConfig\.cmake",
    "the manual page": r".*/share/man/man1/lockstep\.1",
    "a completion": r".*/share/bash-completion/completions/lockstep",
    "our licence": r".*\.dist-info/licenses/LICENSE",
    "a library's licence": r".*\.dist-info/licenses/libdnnl.*\.txt",
}


def version(text):
    return tuple(int(part) for part in text.split("."))


def problems_of_file(file, root, oldest_glibc):
    dynamic = answer_of("readelf", "-d", file)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    name = file.relative_to(root)
    for path in paths:
        if not path.startswith("$ORIGIN"):
            yield f"{name} looks for libraries in {path}"
    present = {library.name for library in root.rglob("*.so*")}
    for library in needed:
        if library not in present and not OF_THE_SYSTEM.fullmatch(library):
            yield f"{name} needs {library}, which is not in the wheel"
    for found in set(re.findall(r"GLIBC_([0-9.]+)", answer_of("readelf", "-V", file))):
        if version(found) > oldest_glibc:
            yield f"{name} needs glibc {found}"


def newest(root, prefix):
    found = {
        version(text)
        for file in elf_files(root)
        for text in re.findall(prefix + r"_([0-9.]+)", answer_of("readelf", "-V", file))
    }
    return ".".join(str(part) for part in max(found))


def elf_files(root):
    return [file for file in sorted(root.rglob("*")) if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"]


def problems_of_wheel(wheel, root):
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        yield f"{size} bytes; expected at most {MOST_BYTES}"
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    for part, pattern in PARTS.items():
        if not any(re.fullmatch(pattern, name) for name in names):
            yield f"{part} is missing"
    tag = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    oldest_glibc = tuple(int(part) for part in tag.groups()) if tag else (99,)
    for file in elf_files(root):
        yield from problems_of_file(file, root, oldest_glibc)


def main():
    wheel = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root)
        problems = list(problems_of_wheel(wheel, root))
        agents = sorted(
            re.findall(r"cpython-3(\d+)", " ".join(path.name for path in root.rglob("_lockstep_agent*.so"))), key=int
        )
        print(
            f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB; needs glibc {newest(root, 'GLIBC')} and libstdc++ {newest(root, 'GLIBCXX')}; "
            f"the debugger's extension for Python {', '.join('3.' + minor for minor in agents)}"
        )
    for problem in problems:
        print(f"[wheel] {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
