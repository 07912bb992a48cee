"""Names that may follow what somebody types in the scope of a stopped frame. Only names and attributes are followed: nothing is called."""

import sys

from . import evaluate
from .arguments import integer, text

MOST = 200
_WORDS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


def _tail(line):
    """(what stands before the last dot or "", the beginning of the name that is typed)"""
    at = len(line)
    while at > 0 and (line[at - 1] in _WORDS or ord(line[at - 1]) > 127):
        at -= 1
    if at == 0 or line[at - 1] != ".":
        return "", line[at:]
    end = at - 1
    begin = end
    while begin > 0 and (line[begin - 1] in _WORDS or line[begin - 1] in ".[]'\"" or ord(line[begin - 1]) > 127):
        begin -= 1
    return line[begin:end], line[at:]


def _follow(path, scope):
    """The value that a path of names, attributes and plain items leads to; LookupError where it does not."""
    tree = compile(path, "<complete>", "eval", 0x400, dont_inherit=True).body

    def walk(node):
        kind = type(node).__name__
        if kind == "Name":
            return scope[node.id]
        if kind == "Attribute":
            return getattr(walk(node.value), node.attr)
        if kind == "Subscript" and type(node.slice).__name__ == "Constant":
            return walk(node.value)[node.slice.value]
        raise LookupError(kind)

    return walk(tree)


def _kind(value):
    if isinstance(value, type(sys)):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "value"


def complete(agent, stop, args):
    from .inspection import _frame

    frame, _ = _frame(stop, args)
    line = text(args, "text", needed=True)
    column = integer(args, "column", len(line), 0, 1_000_000)
    line = line[:column].rpartition("\n")[2]
    path, begun = _tail(line)
    builtins = frame.f_globals.get("__builtins__", {})
    known = builtins if isinstance(builtins, dict) else vars(builtins)
    scope = {**known, **frame.f_globals, **frame.f_locals, **evaluate.names_of(stop)}
    if path:
        try:
            value = _follow(path, scope)
            names = {name: None for name in dir(value) if isinstance(name, str) and name.isidentifier()}
            held = getattr(value, "__dict__", {})
        except Exception:  # nothing is known of it: nothing is offered
            return {"completions": [], "start": len(line) - len(begun), "total": 0}
        for name in names:
            names[name] = held[name] if isinstance(held, dict) and name in held else getattr(type(value), name, None)
    else:
        names = scope
    fitting = [name for name in names if name.startswith(begun) and (begun.startswith("_") or not name.startswith("_"))]
    fitting.sort(key=lambda name: (name not in frame.f_locals if not path else False, name))
    return {
        "completions": [{"name": name, "kind": _kind(names[name])} for name in fitting[:MOST]],
        "start": len(line) - len(begun),
        "total": len(fitting),
    }
