"""What a fault of benchmarks/faults changed, so that the lines that zoom names can be judged: lines of a function, an attribute, a function in the
place of another, or weights. A changed function becomes a file of its own, as it is in a program: zoom reads the lines that it names."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import re
import sys
import textwrap
import types
from pathlib import Path

FAULTS = Path(__file__).resolve().parents[1] / "faults"
sys.path.insert(0, str(FAULTS))
import planting  # noqa: E402  found by the path above


class Planted:
    def __init__(self):
        self.lines = set()  # (file, line) of yours
        self.original = set()  # (file, line) of the official code that was changed
        self.functions = []  # (file, first line, last line) of what took a function's place
        self.replaced = []  # the same of the official function whose place it took
        self.attributes = {}  # name → value
        self.weights = set()  # names of changed parameters, as their module has them
        self.folder = None  # where changed functions are written

    def as_json(self):
        return {
            "lines": sorted(self.lines),
            "original": sorted(self.original),
            "functions": self.functions,
            "replaced": self.replaced,
            "attributes": self.attributes,
            "weights": sorted(self.weights),
        }

    @classmethod
    def from_json(cls, json):
        made = cls()
        made.lines = {tuple(one) for one in json["lines"]}
        made.original = {tuple(one) for one in json["original"]}
        made.functions = [tuple(one) for one in json["functions"]]
        made.replaced = [tuple(one) for one in json["replaced"]]
        made.attributes, made.weights = json["attributes"], set(json["weights"])
        return made

    def in_words(self):
        lines = [f"{Path(file).name}:{line}" for file, line in sorted(self.lines)]
        spans = [f"{Path(file).name}:{first}-{last}" for file, first, last in self.functions]
        return [*lines, *spans, *(f"{name}={value}" for name, value in self.attributes.items()), *sorted(self.weights)]

    def judges(self, region):
        """Whether a region of an answer is about this fault."""
        mine = {(one["file"], one["line"]) for one in region["yours"]}
        if mine & self.lines or any(_inside(line, self.functions) for line in mine):
            return True
        # In a function that came with the fault, called by the changed one: official code has no line there.
        chain = [(one["file"], one["line"]) for one in region["call_chain"]]
        called = {file for file, _ in chain} & {file for file, _ in self.lines} or any(
            _inside(line, self.functions) for line in chain
        )
        if called and any(Path(file).parent == FAULTS for file, _ in mine):
            return True
        theirs = {(one["file"], one["line"]) for one in region["reference"]}
        if region["kind"] == "missing step" and (
            theirs & self.original or any(_inside(line, self.replaced) for line in theirs)
        ):
            return True
        for name, value in self.attributes.items():
            if any(re.search(rf"\b{name}\b", one["code"]) for one in region["yours"]):
                return True
            said = None if value is None else str(value).lower()
            if mine and any(one["name"] == name or one["yours"] == said for one in region["arguments"]):
                return True
        return bool(self.weights) and bool(mine) and any(name in region["note"] for name in self.weights)


def _inside(line, functions):
    return any(line[0] == file and first <= line[1] <= last for file, first, last in functions)


CURRENT = Planted()


def _in_a_file(function, code, file):
    """The code as if it had been read from that file, under the name that the official function has."""
    return code.replace(
        co_filename=file,
        co_qualname=code.co_qualname if "." in code.co_qualname else function.__qualname__,
        co_consts=tuple(
            _in_a_file(function, one, file) if isinstance(one, types.CodeType) else one for one in code.co_consts
        ),
    )


def _watched_change(function, *changes):
    changed = _changed_function(function, *changes)
    plain = inspect.unwrap(function)
    lines, start = inspect.getsourcelines(plain)
    lines = textwrap.dedent("".join(lines)).splitlines()
    while not lines[0].lstrip().startswith("def "):
        lines.pop(0)
        start += 1
    new = "\n".join(lines)
    for old, text in changes:
        new = new.replace(old, text)
    file = changed.__code__.co_filename
    if CURRENT.folder is not None:
        CURRENT.folder.mkdir(parents=True, exist_ok=True)
        kept = CURRENT.folder / f"{plain.__qualname__}.py"
        kept.write_text(new + "\n")
        file = str(kept)
        changed.__code__ = _in_a_file(plain, changed.__code__, file)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, lines, new.splitlines(), autojunk=False).get_opcodes():
        if tag != "equal":
            CURRENT.lines |= {(file, line + 1) for line in range(c, max(d, c + 1))}
            CURRENT.original |= {(plain.__code__.co_filename, start + line) for line in range(a, max(b, a + 1))}
    return changed


def _span(function, spans, depth=0):
    """Lines of a function and of the functions that it closes over."""
    code = getattr(function, "__code__", None)
    if code is None or depth > 3:
        return
    numbers = [line for _, _, line in code.co_lines() if line]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            numbers += [line for _, _, line in constant.co_lines() if line]
    spans.append((code.co_filename, min(numbers), max(numbers)))
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            if isinstance(cell.cell_contents, types.FunctionType):
                _span(cell.cell_contents, spans, depth + 1)


def _watched_forward(module, function):
    _span(function, CURRENT.functions)
    _span(inspect.unwrap(type(module).forward), CURRENT.replaced)
    return _forward(module, function)


def _watched_attribute(owner, name, value):
    if isinstance(value, types.FunctionType):
        _span(value, CURRENT.functions)
    elif not isinstance(value, types.MethodType):  # a changed function is told by its lines
        plain = isinstance(value, (int, float, str, bool, type(None)))
        CURRENT.attributes[name] = value if plain else None
    return _attribute(owner, name, value)


def _watched_weights(module, change):
    def noted(after):
        before = {name: value.clone() for name, value in after.items()}
        change(after)
        CURRENT.weights |= {
            name
            for name, value in after.items()
            if value.shape != before[name].shape or not bool((value == before[name]).all())
        }

    return _weights(module, noted)


_changed_function, _forward, _attribute, _weights = (
    planting.changed_function,
    planting.forward,
    planting.attribute,
    planting.weights,
)
planting.changed_function = _watched_change  # before the sets import these names
planting.forward = _watched_forward
planting.attribute = _watched_attribute
planting.weights = _watched_weights


def begin(folder=None):
    """Forgets what was planted before; what is planted next is noted in the object that this gives."""
    global CURRENT
    CURRENT = Planted()
    CURRENT.folder = folder
    return CURRENT
