"""The debugger inside the program: its connection, its own thread, and the threads that it holds."""

import _thread
import os
import sys
import time
from time import sleep as _sleep  # the program may put its own in its place

from . import breakpoints, engine, inspection, native, requests, sources, stops, values
from .arguments import Refused
from .arrivals import Arrivals, Step
from .channel import Channel, Trace
from .endings import Endings
from .last_place import LastPlace
from .table import Table

_OPTIONS = {
    "run": False,
    "on_disconnect": "continue",
    "stop_on_exception": "uncaught",
    "check_bounds": False,
    "count_calls": False,
    "breakpoints": (),
    "eval_timeout": 10.0,
    "trace_variables": True,
}


class Agent:
    def __init__(self, environment, options, began):
        self.twin = options.get("twin")  # of one of two programs in step: its side, and where they meet
        self.options = {**_OPTIONS, **{key: value for key, value in options.items() if key in _OPTIONS}}
        self.folder = folder = environment["LOCKSTEP_AGENT_SESSION"]
        # The next service takes over what has a record.
        later = (
            self.options["on_disconnect"] == "wait"
            and bool(folder)
            and os.path.exists(os.path.join(folder, "session.json"))
        )
        self.channel = Channel(environment["LOCKSTEP_AGENT_SOCKET"], later)
        if not self.channel.open:
            sys.stderr.write(
                "lockstep: the service is gone; the program waits for the next one, which lockstep debug status starts\n"
            )
        self.session_id = os.path.basename(folder or "")
        self.trace = Trace(folder, self.channel.dumps)
        self.last_place = LastPlace(folder, self.channel.dumps)
        self.token = environment["LOCKSTEP_AGENT_TOKEN"]
        self.began = began
        self.started = time.time()
        self.pid = os.getpid()
        self.own_thread = None
        self.served = _thread.allocate_lock()  # held while the own thread lives
        self.script = None
        self.stops = {}  # thread → Stop, the latest last
        self.steps = {}  # thread → Step
        self.pausing = {}  # thread → when
        self.stop_count = 0
        self.evaluations = 0
        self.calls_counted = False
        self.loaded, self.modules_seen = {}, 0  # file → what is told of it, in the order in which they were seen
        self.dead = False  # no one listens, or this is a forked child
        self.finished = False
        self.features = None  # data and checkpoint breakpoints, loaded when there are some
        self.lock = _thread.allocate_lock()  # who stands, who shall pause, and whether anyone may still stop
        self.table = Table(self)
        self.arrivals = Arrivals(self)
        self.engine = engine.make(self)
        self.endings = Endings(self)
        sys.modules["_lockstep_debugger"].on_package = lambda package: self.load_features().package_imported(package)

    def begin(self, code, namespace):
        """Called before the program's first line; returns its code with breakpoints."""
        self.script = sources.script = code.co_filename
        about = {
            "argv": [str(one) for one in sys.argv],
            "cwd": os.getcwd(),
            "python": sys.version.split()[0],
            "pid": self.pid,
        }
        self.hello = {
            "protocol": 1,
            "token": self.token,
            "executable": sys.executable,
            "engine": self.engine.name,
            "native": native.module is not None,
            "native_reason": native.reason,
            "script": code.co_filename,
            "started_us": int((time.perf_counter() - self.began) * 1e6),
            **about,
        }
        self.channel.event("hello", self.hello)
        self.trace.write("start", {"session_id": self.session_id, "script_path": code.co_filename, **about})
        if self.twin is not None:
            self.load_features().open_gate(self.twin)
        if self.options["check_bounds"]:
            self.load_features().watch_bounds(True, True)
        if self.options["count_calls"]:
            from . import calls

            calls.count(self, True)
        self.engine.keep_scan(bool(self.options["breakpoints"]))
        for args in self.options["breakpoints"]:
            try:
                self.table.add(args if isinstance(args, dict) else {"where": str(args)})
            except Refused as error:
                self.output("warning", f"breakpoint {args}: {error.message}")
        self.engine.keep_scan(False)
        self.own_thread = 0
        self.served.acquire()
        _thread.start_new_thread(self._serve, ())
        if not self.options["run"]:
            frame = stops.EntryFrame(code, namespace, breakpoints.first_line(code))
            self.steps[_thread.get_ident()] = Step("start")
            self.engine.enter()
            try:
                self.stop(frame, "entry", description="before the first line")
            finally:
                self.engine.leave()
        return self.engine.prepare(code)

    @property
    def current(self):
        """The thread that stopped last and still stands; None while all run."""
        return next((ident for ident, stop in reversed(list(self.stops.items())) if not stop.going), None)

    def load_features(self):
        if self.features is None:
            from .features import Features

            self.features = Features(self)
        return self.features

    def output(self, category, text, **more):
        message = {"category": category, "text": text, **more}
        self.channel.event("output", message)
        self.trace.write("output", message)

    def print_line(self, text):
        """Among the lines that the program prints, where `debug log` reads them, wherever its own output goes meanwhile."""
        _flush_streams()
        try:  # opened each time: a program may close descriptors that it does not know
            file = os.open(os.path.join(self.folder, "output.log"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:  # the trace has it
            return
        try:
            os.write(file, (" ".join(text.splitlines()) + "\n").encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            os.close(file)

    # -- the agent's own thread -----------------------------------------------------------------------------------------
    def _serve(self):
        """Waits for requests without the interpreter lock."""
        self.own_thread = _thread.get_ident()
        self.engine.enter()
        next_look = 0.0
        try:
            while True:
                waiting = self._must_watch()
                if self.channel.open:
                    for message in self.channel.receive(0.02 if waiting else 1.0) or ():
                        requests.dispatch(self, message)
                elif self.waits_for_a_service():
                    _sleep(0.02 if waiting else 0.1)
                    self._call_again()
                else:
                    break
                now = time.monotonic()
                if waiting:
                    self._watch(now)
                if now >= next_look:
                    next_look = now + 1.0
                    if not self.stops:
                        self.last_place.note()
                if self.dead:
                    break
        except Exception as error:
            try:
                sys.stderr.write(f"lockstep: the debugger steps aside: {type(error).__name__}: {error}\n")
            except Exception:
                pass
        try:
            self.endings.lost()
        finally:
            self.served.release()

    def waits_for_a_service(self):
        """Whether a lost service may be followed by another: not once its folder is gone, where the other would listen."""
        return (
            self.options["on_disconnect"] == "wait"
            and not (self.dead or self.finished or self.endings.told_to_leave)
            and os.path.isdir(self.folder)
        )

    def _call_again(self):
        """Calls the service that has taken the session over; tells it in one message what stands."""
        path = os.path.join(self.folder, "agent.sock")
        try:
            path = os.readlink(path)  # where the folder's own name is too long for a socket's
        except OSError:
            pass
        with self.lock:  # a thread that stops now is told in `hello`, or tells of itself once that has gone out
            standing = [stop.event for stop in self.stops.values() if not stop.going]
            self.channel.call_again(path, {**self.hello, "again": True, "stops": self.stop_count, "stopped": standing})

    def _must_watch(self):
        return bool(self.pausing or requests.deadlines) or any(step.mode for step in list(self.steps.values()))

    def _watch(self, now):
        """While a step runs: a tracer of the program's own must not carry it away; evaluations must not take for ever."""
        self.engine.rearm()
        requests.check_deadlines(self, now)
        for ident, (since, told) in list(self.pausing.items()):
            frame = sys._current_frames().get(ident)
            if frame is None:
                self._end_pause(ident)
            elif now - since > 1.0 and not told:
                with self.lock:
                    if ident not in self.pausing:
                        continue  # it has stopped
                    self.pausing[ident] = (since, True)
                self.output(
                    "warning", "the thread sits in C code: it stops when that returns", location=stops.location(frame)
                )

    def _end_pause(self, ident):
        """The thread ended before it came to a line: what was switched on for it goes off."""
        with self.lock:
            self.steps.pop(ident, None)
            if self.pausing.pop(ident, None) is not None:
                self.engine.pause_over(ident)
        self.output("warning", "the thread ended before it could be paused")

    # -- stopping -------------------------------------------------------------------------------------------------------
    def stop(
        self,
        frame,
        reason,
        *,
        frames=None,
        not_run_yet=True,
        breakpoints=(),
        description="",
        line=None,
        extra=None,
        **more,
    ):
        """Holds this thread here until it is told to go on. SystemExit when the program shall end."""
        if not self._may_stop():
            return
        ident = _thread.get_ident()
        self.engine.note_stop()
        _flush_streams()
        if stops.looks_for_a_module(frame):  # our own thread could load nothing now; this one can
            from . import condition_steps, conditions, evaluate, features, modules, why  # noqa: F401
        stop = stops.Stop(ident, frame, reason, frames)
        stop.not_run_yet, stop.extra = not_run_yet, extra
        step = self.steps.get(ident)
        command = step.command if step is not None else "continue"
        where = stops.location(frame, line, ident)
        stop.event = {
            "reason": reason,
            "thread": stops.describe_thread(self, ident, "stopped", where),
            "location": where,
            "not_run_yet": not_run_yet,
            "breakpoints": list(breakpoints),
            "description": description,
            "command": command,
            "modules": len(sys.modules),
            **more,
        }
        with (
            self.lock
        ):  # whoever lets the stopped threads go has seen this one, or is seen here; stops are told in their order
            if not self._may_stop():
                return
            self.stop_count += 1
            stop.event["count"] = self.stop_count
            self.stops[ident] = stop
            if self.pausing.pop(ident, None) is not None:
                self.engine.pause_over(ident)
            self.steps.pop(ident, None)
            self.engine.attach(ident, 0, None, 0)
            self.channel.event("stopped", stop.event)
        try:
            self._trace_stop(stop, command, more)
            requests.serve_stopped(self, stop)
        finally:
            with self.lock:
                self.stops.pop(ident, None)
                status = self.endings.status
        if status is not None:
            raise SystemExit(status)

    def _may_stop(self):
        return not self.dead and self.endings.status is None and (self.channel.open or self.waits_for_a_service())

    def _trace_stop(self, stop, command, more):
        where = stop.event["location"]
        around = stops.code_around(where["file"], where["line"], 3)
        at = where["line"] - around["first"]
        context = {
            "before": around["lines"][:at],
            "current": around["lines"][at] if at < len(around["lines"]) else "",
            "after": around["lines"][at + 1 :],
        }
        line = {
            "step": stop.event["count"],
            "step_type": command,
            "reason": stop.reason,
            "location": where,
            "code_context": context,
            "call_stack": [stops.location(frame, number) for frame, number in stop.frames()[:20]],
            "breakpoints": stop.event["breakpoints"],
        }
        for name in ("exception", "checkpoint", "data", "bounds"):
            if name in more:
                line[name] = more[name]
        if self.options["trace_variables"]:
            try:
                found = inspection.local_variables(stop.frames()[0][0], 50)
                line["variables"] = {name: values.describe(value, 1) for name, value, _ in found}
            except Exception:
                pass
        self.trace.write("stop", line)


def _flush_streams():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # closed, None, or a thing of the program's own
            pass
