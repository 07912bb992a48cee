"""Files: their canonical paths, their lines, and which lines hold code."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_canonical = {}
_folders = {}
_lines = {}
_trees = {}
_start_folder = os.getcwd()
script = None  # may have been started by a symbolic link of another name
MOST_SOURCE = 20_000_000


def is_own(filename):
    return filename.startswith(_here)


def own_folder():
    return _here


_package = os.path.dirname(_here) + os.sep


def is_machinery(filename):
    """Frames that are never shown: ours, those of the package `lockstep`, and the import system's."""
    return filename.startswith(("<frozen importlib", "<frozen runpy", _package))


def _real(path):
    """realpath that looks at a folder once: a program has thousands of files in a few hundred of them."""
    folder, base = os.path.split(path)
    if base in ("", ".", ".."):
        return os.path.realpath(path)
    real = _folders.get(folder)
    if real is None:
        if len(_folders) > 10_000:
            _folders.clear()
        real = _folders[folder] = os.path.realpath(folder)
    path = os.path.join(real, base)
    return os.path.realpath(path) if os.path.islink(path) else path


def canonical(filename):
    """An absolute path without symbolic links; relative ones count from where the program was started."""
    known = _canonical.get(filename)
    if known is None:
        known = filename
        if not filename.startswith("<"):
            try:
                known = _real(os.path.join(_start_folder, filename))
            except (OSError, ValueError):
                pass
        if len(_canonical) > 100_000:
            _canonical.clear()
        _canonical[filename] = known
    return known


def is_same(filename, path):
    """Whether a file name of code means the canonical path. Names are compared first: that ends most questions."""
    if filename != script and os.path.basename(filename) != os.path.basename(path):
        return False
    return canonical(filename) == path


def absolute(filename):
    """As Python saw it, but absolute."""
    return filename if filename.startswith(("<", "/")) else os.path.normpath(os.path.join(_start_folder, filename))


def _standard_folder():
    return os.path.dirname(os.__file__) + os.sep


def _is_linked_from_standard(filename):
    """Debian's sitecustomize.py is a link in the standard library to a file in /etc: it is no file of the program's."""
    return filename.startswith(_standard_folder()) and "-packages/" not in filename


def _library_folders():
    folders = {os.path.dirname(os.path.realpath(os.__file__))}
    for path in sys.path:
        if path.endswith(("site-packages", "dist-packages")):
            folders.add(os.path.realpath(path))
    return tuple(folder + os.sep for folder in folders)


_libraries = None


def is_library(filename):
    global _libraries
    if _libraries is None or _libraries[0] != len(sys.path):
        _libraries = (len(sys.path), _library_folders())
    return (
        filename.startswith("<")
        or "/site-packages/" in filename
        or "/dist-packages/" in filename
        or canonical(filename).startswith(_libraries[1])
        or _is_linked_from_standard(filename)
    )


def is_standard(filename):
    if "/site-packages/" in filename or "/dist-packages/" in filename:
        return False
    path = canonical(filename)
    return (
        filename.startswith("<")
        or _is_linked_from_standard(filename)
        or (path.startswith(os.path.dirname(canonical(os.__file__)) + os.sep) and "site-packages" not in path)
    )


def read(filename):
    """The file's bytes; None when there is no such file."""
    try:
        with open(absolute(filename), "rb") as file:
            data = file.read(MOST_SOURCE + 1)
        return data if len(data) <= MOST_SOURCE else None
    except (OSError, ValueError):
        return None


def _stamp(filename):
    try:
        status = os.stat(absolute(filename))
        return status.st_mtime_ns, status.st_size
    except (OSError, ValueError):
        return None


def lines_of(filename):
    """The file's lines; those of a loader (zip, notebook) where there is no file."""
    stamp = _stamp(filename)
    known = _lines.get(filename)
    if known is not None and known[0] == stamp:
        return known[1]
    data = read(filename) if stamp is not None else None
    if data is None:
        cache = sys.modules.get("linecache")
        entry = getattr(cache, "cache", {}).get(filename) if cache is not None else None
        return [line.rstrip("\n") for line in entry[2]] if entry and len(entry) > 2 else []
    text = data.decode("utf-8", "replace")
    if text.startswith("\ufeff"):
        text = text[1:]
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if len(_lines) > 500:
        _lines.clear()
    _lines[filename] = (stamp, lines)
    return lines


def line_text(filename, line):
    lines = lines_of(filename)
    return lines[line - 1] if 0 < line <= len(lines) else ""


def lines_in(code):
    """Line numbers at which this code object itself has instructions, its prologue left out."""
    found = set()
    first = True
    for begin, _, line in code.co_lines():
        if line is None or line <= 0:
            continue
        if first and line == code.co_firstlineno and code.co_name != "<module>" and _only_prologue(code, begin):
            first = False
            continue
        first = False
        found.add(line)
    return found


def _only_prologue(code, begin):
    """Whether the first line range is nothing but the function's entry; a body on the def line has more ranges of it."""
    ranges = [(b, e, line) for b, e, line in code.co_lines()]
    if len(ranges) < 2:
        return False
    end = next(e for b, e, _ in ranges if b == begin)
    from . import opcodes

    return all(op in opcodes.PROLOGUE for op in opcodes.operations(code.co_code, begin, end))


def walk(code):
    """A code object and all that are inside it."""
    stack = [code]
    while stack:
        one = stack.pop()
        yield one
        stack.extend(constant for constant in one.co_consts if type(constant) is type(code))


def tree_of(filename):
    """The compiled file, for its lines and names only; None when it cannot be read or compiled."""
    stamp = _stamp(filename)
    known = _trees.get(filename)
    if known is not None and known[0] == stamp:
        return known[1]
    code = None
    data = read(filename) if stamp is not None else None
    if data is not None:
        try:
            code = compile(data, filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            code = None
    if len(_trees) > 64:
        _trees.clear()
    _trees[filename] = (stamp, code)
    return code


def executable_lines(filename):
    tree = tree_of(filename)
    found = set()
    if tree is not None:
        for code in walk(tree):
            found |= lines_in(code)
    return found


def qualified_name(code):
    return getattr(code, "co_qualname", code.co_name)


def loaded_files():
    """File of each loaded module → module name."""
    found = {}
    for name, module in list(sys.modules.items()):
        try:
            file = getattr(module, "__file__", None)
        except Exception:
            continue
        if isinstance(file, str) and file.endswith(".py"):
            found.setdefault(file, name)
    return found
