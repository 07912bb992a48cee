"""What is asked of a stopped thread: its frames, variables and expressions. Runs in that thread itself."""

import _thread
import sys
import time

from . import endings, evaluate, parts, sources, stops, values
from .arguments import Refused, integer, text
from .globs import fits

_NO_MARKS = str.maketrans("", "", "._[]")  # what a plain path is made of beside letters and digits


def _frame(stop, args):
    index = integer(args, "frame", 0, 0)
    frames = stop.frames()
    if index >= len(frames):
        raise Refused("not_found", f"no frame {index}", f"expected 0 to {len(frames) - 1}")
    return frames[index]


def local_variables(frame, most, pattern=None):
    """[(name, value, kind)]"""
    code = frame.f_code
    found = []
    arguments = set(
        code.co_varnames[
            : code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        ]
    )
    held, free = frame.f_locals, frozenset(code.co_freevars)  # each look at them makes them anew
    is_module = held is frame.f_globals
    for name, value in list(held.items()):
        if name.startswith("__") and name.endswith("__"):
            continue
        if is_module and (isinstance(value, type(sys)) or isinstance(value, type)):
            continue
        if pattern is not None and not pattern(name):
            continue
        kind = "argument" if name in arguments else "cell" if name in free else "global" if is_module else "local"
        found.append((name, value, kind))
        if len(found) >= most:
            break
    return found


def variables(agent, stop, args):
    frame, _ = _frame(stop, args)
    limit, start = integer(args, "limit", 200, 1, 1000), integer(args, "from", 0, 0)
    if args.get("of"):
        return _inside(agent, stop, args, frame, start, limit)
    scope, wanted = text(args, "scope", "local"), text(args, "filter")
    pattern = (lambda name: fits(wanted, name)) if wanted else None
    if scope == "global":
        skipped = (type(sys), type, type(variables), type(len))
        names = [
            (name, value, "global")
            for name, value in list(frame.f_globals.items())
            if not (name.startswith("__") and name.endswith("__"))
            and not isinstance(value, skipped)
            and (pattern is None or pattern(name))
        ]
    elif scope == "local":
        names = local_variables(frame, 100_000, pattern)
    else:
        raise Refused("bad_request", f"scope is {scope!r}", "expected local or global")
    shown = [_variable(name, value, kind, name) for name, value, kind in names[start : start + limit]]
    return {"variables": shown, "total": len(names), "truncated": len(names) > start + limit}


def _variable(name, value, kind, expression):
    about = {"name": name, "value": parts.shown(value, kind == "part"), "kind": kind, "expression": expression}
    inside = parts.describe(value)
    if inside is not None:
        about["parts"] = inside
    return about


def _inside(agent, stop, args, frame, start, limit):
    """The parts of what an expression gives, in place of the frame's variables."""
    base, which = text(args, "of"), text(args, "parts")
    if which not in (None, "named", "indexed"):
        raise Refused("bad_request", f"parts is {which!r}", "expected named or indexed")
    value = _value_of(agent, stop, base, frame)
    if not (base.isidentifier() or base.translate(_NO_MARKS).isalnum()):
        base = f"({base})"
    found, total = parts.of(value, start, limit, which)
    shown = [_variable(name, part, "part", parts.expression(base, end)) for name, end, part in found]
    return {"variables": shown, "total": total, "truncated": total > start + limit}


def _value_of(agent, stop, code, frame):
    """The value itself of one expression."""
    try:
        value, has_value, _ = evaluate.run(code, frame, _names(stop, code, frame))
    except SyntaxError as error:
        raise Refused("bad_expression", f"{error.msg}: {values.clip(code, 200)}") from None
    except values.Interrupted:
        raise
    except BaseException as error:
        raise _raised(agent, stop, code, error) from None
    if not has_value:
        raise Refused("bad_expression", "this is no expression: it has no value", "expected one expression")
    return value


def _names(stop, code, frame):
    """Names beside the program's own; none where none is meant, so that code at a module's level runs as the module's own."""
    if "_kept" in code:
        return evaluate.names_of(stop)
    return stop.extra if frame is stop.frames()[0][0] else None


def _keep(stop, value):
    """An expression that leads to this value for as long as the thread stands."""
    if len(stop.kept) >= 10_000:
        return None
    stop.kept.append(value)
    return f"_kept[{len(stop.kept) - 1}]"


def stack(agent, stop, args):
    limit, start = integer(args, "limit", 50, 1, 1000), integer(args, "from", 0, 0)
    frames = stop.frames()
    known, shown = (
        {},
        [],
    )  # what is told of a line is the same in every frame that stands there: a deep recursion costs one look
    for index, (frame, line) in enumerate(frames[start : start + limit], start):
        key = (frame.f_code, line, id(frame.f_globals)) if hasattr(frame.f_code, "co_qualname") else (index,)
        told = known.get(key)
        if told is None:
            told = known[key] = (
                stops.location(frame, line),
                stops.frame_kind(frame),
                sources.is_library(frame.f_code.co_filename),
            )
        shown.append({"index": index, "location": told[0], "kind": told[1], "library": told[2]})
    return {"frames": shown, "total": len(frames)}


def location(agent, stop, args):
    around = integer(args, "around", 3, 0, 100)
    frame, line = _frame(stop, args)
    where = stops.location(frame, line, stop.thread)
    top = integer(args, "frame", 0) == 0
    note = (
        "this line has not run yet"
        if stop.not_run_yet and top
        else "this line was running"
        if stop.reason == "exception" or not top
        else "the call in this line is running"
    )
    return {
        "location": where,
        "not_run_yet": stop.not_run_yet and top,
        "note": note,
        "code": stops.code_around(where["file"], where["line"], around),
        "stop": stop.event,
    }


class _Printed:
    """Collects what an expression prints, in this thread only, and passes the rest on."""

    def __init__(self, stream, ident):
        self._stream, self._ident, self.parts, self.size = stream, ident, [], 0

    def write(self, text):
        if _thread.get_ident() != self._ident:
            return self._stream.write(text)
        if self.size < 10_000:
            self.parts.append(text[: 10_000 - self.size])
        self.size += len(text)
        return len(text)

    def flush(self):
        try:
            self._stream.flush()
        except Exception:
            pass

    def __getattr__(self, name):
        return getattr(self._stream, name)


def run_code(agent, stop, text, frame, stats=True, keep=False):
    """Runs text in the frame; a result dict. What it raises becomes an error that shows it."""
    began = time.perf_counter()
    agent.evaluations += 1
    stream = sys.stdout
    printed = sys.stdout = _Printed(stream, stop.thread)
    try:
        value, has_value, assigned = evaluate.run(text, frame, _names(stop, text, frame))
        result = {"value": values.describe(value, stats=stats) if has_value else None, "assigned": assigned[:100]}
        inside = parts.describe(value) if keep and has_value else None
        if inside is not None:
            result["parts"], result["kept"] = inside, _keep(stop, value)
    except SyntaxError as error:
        if error.filename != "<debugger>":
            raise _raised(agent, stop, text, error) from None
        raise Refused(
            "bad_expression",
            f"{error.msg} (line {error.lineno}, column {error.offset}): {(error.text or '').rstrip()[:200]}",
        ) from None
    except values.Interrupted:
        raise
    except BaseException as error:
        raise _raised(agent, stop, text, error) from None
    finally:
        if sys.stdout is printed:
            sys.stdout = stream
    result["took_us"] = int((time.perf_counter() - began) * 1e6)
    if printed.parts:
        result["printed"] = "".join(printed.parts)
    agent.trace.write(
        "evaluation",
        {
            "step_type": "evaluation",
            "expression": values.clip(text, 4000),
            "result": result["value"],
            "location": stop.event["location"],
            "took_us": result["took_us"],
        },
    )
    return result


def _raised(agent, stop, text, error):
    described = values.describe_exception(error, endings.locate)
    agent.trace.write(
        "evaluation",
        {
            "step_type": "evaluation",
            "expression": values.clip(text, 4000),
            "error": described,
            "location": stop.event["location"],
        },
    )
    hint = "vars, which lists the names known here" if isinstance(error, NameError) else ""
    return Refused("raised", f"{described['type']}: {described['message']}", hint, exception=described)


def evaluation(agent, stop, args):
    frame, _ = _frame(stop, args)
    return run_code(
        agent,
        stop,
        text(args, "expression", needed=True),
        frame,
        bool(args.get("stats", True)),
        bool(args.get("keep", False)),
    )


def set_value(agent, stop, args):
    frame, _ = _frame(stop, args)
    name, value = text(args, "name", needed=True), text(args, "value", needed=True)
    try:
        compile(f"{name} = 0", "<debugger>", "exec", dont_inherit=True)
        compile("(" + value + "\n)", "<debugger>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Refused("bad_expression", f"{name} = {value}: {error}", "expected NAME and an expression") from None
    return run_code(agent, stop, f"{name} = ({value}\n)\n{name}", frame)


def summary(agent, stop, args):
    frame, _ = _frame(stop, args)
    part = text(args, "slice")
    code = "(" + text(args, "expression", needed=True) + "\n)" + (f"[{part.strip().strip('[]')}]" if part else "")
    return run_code(agent, stop, code, frame)
