"""What a value is made of: the items of a container, the rows of a tensor, the attributes of an object. Each part has an expression that leads to it,
so that whoever looks deeper only needs to name it. Nothing of the value is called beyond its own items: no property runs, and a lazy array is evaluated only where
its numbers themselves are asked for."""

import sys

from . import tensors, values

_LEAVES = (bool, int, float, complex, str, bytes, bytearray, type(None), type(sys), type(len), type(lambda: 0))
MOST_ATTRIBUTES = 10_000


def _attributes(value):
    """[(name, expression's end, value)] of the attributes that the object holds itself."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except Exception:
        held = {}
    found = []
    if isinstance(held, dict) or type(held).__name__ == "mappingproxy":
        for name in ("_parameters", "_buffers", "_modules"):  # of a torch module: reached as attributes, kept apart
            inner = held.get(name)
            if isinstance(inner, dict) and "_modules" in held:
                found += [(str(key), _attribute(key), item) for key, item in list(inner.items())]
        for name, item in list(held.items())[:MOST_ATTRIBUTES]:
            if isinstance(name, str) and not (name.startswith("__") and name.endswith("__")):
                found.append((name, _attribute(name), item))
    for cls in type(value).__mro__ if not isinstance(value, type) else ():
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            descriptor = cls.__dict__.get(name)
            if type(descriptor).__name__ == "member_descriptor":
                try:
                    found.append((name, _attribute(name), descriptor.__get__(value)))
                except AttributeError:
                    pass  # never assigned
    return found


def _attribute(name):
    if isinstance(name, str) and name.isidentifier():
        return f".{name}"
    return f".__dict__[{name!r}]"


def _rows(value, framework):
    """How many rows a tensor can be looked into by; 0 for a single number."""
    shape = value.shape
    if len(shape) == 0 or (framework == "torch" and value.device.type == "meta"):
        return 0
    return int(shape[0])


def _facts(value, framework):
    """What is told of a tensor beside its rows: (name, expression's end, value). Values are computed only where they are asked for."""
    yield "shape", ".shape", tuple(int(size) for size in value.shape)
    yield "dtype", ".dtype", value.dtype
    if framework == "torch":
        yield "device", ".device", value.device
        yield "strides", ".stride()", tuple(value.stride()) if str(value.layout) == "torch.strided" else ()


def counts(value):
    """(named parts, indexed parts)"""
    try:
        cls = type(value)
        if cls in _LEAVES:
            return 0, 0
        framework = tensors.framework_of(value)
        if framework is not None:
            return sum(1 for _ in _facts(value, framework)), _rows(value, framework)
        if isinstance(value, dict):
            return len(value) + len(_attributes(value)), 0
        if isinstance(value, (list, tuple, set, frozenset)) or cls.__name__ == "deque":
            return (len(_attributes(value)), len(value))
        if isinstance(value, _LEAVES):
            return 0, 0
        return len(_attributes(value)), 0
    except Exception:
        return 0, 0


def _entries(value, start, stop):
    for number, (key, item) in enumerate(value.items()):
        if number >= stop:
            return
        if number < start:
            continue
        if type(key) in (str, int, bool, float, type(None)) and key == key:
            yield f"[{values.clip(repr(key), 200)}]", f"[{key!r}]", item
        else:  # a key that cannot be written down: by its place
            yield f"[{values.clip(values.safe_repr(key, 200), 200)}]", ("[*", f".values()][{number}]"), item


def _items(value, start, stop):
    if isinstance(value, (list, tuple)):
        for number, item in enumerate(value[start:stop], start):
            yield f"[{number}]", f"[{number}]", item
        return
    for number, item in enumerate(value):
        if number >= stop:
            return
        if number >= start:
            yield f"[{number}]", ("[*", f"][{number}]"), item


def of(value, start, limit, which=None):
    """([(name, end of the expression or (its beginning, its end), part)], how many there are). which: "named" or "indexed" alone."""
    named, indexed = counts(value)
    stop, found = start + limit, []
    first = 0 if which == "indexed" else named
    if which != "indexed":
        framework = tensors.framework_of(value)
        if framework is not None:
            found += list(_facts(value, framework))[start:stop]
        elif isinstance(value, dict):
            found += _entries(value, start, stop)
            if stop > len(value):
                found += _attributes(value)[max(0, start - len(value)) : stop - len(value)]
        else:
            found += _attributes(value)[start:stop]
    if which != "named" and stop > first:
        begin, end = max(0, start - first), min(stop - first, indexed)
        if tensors.framework_of(value) is not None:
            found += [(f"[{row}]", f"[{row}]", value[row]) for row in range(begin, end)]
        elif indexed:
            found += _items(value, begin, end)
    return found, {"named": named, "indexed": indexed}.get(which, named + indexed)


def expression(base, end):
    if isinstance(end, tuple):
        return f"{end[0]}{base}{end[1]}"
    return base + end


def describe(value):
    """{"named": n, "indexed": m} where there is something inside, else None."""
    named, indexed = counts(value)
    return {"named": named, "indexed": indexed} if named or indexed else None


def shown(value, opened=False):
    """A part as a line shows it: a tensor's single number as that number; of a lazy one only where it was opened."""
    framework = tensors.framework_of(value)
    if (
        (framework in ("torch", "numpy") or (framework == "mlx" and opened))
        and len(value.shape) == 0
        and not (framework == "torch" and value.device.type == "meta")
    ):
        about = values.describe(value, 1)
        try:
            about["text"] = str(value.item())
        except Exception:
            pass
        return about
    return values.describe(value, 1)
