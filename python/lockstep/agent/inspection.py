"""What is asked of a stopped thread: its frames, variables and expressions. Runs in that thread itself."""

import _thread
import sys
import time

from . import endings, evaluate, sources, stops, values
from .arguments import Refused, integer, text
from .globs import fits


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
    arguments = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)])
    is_module = frame.f_locals is frame.f_globals
    for name, value in list(frame.f_locals.items()):
        if name.startswith("__") and name.endswith("__"):
            continue
        if is_module and (isinstance(value, type(sys)) or isinstance(value, type)):
            continue
        if pattern is not None and not pattern(name):
            continue
        kind = "argument" if name in arguments else "cell" if name in code.co_freevars else "global" if is_module else "local"
        found.append((name, value, kind))
        if len(found) >= most:
            break
    return found


def variables(agent, stop, args):
    frame, _ = _frame(stop, args)
    limit = integer(args, "limit", 200, 1, 1000)
    scope, wanted = text(args, "scope", "local"), text(args, "filter")
    pattern = (lambda name: fits(wanted, name)) if wanted else None
    if scope == "global":
        skipped = (type(sys), type, type(variables), type(len))
        names = [(name, value, "global") for name, value in list(frame.f_globals.items())
                 if not (name.startswith("__") and name.endswith("__")) and not isinstance(value, skipped) and (pattern is None or pattern(name))]
    elif scope == "local":
        names = local_variables(frame, 100_000, pattern)
    else:
        raise Refused("bad_request", f"scope is {scope!r}", "expected local or global")
    shown = [{"name": name, "value": values.describe(value, 1), "kind": kind} for name, value, kind in names[:limit]]
    return {"variables": shown, "total": len(names), "truncated": len(names) > limit}


def stack(agent, stop, args):
    limit = integer(args, "limit", 50, 1, 1000)
    frames = stop.frames()
    shown = [{"index": index, "location": stops.location(frame, line), "kind": stops.frame_kind(frame),
              "library": sources.is_library(frame.f_code.co_filename)} for index, (frame, line) in enumerate(frames[:limit])]
    return {"frames": shown, "total": len(frames)}


def location(agent, stop, args):
    around = integer(args, "around", 3, 0, 100)
    frame, line = _frame(stop, args)
    where = stops.location(frame, line, stop.thread)
    top = integer(args, "frame", 0) == 0
    note = "this line has not run yet" if stop.not_run_yet and top else "this line was running" if stop.reason == "exception" or not top else \
        "the call in this line is running"
    return {"location": where, "not_run_yet": stop.not_run_yet and top, "note": note,
            "code": stops.code_around(where["file"], where["line"], around), "stop": stop.event}


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


def run_code(agent, stop, text, frame, stats=True):
    """Runs text in the frame; a result dict. What it raises becomes an error that shows it."""
    began = time.perf_counter()
    agent.evaluations += 1
    stream = sys.stdout
    printed = sys.stdout = _Printed(stream, stop.thread)
    try:
        value, has_value, assigned = evaluate.run(text, frame, stop.extra if frame is stop.frames()[0][0] else None)
        result = {"value": values.describe(value, stats=stats) if has_value else None, "assigned": assigned[:100]}
    except SyntaxError as error:
        if error.filename != "<debugger>":
            raise _raised(agent, stop, text, error) from None
        raise Refused("bad_expression", f"{error.msg} (line {error.lineno}, column {error.offset}): {(error.text or '').rstrip()[:200]}") from None
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
    agent.trace.write("evaluation", {"step_type": "evaluation", "expression": values.clip(text, 4000), "result": result["value"],
                                     "location": stop.event["location"], "took_us": result["took_us"]})
    return result


def _raised(agent, stop, text, error):
    described = values.describe_exception(error, endings.locate)
    agent.trace.write("evaluation", {"step_type": "evaluation", "expression": values.clip(text, 4000), "error": described,
                                     "location": stop.event["location"]})
    hint = "vars, which lists the names known here" if isinstance(error, NameError) else ""
    return Refused("raised", f"{described['type']}: {described['message']}", hint, exception=described)


def evaluation(agent, stop, args):
    frame, _ = _frame(stop, args)
    return run_code(agent, stop, text(args, "expression", needed=True), frame, bool(args.get("stats", True)))


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
