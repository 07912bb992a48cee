"""What the service may ask. One function an operation; those that need a frame run in the stopped thread itself."""

import _thread
import os
import sys
import time

from . import breakpoints, engine, evaluate, native, opcodes, sources, stops, values
from .breakpoints import Refused

deadlines = {}  # id of a running evaluation → _Running


class _Running:
    __slots__ = ("thread", "request", "deadline", "raised", "answered")

    def __init__(self, thread, request, deadline):
        self.thread, self.request, self.deadline, self.raised, self.answered = thread, request, deadline, False, False


def dispatch(agent, message):
    """In the agent's thread: answers at once, or hands the request to the stopped thread."""
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        _fail(agent, message.get("id") if isinstance(message, dict) else None, Refused("bad_request", "no op", "expected {id, op, args}"))
        return
    number, name, args = message.get("id"), message["op"], message.get("args") or {}
    try:
        if not isinstance(args, dict):
            raise Refused("bad_request", "args is no object")
        if name in ANY:
            agent.channel.send({"id": number, "ok": True, "result": ANY[name](agent, args)})
        elif name == "source" and ("file" in args or not agent.stops):
            agent.channel.send({"id": number, "ok": True, "result": source(agent, args)})
        elif name in STOPPED or name in RESUMING:
            _to_stopped(agent, number, name, args)
        else:
            import_hint = ", ".join(sorted((*ANY, *STOPPED, *RESUMING)))
            raise Refused("bad_request", f"no operation {name!r}", f"one of {import_hint}")
    except Refused as error:
        _fail(agent, number, error)
    except Exception as error:
        _fail(agent, number, Refused("internal", f"{name}: {type(error).__name__}: {error}", "this is a bug of the debugger"))
    if name == "disconnect":
        agent._told_to_leave = True
        agent.dead = False
        agent.channel.open = False


def _fail(agent, number, error):
    agent.channel.send({"id": number, "ok": False,
                        "error": {"code": error.code, "message": values.clip(error.message), "hint": error.hint, **error.more}})


def _integer(args, name, default=None, low=None, high=None):
    value = args.get(name, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused("bad_request", f"{name} is a {type(value).__name__}", "expected a whole number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise Refused("bad_request", f"{name} is {value}", f"expected {low} to {high}")
    return value


def _text(args, name, default=None, needed=False, most=100_000):
    value = args.get(name, default)
    if value is None and not needed:
        return default
    if not isinstance(value, str):
        raise Refused("bad_request", f"{name} is missing" if value is None else f"{name} is a {type(value).__name__}", "expected text")
    if len(value) > most:
        raise Refused("too_large", f"{name} has {len(value)} characters", f"at most {most}")
    return value


def _to_stopped(agent, number, name, args):
    ident = _integer(args, "thread")
    with agent.lock:
        if name == "continue" and ident is None:
            chosen = list(agent.stops.values())
        else:
            stop = agent.stops.get(agent.current if ident is None else ident)
            chosen = [stop] if stop is not None else []
    if not chosen:
        if ident is not None:
            raise Refused("not_stopped", f"thread {ident} is not stopped", "try threads, pause")
        raise Refused("not_stopped", "the program is running", "try pause, or wait for a stop")
    if name in RESUMING:
        for stop in chosen:
            if stop.busy is not None:
                raise Refused("busy", "an evaluation is still running in this thread", "wait, or terminate")
        plan = _plan(agent, name, args, chosen[0])
        for stop in chosen:  # now, so that this thread watches over the step from its beginning
            agent.steps[stop.thread] = plan
        agent.channel.send({"id": number, "ok": True, "result": {"resumed": [stop.thread for stop in chosen]}})
        for stop in chosen:
            stop.give(("resume", plan))
        return
    stop = chosen[0]
    if stop.busy is not None:
        raise Refused("busy", "an evaluation is still running in this thread", "wait for its answer, or terminate")
    stop.busy = number
    seconds = args.get("timeout", agent.options["eval_timeout"])
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= 3600:
        stop.busy = None
        raise Refused("bad_request", "timeout is no number of seconds", "0 to 3600")
    if name in ("eval", "set", "vars", "summary"):
        deadlines[id(stop)] = _Running(stop.thread, number, time.monotonic() + seconds)
    stop.give(("work", number, name, args))


def _plan(agent, name, args, stop):
    from .agent import Step

    count = _integer(args, "count", 1, 1, 1_000_000)
    library = bool(args.get("library", True))
    if name == "continue":
        return Step("continue")
    if stop.reason == "exception":
        return Step(name)  # nothing is left to step through
    if name == "next":
        return Step("next", engine.NEXT, count, library)
    if name == "step":
        return Step("step", engine.STEP, count, library)
    if name == "finish":
        return Step("finish", engine.FINISH)
    line = _integer(args, "line", None, 1)
    return Step("until", engine.UNTIL, 1, True, line - 1 if line is not None else stop.event["location"]["line"])


def check_deadlines(agent, now):
    for key, running in list(deadlines.items()):
        if now < running.deadline:
            continue
        if not running.raised:
            running.raised = True
            running.deadline = now + 0.5
            if native.module is not None:
                native.module.raise_in(running.thread, values.Interrupted)
        elif not running.answered:
            running.answered = True
            deadlines.pop(key, None)
            _fail(agent, running.request, Refused("timeout", "the evaluation takes too long and sits in C code",
                                                  "it goes on; ask again later, or terminate", still_running=True))


def serve_stopped(agent, stop):
    """In the stopped thread: works until it is told to go on."""
    while True:
        item = stop.take()
        if item is None:
            return
        if item[0] == "resume":
            _resume(agent, stop, item[1])
            return
        _, number, name, args = item
        answer = None
        try:
            answer = {"id": number, "ok": True, "result": STOPPED[name](agent, stop, args)}
            running = deadlines.pop(id(stop), None)
        except values.Interrupted:
            running = deadlines.pop(id(stop), None)
            error = {"code": "timeout", "message": "the evaluation took too long and was interrupted", "hint": "give a larger timeout"}
            answer = {"id": number, "ok": False, "error": error}
        except Refused as error:
            running = deadlines.pop(id(stop), None)
            answer = {"id": number, "ok": False,
                      "error": {"code": error.code, "message": values.clip(error.message), "hint": error.hint, **error.more}}
        except Exception as error:
            running = deadlines.pop(id(stop), None)
            answer = {"id": number, "ok": False, "error": {"code": "internal", "message": f"{name}: {type(error).__name__}: {error}",
                                                           "hint": "this is a bug of the debugger"}}
        if running is not None and running.raised and native.module is not None:
            native.module.raise_in(stop.thread, None)  # came too late: it must not hit the program
        stop.busy = None
        if running is None or not running.answered:
            agent.channel.send(answer)


def _resume(agent, stop, step):
    ident = stop.thread
    agent.trace.write("resume", {"step_type": step.command if step is not None else "continue", "thread": ident})
    agent.channel.event("continued", {"thread": describe_thread(agent, ident, "running"), "command": step.command if step else "continue"})
    if step is not None and step.mode:
        frame = stop.frame
        if isinstance(frame, stops.EntryFrame):
            mode = engine.STEP if step.mode in (engine.STEP, engine.NEXT) else step.mode
            agent.engine_attach(ident, engine.NEXT if step.mode == engine.NEXT else mode, None, step.line, frame.f_code.co_filename)
        elif stop.reason != "exception":
            agent.engine_attach(ident, step.mode, _visible(frame), step.line)


def _visible(frame):
    """The innermost frame that is the program's: a checkpoint stops inside our own package."""
    while frame is not None and sources.is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


# -- at any time ------------------------------------------------------------------------------------------------------
def describe_thread(agent, ident, state=None, where=None):
    if state is None:
        stop = agent.stops.get(ident)
        state = "running" if stop is None else "evaluating" if stop.busy is not None else "stopped"
        where = stop.event["location"] if stop is not None else None
    about = {"id": ident, "name": stops.thread_name(ident), "main": ident == stops.main_thread(), "state": state}
    if where is not None:
        about["location"] = where
    return about


def threads(agent, args):
    found = []
    for ident, frame in sys._current_frames().items():
        if ident == agent.own_thread:
            continue
        about = describe_thread(agent, ident)
        visible = _visible(frame)
        if "location" not in about and visible is not None:
            about["location"] = stops.location(visible)
        found.append(about)
    return {"threads": found[:200]}


def status(agent, args):
    stop = agent.stops.get(agent.current) if agent.current is not None else None
    return {"state": "exited" if agent.finished else "stopped" if agent.stops else "running", **threads(agent, args),
            "current": agent.current, "stop": stop.event if stop is not None else None, "engine": agent.engine.name,
            "native": native.module is not None, "native_reason": native.reason, "python": sys.version.split()[0], "pid": agent.pid,
            "uptime": time.time() - agent.started, "breakpoints": len(agent.table), "evaluations": agent.evaluations,
            "script": agent.script, "pausing": list(agent.pausing)}


def set_break(agent, args):
    return {"breakpoint": agent.add_breakpoint(args).describe(agent.engine)}


def list_breaks(agent, args):
    number = _integer(args, "id")
    if number is not None:
        return {"breakpoints": [_breakpoint(agent, number).describe(agent.engine)]}
    return {"breakpoints": [one.describe(agent.engine) for one in list(agent.table.values())[:1000]]}


def _breakpoint(agent, number):
    one = agent.table.get(number)
    if one is None:
        known = ", ".join(str(id_) for id_ in list(agent.table)[:50]) or "none"
        raise Refused("not_found", f"no breakpoint {number}", f"there are: {known}")
    return one


def _named(agent, args):
    """Breakpoints that `id`, `ids`, `where` or `file` and `line` mean."""
    if "ids" in args:
        if not isinstance(args["ids"], list):
            raise Refused("bad_request", "ids is no list")
        return [_breakpoint(agent, number) for number in args["ids"]]
    number = _integer(args, "id")
    if number is not None:
        return [_breakpoint(agent, number)]
    where, file, line = _text(args, "where"), _text(args, "file"), _integer(args, "line")
    found = []
    if where is not None and file is None:
        found = [one for one in agent.table.values() if one.where == where]
        if not found:
            head, colon, tail = where.rpartition(":")
            if colon and tail.isdigit():
                file, line = head, int(tail)
    if not found and file is not None and line is not None:
        path = sources.canonical(breakpoints.find_file(file)[0])
        found = [one for one in agent.table.values() if one.kind != "data" and line in (one.line, one.requested_line)
                 and (one.path == path or any(sources.canonical(place["file"]) == path for place in one.places))]
    if not found:
        raise Refused("not_found", "no such breakpoint", "try breaks")
    return found


def remove(agent, args):
    found = _named(agent, args)
    for one in found:
        agent.remove_breakpoint(one)
    return {"removed": [one.id for one in found]}


def clear(agent, args):
    found = list(agent.table.values())
    for one in found:
        agent.remove_breakpoint(one)
    return {"removed": [one.id for one in found]}


def enable(agent, args):
    one = _breakpoint(agent, _integer(args, "id"))
    one.enabled = bool(args.get("enabled", True))
    for point in one.points:
        agent.engine.enable(point, one.enabled)
    if one.enabled and not one.points and one.kind in ("line", "function", "text"):
        agent.engine.update(one)
        agent._set_callbacks_if_native()
    agent.trace.write("breakpoint", {"change": "enabled" if one.enabled else "disabled", "breakpoint": one.describe(agent.engine)})
    return {"breakpoint": one.describe(agent.engine)}


def pause(agent, args):
    ident = _integer(args, "thread", stops.main_thread())
    if ident in agent.stops:
        raise Refused("bad_request", "this thread is stopped already", "try status")
    if ident not in sys._current_frames() or ident == agent.own_thread:
        raise Refused("not_found", f"no thread {ident}", "try threads")
    from .agent import Step

    agent.steps[ident] = Step("pause")
    agent.pausing[ident] = (time.monotonic(), False)
    agent.engine_attach(ident, engine.PAUSE, None, 0)
    return {"pausing": [ident]}


def source(agent, args, stop=None):
    file, line = _text(args, "file"), _integer(args, "line", None, 1)
    around = _integer(args, "around", 10, 0, 200)
    if file is None:
        if stop is None:
            raise Refused("bad_request", "no file", "give file, or stop first")
        where = stop.event["location"]
        file, line = where["file"], line or where["line"]
    path, found = breakpoints.find_file(file)
    lines = sources.lines_of(path)
    if not lines:
        raise Refused("not_found", f"no source of {file}", "give an absolute path")
    if line is None:
        first, last = 1, min(len(lines), 400)
    else:
        first, last = max(1, line - around), min(len(lines), line + around)
    canonical = sources.canonical(path)
    executable = sources.executable_lines(path)
    return {"file": sources.absolute(path), "first": first, "lines": [text[:400] for text in lines[first - 1 : last]], "total": len(lines),
            "executable": sorted(one for one in executable if first <= one <= last),
            "breakpoints": sorted({one.line for one in agent.table.values() if one.path == canonical and one.line})}


def files(agent, args):
    limit = _integer(args, "limit", 200, 1, 5000)
    wanted = _text(args, "filter")
    everything = bool(args.get("all", False))
    modules = {sources.canonical(file): (file, name) for file, name in sources.loaded_files().items()}
    counts = {}
    if native.module is not None:
        totals = native.module.run_counts()
        ran = native.module.started() if agent.engine.name == "monitoring" else None
        for file, (total, run) in totals.items():
            counts[sources.canonical(file)] = [total, ran.get(file, 0) if ran is not None else run]
        for file, run in (ran or {}).items():
            counts.setdefault(sources.canonical(file), [0, run])
    counted = {}
    if agent.calls_counted:
        from . import calls

        counted = calls.counts()
    found = []
    for path, (file, name) in modules.items():
        if sources.is_own(path) or (not everything and sources.is_standard(file)):
            continue
        if wanted and not breakpoints_match(wanted, file):
            continue
        total, run = counts.get(path, [0, 0])
        found.append({"file": file, "module": name, "functions_run": run, "functions": max(total, run), "library": sources.is_library(file)})
        if agent.calls_counted:
            found[-1]["calls"] = counted.get(path, 0)
    found.sort(key=lambda one: (-one.get("calls", 0), -one["functions_run"]))
    return {"files": found[:limit], "total": len(found), "truncated": len(found) > limit, "calls_counted": agent.calls_counted}


def count(agent, args):
    from . import calls

    return calls.operation(agent, args)


def breakpoints_match(pattern, text):
    """A glob, or a part of the text."""
    if any(sign in pattern for sign in "*?["):
        from .globs import matches

        return matches(text, pattern) or matches(text, "*" + pattern)
    return pattern in text


def why(agent, args):
    from . import why as reasons

    if args.get("id") is not None:
        return reasons.explain(agent, _breakpoint(agent, _integer(args, "id")))
    where = _text(args, "where", needed=True)
    for one in agent.table.values():
        if one.where == where:
            return reasons.explain(agent, one)
    one = breakpoints.parse(0, {"where": where})
    if one.kind == "line":
        breakpoints.resolve_line(one)
    return reasons.explain(agent, one)


def checkpoints(agent, args):
    return {"checkpoints": agent.load_features().checkpoint_list()}


def terminate(agent, args):
    if args.get("force"):
        agent.trace.write("exit", {"how": "terminated", "code": 1, "end_time": time.time(), "total_steps": agent.stop_count})
        agent.channel.event("exited", {"how": "terminated", "code": 1})
        os._exit(1)
    agent.end(_integer(args, "code", 0, 0, 255))
    return {"terminating": True}


def bounds(agent, args):
    agent.load_features().watch_bounds(bool(args.get("enabled", True)), bool(args.get("stop", True)))
    return {}


def nothing(agent, args):
    return {}


# -- in a stopped thread ----------------------------------------------------------------------------------------------
def _frame(stop, args):
    index = _integer(args, "frame", 0, 0)
    frames = stop.frames()
    if index >= len(frames):
        raise Refused("not_found", f"no frame {index}", f"0 to {len(frames) - 1}")
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
    limit = _integer(args, "limit", 200, 1, 1000)
    scope, wanted = _text(args, "scope", "local"), _text(args, "filter")
    pattern = (lambda name: breakpoints_match(wanted, name)) if wanted else None
    if scope == "global":
        skipped = (type(sys), type, type(variables), type(len))
        names = [(name, value, "global") for name, value in list(frame.f_globals.items())
                 if not (name.startswith("__") and name.endswith("__")) and not isinstance(value, skipped) and (pattern is None or pattern(name))]
    elif scope == "local":
        names = local_variables(frame, 100_000, pattern)
    else:
        raise Refused("bad_request", f"scope is {scope!r}", "local or global")
    shown = [{"name": name, "value": values.describe(value, 1), "kind": kind} for name, value, kind in names[:limit]]
    return {"variables": shown, "total": len(names), "truncated": len(names) > limit}


def stack(agent, stop, args):
    limit = _integer(args, "limit", 50, 1, 1000)
    frames = stop.frames()
    shown = [{"index": index, "location": stops.location(frame, line), "kind": stops.frame_kind(frame),
              "library": sources.is_library(frame.f_code.co_filename)} for index, (frame, line) in enumerate(frames[:limit])]
    return {"frames": shown, "total": len(frames)}


def location(agent, stop, args):
    around = _integer(args, "around", 3, 0, 100)
    frame, line = _frame(stop, args)
    where = stops.location(frame, line, stop.thread)
    top = _integer(args, "frame", 0) == 0
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
        raise Refused("bad_expression", f"{error.msg} (line {error.lineno}, column {error.offset})", (error.text or "").rstrip()[:200]) from None
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
    described = values.describe_exception(error, agent.locate)
    agent.trace.write("evaluation", {"step_type": "evaluation", "expression": values.clip(text, 4000), "error": described,
                                     "location": stop.event["location"]})
    return Refused("raised", f"{described['type']}: {described['message']}", "the program's state may have changed", exception=described)


def evaluation(agent, stop, args):
    frame, _ = _frame(stop, args)
    return run_code(agent, stop, _text(args, "expression", needed=True), frame, bool(args.get("stats", True)))


def set_value(agent, stop, args):
    frame, _ = _frame(stop, args)
    name, value = _text(args, "name", needed=True), _text(args, "value", needed=True)
    try:
        compile(f"{name} = 0", "<debugger>", "exec", dont_inherit=True)
        compile("(" + value + "\n)", "<debugger>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Refused("bad_expression", f"{name} = {value}: {error}", "expected NAME and an expression") from None
    return run_code(agent, stop, f"{name} = ({value}\n)\n{name}", frame)


def summary(agent, stop, args):
    frame, _ = _frame(stop, args)
    part = _text(args, "slice")
    text = "(" + _text(args, "expression", needed=True) + "\n)" + (f"[{part.strip().strip('[]')}]" if part else "")
    return run_code(agent, stop, text, frame)


def source_here(agent, stop, args):
    return source(agent, args, stop)


def is_first_instruction(frame, line):
    """Whether the frame is at the first arrival at its first line, not at a later turn of a loop there."""
    code = frame.f_code
    for begin, end, number in code.co_lines():
        if number == line and not (opcodes.PROLOGUE and all(op in opcodes.PROLOGUE for op in opcodes.operations(code.co_code, begin, end))):
            return begin <= frame.f_lasti < end and frame.f_lasti <= begin + 2 * 4
    return True


ANY = {"status": status, "threads": threads, "break": set_break, "breaks": list_breaks, "remove": remove, "clear": clear, "enable": enable,
       "pause": pause, "files": files, "count": count, "why": why, "checkpoints": checkpoints, "terminate": terminate, "bounds": bounds,
       "disconnect": nothing, "ping": nothing}
STOPPED = {"eval": evaluation, "set": set_value, "vars": variables, "stack": stack, "location": location, "summary": summary,
           "source": source_here}
RESUMING = ("continue", "next", "step", "finish", "until")
