"""Requests of the service: answered at once in the agent's thread, or handed to the stopped thread that they are about."""

import _thread
import time

from . import engine, native, operations, stops, values
from .arguments import Refused, integer
from .arrivals import Step

RESUMING = ("continue", "next", "step", "finish", "until")
deadlines = {}  # id of a running evaluation → _Running
_lock = _thread.allocate_lock()  # an evaluation that has ended is not interrupted any more


class _Running:
    __slots__ = ("thread", "request", "deadline", "raised", "answered")

    def __init__(self, thread, request, deadline):
        self.thread, self.request, self.deadline, self.raised, self.answered = thread, request, deadline, False, False


def dispatch(agent, message):
    """In the agent's thread: answers at once, or hands the request to the stopped thread."""
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        _fail(
            agent,
            message.get("id") if isinstance(message, dict) else None,
            Refused("bad_request", "no op", "expected {id, op, args}"),
        )
        return
    number, name, args = message.get("id"), message["op"], message.get("args") or {}
    try:
        if not isinstance(args, dict):
            raise Refused("bad_request", "args is no object")
        if name in operations.ANY:
            agent.channel.send({"id": number, "ok": True, "result": operations.ANY[name](agent, args)})
            if name == "terminate":
                agent.endings.end(args.get("code", 0))
        elif name == "source" and ("file" in args or not agent.stops):
            agent.channel.send({"id": number, "ok": True, "result": operations.source(agent, args)})
        elif name in operations.STOPPED or name in RESUMING:
            _to_stopped(agent, number, name, args)
        else:
            import_hint = ", ".join(sorted((*operations.ANY, *operations.STOPPED, *RESUMING)))
            raise Refused("bad_request", f"no operation {name!r}", f"one of {import_hint}")
    except Refused as error:
        _fail(agent, number, error)
    except Exception as error:
        _fail(
            agent,
            number,
            Refused(
                "internal",
                f"{name}: {type(error).__name__}: {error}",
                "status, or restart; internal error of the debugger, please report it",
            ),
        )
    if name == "disconnect":
        agent.endings.told_to_leave = True
        agent.dead = False
        agent.channel.open = False


def _fail(agent, number, error):
    agent.channel.send(
        {
            "id": number,
            "ok": False,
            "error": {"code": error.code, "message": values.clip(error.message), "hint": error.hint, **error.more},
        }
    )


def _to_stopped(agent, number, name, args):
    ident = integer(args, "thread")
    with agent.lock:
        if name == "continue" and ident is None:
            chosen = [stop for stop in agent.stops.values() if not stop.going]
        else:
            stop = agent.stops.get(agent.current if ident is None else ident)
            chosen = [stop] if stop is not None and not stop.going else []
    if not chosen:
        if ident is not None:
            raise Refused("not_stopped", f"thread {ident} is not stopped", "threads, pause")
        raise Refused("not_stopped", "the program is running", "pause, or wait for a stop")
    if name in RESUMING:
        for stop in chosen:
            if stop.busy is not None:
                raise Refused("busy", "an evaluation is still running in this thread", "wait, or terminate")
        plan = _plan(agent, name, args, chosen[0])
        for stop in chosen:  # now, so that this thread watches over the step from its beginning, and nothing more is asked of one that goes
            agent.steps[stop.thread] = plan
            stop.going = True
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
        raise Refused("bad_request", "timeout is no number of seconds", "expected 0 to 3600")
    if name in ("eval", "set", "vars", "summary", "complete", "picture"):
        deadlines[id(stop)] = _Running(stop.thread, number, time.monotonic() + seconds)
    stop.give(("work", number, name, args))


def _plan(agent, name, args, stop):
    count = integer(args, "count", 1, 1, 1_000_000)
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
    line = integer(args, "line", None, 1)
    return Step("until", engine.UNTIL, 1, True, line - 1 if line is not None else stop.event["location"]["line"])


def check_deadlines(agent, now):
    for key, running in list(deadlines.items()):
        if now < running.deadline:
            continue
        with _lock:
            if deadlines.get(key) is not running:
                continue  # it has ended meanwhile
            if not running.raised:
                running.raised = True
                running.deadline = now + 0.5
                if native.module is not None:
                    native.module.raise_in(running.thread, values.Interrupted)
                continue
            running.answered = True
            del deadlines[key]
        _fail(
            agent,
            running.request,
            Refused(
                "timeout",
                "the evaluation takes too long and sits in C code",
                "it goes on; ask again later, or terminate",
                still_running=True,
            ),
        )


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
        running = deadlines.get(id(stop))
        try:
            answer = _answer(agent, stop, name, args)
            _settle(stop, running)
        except values.Interrupted:  # wherever it came: once only
            _settle(stop, running)
            answer = {
                "ok": False,
                "error": {
                    "code": "timeout",
                    "message": "the evaluation took too long and was interrupted",
                    "hint": "a larger timeout",
                },
            }
        stop.busy = None
        if running is None or not running.answered:
            agent.channel.send({"id": number, **answer})


def _answer(agent, stop, name, args):
    try:
        return {"ok": True, "result": operations.STOPPED[name](agent, stop, args)}
    except Refused as error:
        return {
            "ok": False,
            "error": {"code": error.code, "message": values.clip(error.message), "hint": error.hint, **error.more},
        }
    except Exception as error:
        return {
            "ok": False,
            "error": {
                "code": "internal",
                "message": f"{name}: {type(error).__name__}: {error}",
                "hint": "status, or restart; internal error of the debugger, please report it",
            },
        }


def _settle(stop, running):
    """From here on nothing interrupts this thread for the evaluation that has ended: it would hit the program."""
    with _lock:
        if deadlines.get(id(stop)) is running:
            deadlines.pop(id(stop), None)
        if running is not None and running.raised and native.module is not None:
            native.module.raise_in(stop.thread, None)


def _resume(agent, stop, step):
    ident = stop.thread
    agent.trace.write("resume", {"step_type": step.command if step is not None else "continue", "thread": ident})
    agent.channel.event(
        "continued",
        {"thread": stops.describe_thread(agent, ident, "running"), "command": step.command if step else "continue"},
    )
    if step is not None and step.mode:
        frame = stop.frame
        if isinstance(frame, stops.EntryFrame):
            mode = engine.STEP if step.mode in (engine.STEP, engine.NEXT) else step.mode
            agent.engine.attach(
                ident, engine.NEXT if step.mode == engine.NEXT else mode, None, step.line, frame.f_code.co_filename
            )
        elif stop.reason != "exception":
            agent.engine.attach(ident, step.mode, stops.visible(frame), step.line)
