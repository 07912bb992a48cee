"""Python values as bounded JSON."""

from . import tensors

MOST_TEXT = 1000
MOST_ITEMS = 20
MOST_DEPTH = 2
_PLAIN = (bool, int, float, str, type(None))


def type_name(value):
    cls = type(value)
    module = getattr(cls, "__module__", "")
    name = getattr(cls, "__qualname__", cls.__name__)
    return name if module in ("builtins", None) or not isinstance(module, str) else f"{module}.{name}"


def clip(text, most=MOST_TEXT):
    return text if len(text) <= most else text[: most - 1] + "…"


def safe_repr(value, most=MOST_TEXT):
    try:
        text = repr(value)
        return text if isinstance(text, str) else "<repr returned no text>"
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, Interrupted)):
            raise
        return clip(f"<repr failed: {type(error).__name__}: {_message(error)}>", most)


class Interrupted(BaseException):
    """Raised in a thread whose evaluation takes too long."""


def _message(error):
    try:
        return clip(str(error), 300)
    except Exception:
        return "?"


def describe(value, depth=MOST_DEPTH, stats=False):
    """A value as the protocol shows it. stats: compute a tensor's statistics and edges."""
    cls = type(value)
    if cls in _PLAIN:
        return _describe_plain(value, cls)
    about = {"type": type_name(value)}
    try:
        framework = tensors.framework_of(value)
        if framework is not None:
            about["tensor"] = tensors.full(value, framework) if stats else tensors.brief(value, framework)
            known = about["tensor"]
            about["text"] = f"{about['type']}{known['shape']} {known['dtype']} on {known['device']}"
            return about
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            return _describe_container(about, value, depth, stats)
    except Interrupted:
        raise
    except Exception as error:
        about["text"] = f"<cannot be shown: {type(error).__name__}: {_message(error)}>"
        return about
    text = safe_repr(value)
    about["text"] = clip(text)
    if len(text) > MOST_TEXT:
        about["truncated"] = True
    return about


def _describe_plain(value, cls):
    if cls is str:
        if len(value) > MOST_TEXT:
            return {"type": "str", "text": clip(repr(value[:MOST_TEXT])), "length": len(value), "truncated": True}
        return {"type": "str", "text": clip(repr(value)), "value": value}
    if cls is int and not -(2**53) < value < 2**53:
        if value.bit_length() > 3000:
            return {"type": "int", "text": f"<an integer of {value.bit_length()} bits>", "truncated": True}
        return {"type": "int", "text": clip(str(value))}
    return {"type": cls.__name__, "text": repr(value), "value": value}


def _describe_container(about, value, depth, stats):
    size = len(value)
    about["length"] = size
    if depth <= 0:
        about["text"] = f"<{about['type']} of {size}>"
        return about
    items = []
    if isinstance(value, dict):
        for number, (key, item) in enumerate(
            list(value.items())[:MOST_ITEMS] if size <= 10000 else _first(value.items())
        ):
            items.append(
                [
                    clip(key if type(key) is str else safe_repr(key, 100), 100),
                    describe(item, depth - 1, stats and number < 4),
                ]
            )
    else:
        sequence = value[:MOST_ITEMS] if isinstance(value, (list, tuple)) else _first(value)
        for index, item in enumerate(sequence):
            items.append([index, describe(item, depth - 1, stats and index < 4)])
    about["items"] = items
    if size > len(items):
        about["truncated"] = True
    inside = ", ".join(f"{key}: {item['text']}" if isinstance(value, dict) else item["text"] for key, item in items)
    about["text"] = clip(f"{about['type']} of {size}: {inside}" + (", …" if size > len(items) else ""), 500)
    return about


def _first(items):
    found = []
    for item in items:
        found.append(item)
        if len(found) >= MOST_ITEMS:
            break
    return found


def describe_exception(error, locate, depth=0):
    """locate(traceback) → location of its innermost frame."""
    cls = type(error)
    about = {
        "type": cls.__name__,
        "qualified": f"{cls.__module__}.{cls.__qualname__}",
        "message": _message(error),
        "location": locate(error.__traceback__) if error.__traceback__ is not None else None,
        "traceback": traceback_lines(error),
    }
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and depth < 3 and cause is not error:
        about["cause"] = describe_exception(cause, locate, depth + 1)
    return about


def traceback_lines(error, most=40):
    """As Python prints it, without the modules it would import for that."""
    from . import sources

    lines = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not sources.is_own(code.co_filename):
            lines.append(f'File "{code.co_filename}", line {step.tb_lineno}, in {code.co_name}')
            text = sources.line_text(code.co_filename, step.tb_lineno)
            if text:
                lines.append("    " + text.strip())
        step = step.tb_next
    if len(lines) > most - 1:
        lines = lines[: most // 2] + ["..."] + lines[-(most // 2 - 2) :]
    return lines + [f"{type(error).__name__}: {_message(error)}"]
