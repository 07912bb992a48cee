"""What the service may ask at any time. One function an operation."""

import os
import sys
import time
from time import sleep  # the program may put its own in its place

from . import breakpoints, calls, completion, engine, inspection, native, picture, sources, stops
from .arguments import Refused, integer, text
from .arrivals import Step
from .globs import fits


def threads(agent, args):
    found = []
    for ident, frame in sys._current_frames().items():
        if ident == agent.own_thread:
            continue
        about = stops.describe_thread(agent, ident)
        visible = stops.visible(frame)
        if "location" not in about and visible is not None:
            about["location"] = stops.location(visible)
        found.append(about)
    return {"threads": found[:200]}


def status(agent, args):
    current = agent.current
    stop = agent.stops.get(current)
    return {
        "state": "exited" if agent.finished else "stopped" if stop is not None else "running",
        **threads(agent, args),
        "current": current,
        "stop": stop.event if stop is not None else None,
        "engine": agent.engine.name,
        "native": native.module is not None,
        "native_reason": native.reason,
        "python": sys.version.split()[0],
        "pid": agent.pid,
        "uptime": time.time() - agent.started,
        "breakpoints": len(agent.table),
        "evaluations": agent.evaluations,
        "script": agent.script,
        "pausing": list(agent.pausing),
    }


def set_break(agent, args):
    return {"breakpoint": agent.table.add(args).describe(agent.engine)}


def list_breaks(agent, args):
    number = integer(args, "id")
    if number is not None:
        return {"breakpoints": [_breakpoint(agent, number).describe(agent.engine)]}
    every = list(agent.table.values())
    return {"breakpoints": [one.describe(agent.engine) for one in every[:1000]], "total": len(every)}


def _breakpoint(agent, number):
    one = agent.table.get(number)
    if one is None:
        known = ", ".join(str(id_) for id_ in list(agent.table)[:50])
        raise Refused("not_found", f"no breakpoint {number}", f"one of {known}" if known else "break, to set one")
    return one


def _named(agent, args):
    """Breakpoints that `id`, `ids`, `where` or `file` and `line` mean."""
    if "ids" in args:
        if not isinstance(args["ids"], list):
            raise Refused("bad_request", "ids is no list")
        return [_breakpoint(agent, number) for number in args["ids"]]
    number = integer(args, "id")
    if number is not None:
        return [_breakpoint(agent, number)]
    where, file, line = text(args, "where"), text(args, "file"), integer(args, "line")
    found = []
    if where is not None and file is None:
        found = [one for one in agent.table.values() if one.where == where]
        if not found:
            head, colon, tail = where.rpartition(":")
            if colon and tail.isdigit():
                file, line = head, int(tail)
    if not found and file is not None and line is not None:
        path = sources.canonical(breakpoints.find_file(file)[0])
        found = [
            one
            for one in agent.table.values()
            if one.kind != "data"
            and line in (one.line, one.requested_line)
            and (one.path == path or any(sources.canonical(place["file"]) == path for place in one.places))
        ]
    if not found:
        raise Refused("not_found", "no such breakpoint", "breaks")
    return found


def remove(agent, args):
    found = _named(agent, args)
    for one in found:
        agent.table.remove(one)
    return {"removed": [one.id for one in found]}


def clear(agent, args):
    found = list(agent.table.values())
    for one in found:
        agent.table.remove(one)
    return {"removed": [one.id for one in found]}


def enable(agent, args):
    one = _breakpoint(agent, integer(args, "id"))
    agent.table.enable(one, bool(args.get("enabled", True)))
    return {"breakpoint": one.describe(agent.engine)}


def pause(agent, args):
    ident = integer(args, "thread", stops.main_thread())
    if ident not in sys._current_frames() or ident == agent.own_thread:
        raise Refused("not_found", f"no thread {ident}", "threads")
    until = time.monotonic() + 1.0
    while (stop := agent.stops.get(ident)) is not None and stop.going and time.monotonic() < until:
        sleep(0.0005)  # it has been told to go on and prepares that: what we set now it would undo
    with agent.lock:
        if ident in agent.stops:
            raise Refused("bad_request", "this thread is stopped already", "status")
        agent.steps[ident] = Step("pause")
        agent.pausing[ident] = (time.monotonic(), False)
        agent.engine.attach(ident, engine.PAUSE, None, 0)
    return {"pausing": [ident]}


def source(agent, args, stop=None):
    file, line = text(args, "file"), integer(args, "line", None, 1)
    around = integer(args, "around", 10, 0, 200)
    if file is None:
        if stop is None:
            raise Refused("bad_request", "no file", "a file, or stop first")
        where = stop.event["location"]
        file, line = where["file"], line or where["line"]
    path, found = breakpoints.find_file(file)
    lines = sources.lines_of(path)
    if not lines:
        raise Refused("not_found", f"no source of {file}", "an absolute path")
    if line is None:
        first, last = 1, min(len(lines), 400)
    else:
        first, last = max(1, line - around), min(len(lines), line + around)
    canonical = sources.canonical(path)
    executable = sources.executable_lines(path)
    return {
        "file": sources.absolute(path),
        "first": first,
        "lines": [text[:400] for text in lines[first - 1 : last]],
        "total": len(lines),
        "executable": sorted(one for one in executable if first <= one <= last),
        "breakpoints": sorted({one.line for one in agent.table.values() if one.path == canonical and one.line}),
    }


def _source_here(agent, stop, args):
    return source(agent, args, stop)


def files(agent, args):
    limit = integer(args, "limit", 200, 1, 5000)
    wanted = text(args, "filter")
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
    counted = calls.counts() if agent.calls_counted else {}
    found = []
    for path, (file, name) in modules.items():
        if sources.is_machinery(path) or (not everything and sources.is_standard(file)):
            continue
        if wanted and not fits(wanted, file):
            continue
        total, run = counts.get(path, [0, 0])
        found.append(
            {
                "file": file,
                "module": name,
                "functions_run": run,
                "functions": max(total, run),
                "library": sources.is_library(file),
            }
        )
        if agent.calls_counted:
            found[-1]["calls"] = counted.get(path, 0)
    found.sort(key=lambda one: (-one.get("calls", 0), -one["functions_run"]))
    return {
        "files": found[:limit],
        "total": len(found),
        "truncated": len(found) > limit,
        "calls_counted": agent.calls_counted,
    }


def files_by_name(most):
    """What ran, without how much of it: cheap enough for the end of every program. The program's own files come first."""
    own, libraries = [], []
    for file, name in sources.loaded_files().items():
        if not sources.is_machinery(file) and not sources.is_standard(file):
            library = sources.is_library(file)
            (libraries if library else own).append({"file": file, "module": name, "library": library})
    found = own + libraries
    return {"files": found[:most], "total": len(found), "truncated": len(found) > most, "calls_counted": False}


def loaded(agent, args):
    """Source files in the order in which they were loaded, after the first `after` of them: who asks again is told only of new ones."""
    after, limit = integer(args, "after", 0, 0), integer(args, "limit", 1000, 1, 5000)
    known = agent.loaded
    if len(sys.modules) != agent.modules_seen:
        agent.modules_seen = len(sys.modules)
        for file, name in sources.loaded_files().items():
            if file not in known and not sources.is_machinery(file):
                known[file] = {"file": sources.absolute(file), "module": name, "library": sources.is_library(file)}
    if agent.script and agent.script not in known:
        known[agent.script] = {"file": sources.absolute(agent.script), "module": "__main__", "library": False}
    if after >= len(known):
        return {"files": [], "next": len(known), "total": len(known)}
    found = list(known.values())[after : after + limit]
    return {"files": found, "next": after + len(found), "total": len(known)}


def exceptions(agent, args):
    """Whether an exception that nothing catches stops the program, from now on."""
    wanted = text(args, "stop", needed=True)
    if wanted not in ("uncaught", "never"):
        raise Refused("bad_request", f"stop is {wanted!r}", "expected uncaught or never")
    agent.options["stop_on_exception"] = wanted
    return {"stop": wanted}


def why(agent, args):
    from . import why as reasons

    if args.get("id") is not None:
        return reasons.explain(agent, _breakpoint(agent, integer(args, "id")))
    where = text(args, "where", needed=True)
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
        agent.trace.write(
            "exit", {"how": "terminated", "code": 1, "end_time": time.time(), "total_steps": agent.stop_count}
        )
        agent.channel.event("exited", {"how": "terminated", "code": 1})
        os._exit(1)
    integer(args, "code", 0, 0, 255)
    return {"terminating": True}  # the program ends once this answer is out: it takes the connection along


def bounds(agent, args):
    agent.load_features().watch_bounds(bool(args.get("enabled", True)), bool(args.get("stop", True)))
    return {}


def gate(agent, args):
    """How one side of a twin session goes on: with the other, or alone."""
    one = agent.features.gate if agent.features is not None else None
    if one is None:
        raise Refused("unsupported", "the program is no side of a twin session", "debug twin start")
    mode, place, name = text(args, "mode"), text(args, "place"), text(args, "substitute")
    if mode is not None and mode not in ("off", "divergence", "next", "meet", "hold"):
        raise Refused("bad_request", f"mode is {mode!r}", "expected off, divergence, next, meet or hold")
    if mode == "hold":
        one.hold = True
    elif mode is not None:
        one.mode, one.place, one.hold = mode, place or None, False
        one.call = integer(args, "call", 0, 0, 1 << 31) if "call" in args else None
        one.turn = integer(args, "turn", one.turn, 0, 1 << 62)
    if name:
        one.substituted.append(name)
    one.replace_once = bool(args.get("replace", one.replace_once))
    return one.status()


def nothing(agent, args):
    return {}


ANY = {
    "status": status,
    "threads": threads,
    "break": set_break,
    "breaks": list_breaks,
    "remove": remove,
    "clear": clear,
    "enable": enable,
    "pause": pause,
    "files": files,
    "count": calls.operation,
    "why": why,
    "checkpoints": checkpoints,
    "terminate": terminate,
    "bounds": bounds,
    "loaded": loaded,
    "gate": gate,
    "exceptions": exceptions,
    "disconnect": nothing,
    "ping": nothing,
}
STOPPED = {
    "eval": inspection.evaluation,
    "set": inspection.set_value,
    "vars": inspection.variables,
    "stack": inspection.stack,
    "location": inspection.location,
    "summary": inspection.summary,
    "source": _source_here,
    "complete": completion.complete,
    "picture": picture.picture,
}
