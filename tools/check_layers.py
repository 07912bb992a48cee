#!/usr/bin/env python3
"""Rejects includes that go upward or sideways between the layers of cmake/layers.txt, between the leaves of src/backend, and in
a circle between the folders of one layer; and what only one operating system knows, outside the files that are for it alone."""

import pathlib
import re
import sys

# Quoted, but no layers: Highway asks for quotes so that it can include itself again, and lockstep/ is our public C ABI in include/.
NOT_LAYERS = {"hwy", "lockstep"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([a-z0-9_]+)/([^"]+)"', re.M)


# The ways to a terminal. MCP's and DAP's protocols are JSON, which src/base/shown_json.h has made safe.
OUTPUT = re.compile(
    r"\bfmt::print\b|\bstd::(cout|cerr|clog|print|println)\b|\b(v?[fd]?printf|f?puts|f?putc|putchar|perror|fwrite)\(|(?<![.>])\bwrite(?:_fully)?\((STD(OUT|ERR)_FILENO|[12]),"
)
# Those of the commands have no memory to ask for: their words are constants, or made safe on the way.
WRITERS = {
    "base/text.cpp",
    "mcp/stdio.cpp",
    "dap/transport.cpp",
    "cli/app.cpp",
    "cli/last_words.cpp",
    "cli/map_failure_linux.cpp",
    "cli/thread_failure_linux.cpp",
}

# A reader that has gone would end the program with SIGPIPE.
SENDS = re.compile(r"(?<!\w)::send(?:to|msg)?\(")

# They take a failed allocation or read for the end of the text.
LENIENT = re.compile(r"\bstd::i(f|string)stream \w+[({]")


# What only one system has: a facility of base/platform gives it to all of them. Kernels of backend/cpu ask the processor, which
# each system answers in its own way; the cuda leaf is compiled where CUDA is.
PLATFORM = re.compile(
    r"^\s*#\s*(?:el)?if(?:n?def)?\b.*\b(?:__linux__|__linux|__gnu_linux__|__GLIBC__|__APPLE__|__MACH__|__FreeBSD__|_WIN32)\b.*$"
    r"|^\s*#\s*include\s*<(?:sys/(?:inotify|epoll|eventfd|signalfd|timerfd|syscall|prctl|sysinfo|sendfile|auxv|event|sysctl"
    r"|proc_info)\.h|linux/[^>]*|mach/[^>]*|mach-o/[^>]*|malloc\.h|malloc/malloc\.h|cpuid\.h|libproc\.h|crt_externs\.h)>"
    r'|"/(?:proc|sys)/[^"]*"|"/dev/shm[^"]*"'
    r"|\b(?:pipe2|accept4|memfd_create|renameat2|posix_fallocate|sched_getaffinity|sched_setscheduler|sigtimedwait|sigabbrev_np"
    r"|malloc_trim|posix_spawn_file_actions_addclosefrom_np|kqueue|MAP_POPULATE|SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_NOSIGNAL|POLLRDHUP"
    r"|O_DIRECT|O_TMPFILE|SO_PEERCRED|st_mtim|st_mtimespec|environ)\b",
    re.M,
)
PLATFORM_FOLDERS = ("base/", "backend/cpu/", "backend/cuda/leaf/")
# They take calls of the whole program over, which a library must not.
PLATFORM_FILES = re.compile(r"cli/(assertion|map_failure|thread_failure)_(linux|macos)\.cpp")


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


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


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
        text = source.read_text()
        if relative.as_posix() not in WRITERS and (found := OUTPUT.search(text)):
            yield f"src/{relative}: prints with {found.group(0)}; expected print() or print_error() of base/text.h"
        if not relative.as_posix().startswith("base/platform/descriptors_") and (found := SENDS.search(text)):
            yield f"src/{relative}: sends with {found.group(0)}; expected send_fully() of base/broken_pipe.h"
        if relative.as_posix() != "base/strict_stream.h" and (found := LENIENT.search(text)):
            yield f"src/{relative}: reads with {found.group(0)}; expected strict_file() or strict_text() of base/strict_stream.h"
        shown = relative.as_posix()
        if not shown.startswith(PLATFORM_FOLDERS) and not PLATFORM_FILES.fullmatch(shown):
            if found := PLATFORM.search(without_comments(text)):
                yield f"src/{shown}: only one system knows {found.group(0).strip()}; expected a facility of src/base/platform"
        elif shown.endswith(("_linux.cpp", "_macos.cpp")):
            other = shown.replace("_linux.", "_macos.") if "_linux." in shown else shown.replace("_macos.", "_linux.")
            if not (root / "src" / other).exists():
                yield f"src/{shown}: expected src/{other} beside it"
        for target, rest in INCLUDE.findall(text):
            if target in NOT_LAYERS:
                continue
            if target not in allowed:
                yield f"src/{relative}: includes \"{target}/{rest}\", and '{target}' is no layer"
            elif target not in allowed[layer]:
                yield f"src/{relative}: layer '{layer}' may not include '{target}' ({rest})"
            elif (
                target == layer == "backend"
                and "/" in rest
                and len(relative.parts) > 2
                and rest.split("/")[0] != relative.parts[1]
            ):
                yield f"src/{relative}: backend leaves never see each other ({rest})"


def circles(root):
    """Folders of one layer that include each other, over whatever others: then none of them can be read by itself."""
    for layer in sorted(path for path in (root / "src").iterdir() if path.is_dir()):
        includes = {}
        for source in sorted(layer.rglob("*")):
            # What stands beside the folders and is included by none (a list of them all) may include every one.
            lists = source.parent == layer and source.suffix == ".cpp"
            if source.suffix in {".h", ".cpp", ".cu", ".cuh"} and not lists:
                folder = source.parent.relative_to(root / "src").as_posix()
                for target, rest in INCLUDE.findall(source.read_text()):
                    other = f"{target}/{rest}".rpartition("/")[0]
                    if target == layer.name and other != folder:
                        includes.setdefault(folder, {}).setdefault(other, source.relative_to(root))

        def reaches(start, end, includes=includes):
            seen, ahead = set(), [start]
            while ahead:
                for folder in includes.get(ahead.pop(), {}):
                    if folder not in seen:
                        seen.add(folder)
                        ahead.append(folder)
            return end in seen

        for folder, others in includes.items():
            for other, source in others.items():
                if reaches(other, folder):
                    yield f"{source.as_posix()}: '{folder}' includes '{other}', which includes it in turn"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = [*violations(root), *circles(root)]
    for line in found:
        print(line)
    print(f"layers: {len(found)} forbidden includes, ways to read and print, or ties to one system")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
