"""What a fault of benchmarks/faults changed, so that the lines that zoom names can be judged: lines of a function, an attribute, a function in the
place of another, or weights."""

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
        self.attributes = {}  # name → value
        self.weights = set()  # names of changed parameters, as their module has them

    def as_json(self):
        return {
            "lines": sorted(self.lines),
            "original": sorted(self.original),
            "functions": self.functions,
            "attributes": self.attributes,
            "weights": sorted(self.weights),
        }

    @classmethod
    def from_json(cls, json):
        made = cls()
        made.lines = {tuple(one) for one in json["lines"]}
        made.original = {tuple(one) for one in json["original"]}
        made.functions = [tuple(one) for one in json["functions"]]
        made.attributes, made.weights = json["attributes"], set(json["weights"])
        return made

    def in_words(self):
        lines = [f"{Path(file).name}:{line}" for file, line in sorted(self.lines)]
        spans = [f"{Path(file).name}:{first}-{last}" for file, first, last in self.functions]
        return [*lines, *spans, *(f"{name}={value}" for name, value in self.attributes.items()), *sorted(self.weights)]

    def judges(self, region):
        """Whether a region of an answer is about this fault."""
        mine = {(one["file"], one["line"]) for one in region["yours"]}
        if mine & self.lines or any(
            file == f and first <= line <= last for file, line in mine for f, first, last in self.functions
        ):
            return True
        if (
            region["kind"] == "missing step"
            and {(one["file"], one["line"]) for one in region["reference"]} & self.original
        ):
            return True
        for name, value in self.attributes.items():
            if any(re.search(rf"\b{name}\b", one["code"]) for one in region["yours"]):
                return True
            if mine and any(one["name"] == name or one["yours"] == str(value).lower() for one in region["arguments"]):
                return True
        return bool(self.weights) and bool(mine) and any(name in region["note"] for name in self.weights)


CURRENT = Planted()


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
    for tag, a, b, c, d in difflib.SequenceMatcher(None, lines, new.splitlines(), autojunk=False).get_opcodes():
        if tag != "equal":
            CURRENT.lines |= {(changed.__code__.co_filename, line + 1) for line in range(c, max(d, c + 1))}
            CURRENT.original |= {(plain.__code__.co_filename, start + line) for line in range(a, max(b, a + 1))}
    return changed


def _span(function, depth=0):
    """Lines of a function and of the functions that it closes over."""
    code = getattr(function, "__code__", None)
    if code is None or depth > 3:
        return
    numbers = [line for _, _, line in code.co_lines() if line]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            numbers += [line for _, _, line in constant.co_lines() if line]
    CURRENT.functions.append((code.co_filename, min(numbers), max(numbers)))
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            if isinstance(cell.cell_contents, types.FunctionType):
                _span(cell.cell_contents, depth + 1)


def _watched_forward(module, function):
    _span(function)
    return _forward(module, function)


def _watched_attribute(owner, name, value):
    if isinstance(value, (int, float, str, bool, type(None))):
        CURRENT.attributes[name] = value
    elif isinstance(value, types.FunctionType):
        _span(value)
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


def begin():
    """Forgets what was planted before; what is planted next is noted in the object that this gives."""
    global CURRENT
    CURRENT = Planted()
    return CURRENT
