"""The debugger inside the program: takes requests, decides at breakpoints, stops threads and lets them go."""

import _thread
import atexit
import os
import sys
import time

from . import breakpoints, engine, native, operations, sources, stops, values
from .breakpoints import Refused
from .channel import Channel, Trace

_OPTIONS = {"run": False, "on_disconnect": "continue", "stop_on_exception": "uncaught", "check_bounds": False, "count_calls": False, "breakpoints": (),
            "eval_timeout": 10.0, "trace_variables": True}


class Step:
    """What a thread that goes on shall do next."""

    __slots__ = ("command", "mode", "remaining", "library", "line")

    def __init__(self, command, mode=0, remaining=1, library=True, line=0):
        self.command, self.mode, self.remaining, self.library, self.line = command, mode, remaining, library, line


class Agent:
    def __init__(self, environment, options, began):
        self.options = {**_OPTIONS, **{key: value for key, value in options.items() if key in _OPTIONS}}
        self.channel = Channel(environment["LOCKSTEP_AGENT_SOCKET"])
        self.folder = environment["LOCKSTEP_AGENT_SESSION"]
        self.trace = Trace(self.folder, self.channel.dumps)
        self.token = environment["LOCKSTEP_AGENT_TOKEN"]
        self.began = began
        self.started = time.time()
        self.pid = os.getpid()
        self.own_thread = None
        self.table = {}  # id → Breakpoint
        self._numbers = 0
        self.stops = {}  # thread → Stop
        self.current = None
        self.last_stop = None
        self.steps = {}  # thread → Step
        self.skip_once = {}  # thread → (frame, line): a step has stopped there, its breakpoints count as hit
        self.pausing = {}  # thread → when
        self.stop_count = 0
        self.evaluations = 0
        self.ending = None  # exit status, once the program shall end
        self.exit = None
        self.calls_counted = False
        self.dead = False
        self.script = None
        self.finished = False
        self._modules = None
        self.features = None  # data and checkpoint breakpoints, loaded when there are some
        self._names = {}
        self._last_file = None
        self.lock = _thread.allocate_lock()
        if native.module is not None:
            native.module.set_own_folder(sources.own_folder())
        self.engine = engine.make(self)
        sys.modules["_lockstep_debugger"].on_package = lambda package: self.load_features().package_imported(package)
        if native.module is not None:
            self._set_callbacks()
        self._enable_crash_report()
        if sys.version_info >= (3, 12):
            _quiet_fork_warning()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._at_exit)

    def _set_callbacks(self):
        pending = any(one.kind in ("line", "function", "text") for one in self.table.values())
        on_code = getattr(self.engine, "new_code", None) if pending else None
        on_start = getattr(self.engine, "on_start", None) if pending else None
        names = {os.path.basename(one.path or one.file) if one.path or one.file else None for one in self.code_breakpoints()}
        native.module.set_callbacks(self.on_point, self.on_step, on_code, on_start, None if None in names else names)

    def _enable_crash_report(self):
        if not self.folder:
            return
        try:
            import faulthandler

            if faulthandler.is_enabled():
                return
            self._crash = os.open(os.path.join(self.folder, "crash.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            faulthandler.enable(self._crash)
        except (ImportError, OSError):
            pass

    # -- the program's life ---------------------------------------------------------------------------------------------
    def begin(self, code, namespace):
        """Called before the program's first line; returns its code with breakpoints."""
        self.script = sources.script = code.co_filename
        self.channel.event("hello", {
            "protocol": 1, "token": self.token, "pid": self.pid, "python": sys.version.split()[0], "executable": sys.executable,
            "engine": self.engine.name, "native": native.module is not None, "native_reason": native.reason,
            "argv": [str(one) for one in sys.argv], "cwd": os.getcwd(), "script": code.co_filename,
            "started_us": int((time.perf_counter() - self.began) * 1e6)})
        self.trace.write("start", {"session_id": os.path.basename(self.folder or ""), "script_path": code.co_filename,
                                   "argv": [str(one) for one in sys.argv], "cwd": os.getcwd(), "python": sys.version.split()[0],
                                   "pid": self.pid})
        if self.options["check_bounds"]:
            self.load_features().watch_bounds(True, True)
        if self.options["count_calls"]:
            from . import calls

            calls.count(self, True)
        for args in self.options["breakpoints"]:
            try:
                self.add_breakpoint(args if isinstance(args, dict) else {"where": str(args)})
            except Refused as error:
                self.output("warning", f"breakpoint {args}: {error.message}")
        self.own_thread = 0
        _thread.start_new_thread(self._serve, ())
        if not self.options["run"]:
            first = breakpoints.first_line(code)
            frame = stops.EntryFrame(code, namespace, first)
            self.steps[_thread.get_ident()] = Step("start")
            self._enter()
            try:
                self.stop(frame, "entry", description="before the first line")
            finally:
                self._leave()
        code = self.engine.prepare(code)
        return code

    def _serve(self):
        """The agent's own thread: waits for requests without the interpreter lock."""
        self.own_thread = _thread.get_ident()
        self._enter()
        next_look = 0.0
        try:
            while True:
                waiting = self.steps_running() or operations.deadlines
                messages = self.channel.receive(0.02 if waiting else 1.0)
                if messages is None or not self.channel.open:
                    break
                for message in messages:
                    operations.dispatch(self, message)
                now = time.monotonic()
                if waiting:
                    self._watch(now)
                if now >= next_look:
                    next_look = now + 1.0
                    self._note_place()
                if self.dead:
                    break
        except Exception as error:
            self._step_aside(error)
        self._lost()

    def steps_running(self):
        return any(step.mode for step in list(self.steps.values())) or bool(self.pausing)

    def _watch(self, now):
        """While a step runs: a tracer of the program's own must not carry it away; evaluations must not take for ever."""
        if native.module is not None:
            native.module.rearm()
        operations.check_deadlines(self, now)
        for ident, (since, told) in list(self.pausing.items()):
            if now - since > 1.0 and not told:
                self.pausing[ident] = (since, True)
                frame = sys._current_frames().get(ident)
                where = stops.location(frame) if frame is not None else None
                self.output("warning", "the thread sits in C code: it stops when that returns", location=where)

    def _note_place(self):
        if not self.folder or self.stops:
            return
        frame = sys._current_frames().get(stops.main_thread())
        self.write_last(frame)

    def write_last(self, frame):
        if not self.folder:
            return
        stack = []
        while frame is not None and len(stack) < 10:
            if not sources.is_machinery(frame.f_code.co_filename):
                stack.append({"file": sources.absolute(frame.f_code.co_filename), "line": frame.f_lineno or 0,
                              "function": sources.qualified_name(frame.f_code)})
            frame = frame.f_back
        if not stack or stack == getattr(self, "_last_written", None):
            return
        self._last_written = stack
        data = self.channel.dumps({"time": time.time(), "location": stack[0], "stack": stack})
        try:
            if self._last_file is None:
                self._last_file = os.open(os.path.join(self.folder, "last.json"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._last_file, data, 0)
            os.ftruncate(self._last_file, len(data))
        except OSError:
            pass

    def _step_aside(self, error):
        try:
            sys.stderr.write(f"lockstep: the debugger steps aside: {type(error).__name__}: {error}\n")
        except Exception:
            pass

    def _lost(self):
        """No one listens any more: go on, or end, as configured."""
        if self.dead or self.finished:
            return
        self.dead = True
        if native.module is not None:
            native.module.set_off(True)
        self.engine_off()
        if self.options["on_disconnect"] == "terminate" and not getattr(self, "_told_to_leave", False):
            self.end(1)
        for stop in list(self.stops.values()):
            stop.give(None)

    def engine_off(self):
        for one in list(self.table.values()):
            self.engine.forget_breakpoint(one)
        if native.module is not None:
            native.module.detach_all()

    def end(self, status):
        """SystemExit in the main thread and in every stopped one."""
        self.ending = status
        for stop in list(self.stops.values()):
            stop.give(None)
        main = stops.main_thread()
        if main not in self.stops:
            if native.module is not None:
                native.module.raise_in(main, SystemExit)
            else:
                _thread.interrupt_main()

    def _forked(self):
        self.dead = True
        if native.module is not None:
            native.module.set_off(True)
            native.module.detach_all()
        self.channel.close()
        self.trace.close()
        self.finished = True

    def note_system_exit(self, error):
        code = error.code
        status = code if isinstance(code, int) else 0 if code is None else 1
        self.note_exit("terminated" if self.ending is not None else "sys_exit", status, error)

    def note_exit(self, how, status, error):
        self.exit = {"how": how, "code": status}
        if error is not None:
            described = values.describe_exception(error, self.locate)
            if how != "terminated":
                self.exit["exception"] = described
            if described["location"] is not None:
                self.exit["location"] = described["location"]

    def locate(self, traceback):
        found = None
        while traceback is not None:
            if not sources.is_machinery(traceback.tb_frame.f_code.co_filename):
                found = (traceback.tb_frame, traceback.tb_lineno)
            traceback = traceback.tb_next
        return stops.location(*found) if found is not None else None

    def _at_exit(self):
        if self.finished or self.pid != os.getpid():
            return
        self.finished = True
        self._enter()
        if native.module is not None:
            native.module.set_off(True)
        gone = self.exit or {"how": "finished", "code": 0}
        from . import why

        table = [one.describe(self.engine) for one in self.table.values()]
        reasons = {str(one.id): why.explain(self, one, ended=gone) for one in list(self.table.values())[:200] if not one.hit_count or one.state != "done"}
        final = {"breakpoints": table, "why": reasons, "checkpoints": self.features.checkpoint_list() if self.features else []}
        self.trace.write("exit", {**gone, "end_time": time.time(), "total_steps": self.stop_count})
        if self.calls_counted:
            final.update(operations.files(self, {"limit": 500}))
        if not self.dead:
            self.channel.event("final", final)
            self.channel.event("exited", gone)
        self.channel.close()
        self.trace.close()

    def post_mortem(self, error):
        """An exception that nothing caught: its frames are still there to look at."""
        if self.options["stop_on_exception"] != "uncaught" or self.dead or self.ending is not None:
            return
        frames, step = [], error.__traceback__
        while step is not None:
            if not sources.is_machinery(step.tb_frame.f_code.co_filename):
                frames.append((step.tb_frame, step.tb_lineno))
            step = step.tb_next
        if not frames:
            return
        frames.reverse()
        self._enter()
        try:
            self.stop(frames[0][0], "exception", frames=frames, not_run_yet=False, line=frames[0][1],
                      description=f"{type(error).__name__} was not caught: {values.clip(str(error), 200)}",
                      exception=values.describe_exception(error, self.locate))
        except SystemExit:
            pass
        finally:
            self._leave()

    # -- guards ---------------------------------------------------------------------------------------------------------
    def _enter(self):
        if native.module is not None:
            native.module.enter()
        else:
            self.engine.enter()

    def _leave(self):
        if native.module is not None:
            native.module.leave()
        else:
            self.engine.leave()

    # -- breakpoints ----------------------------------------------------------------------------------------------------
    def code_breakpoints(self):
        return [one for one in self.table.values() if one.kind in ("line", "function", "text") and one.state not in ("invalid", "done")]

    def is_interesting(self, code):
        """Whether code about to run may hold a breakpoint: a cheap look that most imports end with."""
        filename = code.co_filename
        for one in self.code_breakpoints():
            if one.path is not None:
                if sources.is_same(filename, one.path):
                    return True
            elif one.kind == "function" and one.file is None:
                last = one.function.rpartition(".")[2]
                if native.module.has_name(code, last) if native.module is not None else True:
                    return True
            elif one.kind == "text" and one.file is None:
                if not sources.is_library(filename) and not filename.startswith("<"):
                    return True
            elif breakpoints.matches_file(one, filename):
                one.path, one.file = sources.canonical(filename), sources.absolute(filename)
                return True
        return False

    def module_of(self, filename):
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == filename:
                return name
        return None

    def add_breakpoint(self, args):
        if len(self.table) >= 10_000:
            raise Refused("too_large", "there are 10,000 breakpoints", "remove some")
        self._numbers += 1
        one = breakpoints.parse(self._numbers, args)
        if one.kind == "line":
            breakpoints.resolve_line(one)
        elif one.file is not None:
            path, found = breakpoints.find_file(one.file)
            if found:
                one.file, one.path = sources.absolute(path), sources.canonical(path)
        self.table[one.id] = one
        if one.kind in ("data", "checkpoint"):
            self.load_features().add(one)
            one.state = "verified" if one.kind == "checkpoint" else one.state
            one.how = "hooked"
        elif one.state != "invalid" and one.enabled:
            self.engine.update(one)
            self._set_callbacks_if_native()
        if one.state == "pending" and not one.message and one.kind in ("line", "function", "text"):
            one.message = "waits until the code is loaded"
        self.trace.write("breakpoint", {"change": "set", "breakpoint": one.describe(self.engine)})
        return one

    def _set_callbacks_if_native(self):
        if native.module is not None:
            self._set_callbacks()

    def verified(self, one, point):
        if one.state == "pending":
            one.state = "verified"
            if one.message.startswith(("waits", "no file")):
                one.message = ""
            if self.own_thread is not None and self.own_thread != _thread.get_ident():
                self.channel.event("breakpoint", {"change": "verified", "breakpoint": one.describe(self.engine)})
                self.trace.write("breakpoint", {"change": "verified", "breakpoint": one.describe(self.engine)})

    def remove_breakpoint(self, one, change="removed"):
        if change == "removed":
            self.table.pop(one.id, None)
        self.engine.forget_breakpoint(one)
        if self.features is not None:
            self.features.remove(one)
        self._set_callbacks_if_native()
        self.trace.write("breakpoint", {"change": change, "breakpoint": one.describe(self.engine)})

    def load_features(self):
        if self.features is None:
            from .features import Features

            self.features = Features(self)
        return self.features

    # -- what happens at a point ----------------------------------------------------------------------------------------
    def on_point(self, value, frame=None):
        """Called from the hook: value says which point, and whether its condition was looked at already."""
        if self.dead:
            return
        if frame is None:
            frame = sys._getframe(1)
        known, failed = value < 0, False
        index = value
        if known:
            base = native.module.ERROR_BASE
            failed = value <= -base
            index = -(value + base) if failed else ~value
        point = self.engine.points.get(index)
        if point is None:
            return
        one = point.breakpoint
        if not one.enabled or one.state == "done":
            return
        if point.entry and not self._at_entry(point, frame):
            return
        ident = _thread.get_ident()
        if failed:
            self._condition_failed(one, frame, sys.exc_info()[1])
            return
        skipped = self.skip_once.get(ident)
        if skipped is not None:
            if skipped[0] is frame and skipped[1] == point.line:
                if point in skipped[2]:
                    skipped[2].remove(point)
                    if not skipped[2]:
                        del self.skip_once[ident]
                    return
            else:
                del self.skip_once[ident]
        if not known and one.condition_code is not None:
            from . import evaluate

            try:
                if not evaluate.quick(one.condition_code, frame):
                    if self.engine.name == "monitoring":
                        self.engine.compile_condition(point, frame.f_globals)
                    return
            except Exception as error:
                self._condition_failed(one, frame, error)
                return
        self.hit(one, frame)

    def _at_entry(self, point, frame):
        if self.engine.name == "rewriting" and frame.f_code is not point.code:
            return True
        return operations.is_first_instruction(frame, point.line)

    def _condition_failed(self, one, frame, error):
        one.errors += 1
        one.last_error = values.describe_exception(error, self.locate)
        if one.error_stopped:
            return
        one.error_stopped = True
        self.stop(frame, "condition_error", breakpoints=[one.id], exception=one.last_error,
                  description=f"the condition of breakpoint {one.id} raised {type(error).__name__}: {values.clip(str(error), 200)}")

    def hit(self, one, frame, reason="breakpoint", **more):
        """The condition holds. True when it stopped."""
        one.hit_count += 1
        if one.hits_wanted is not None and one.hit_count < one.hits_wanted:
            return False
        if one.log_code is not None or one.capture_code is not None:
            self._log(one, frame)
            if one.once:
                self._done(one)
            return False
        if one.once:
            self._done(one)
        self.stop(frame, reason, breakpoints=[one.id], description=f"breakpoint {one.id} at {one.where}", **more)
        return True

    def _done(self, one):
        one.state = "done"
        self.remove_breakpoint(one, "done")
        self.channel.event("breakpoint", {"change": "done", "breakpoint": one.describe(self.engine)})

    def _log(self, one, frame):
        from . import evaluate

        for name, code in (("log", one.log_code), ("capture", one.capture_code)):
            if code is None:
                continue
            try:
                value = evaluate.quick(code, frame)
                if name == "log":
                    described = values.describe(value, stats=True)
                    text = value if isinstance(value, str) else described["text"]
                    self.output("log", values.clip(f"{text}"), breakpoint=one.id, location=stops.location(frame), value=described)
                else:
                    self.load_features().capture(one, value, frame)
            except Exception as error:
                self._condition_failed(one, frame, error)
                return

    def output(self, category, text, **more):
        message = {"category": category, "text": text, **more}
        self.channel.event("output", message)
        self.trace.write("output", message)

    # -- stepping -------------------------------------------------------------------------------------------------------
    def on_step(self, frame, reason, value, returned):
        """Called by the tracer at a line where a step, or a pause, ends."""
        if self.dead:
            return
        ident = _thread.get_ident()
        step = self.steps.get(ident)
        if reason == "pause":
            self.pausing.pop(ident, None)
            if self.engine.name == "monitoring":
                self.engine.paused()
            if sources.is_machinery(frame.f_code.co_filename):
                self.engine_attach(ident, engine.PAUSE, None, 0)
                return
            self.stop(frame, "pause", description="paused")
            return
        if step is None:
            return
        if sources.is_machinery(frame.f_code.co_filename) or (not step.library and sources.is_library(frame.f_code.co_filename)):
            self.engine_attach(ident, step.mode if step.mode == engine.STEP else engine.NEXT, frame, step.line)
            return
        if step.remaining > 1:
            step.remaining -= 1
            self.engine_attach(ident, step.mode, frame, step.line)
            return
        more = {"return_value": values.describe(value)} if returned else {}
        hit = []
        if self.engine.name != "tracing":
            hit = [point for point in self.engine.points_at(frame) if self._stops_here(point, frame)]
        for point in hit:
            point.breakpoint.hit_count += 1
            if point.breakpoint.once:
                self._done(point.breakpoint)
        ids = [point.breakpoint.id for point in hit]
        hit = [point for point in hit if not point.breakpoint.once]
        if hit:
            self.skip_once[ident] = (frame, frame.f_lineno, hit)
        self.stop(frame, "breakpoint" if ids else "step", breakpoints=ids, description=f"after {step.command}", **more)

    @staticmethod
    def _stops_here(point, frame):
        """Whether a breakpoint's own code, which runs next, would stop at this line too: one stop is enough."""
        from . import evaluate

        one = point.breakpoint
        if not one.enabled or point.entry or one.log is not None or one.capture is not None or one.hits_wanted is not None:
            return False
        try:
            return one.condition_code is None or bool(evaluate.quick(one.condition_code, frame))
        except Exception:
            return False

    def engine_attach(self, ident, mode, frame, line, entry=None):
        if mode == engine.PAUSE and self.engine.name == "monitoring":
            self.engine.pause(ident)
        elif native.module is not None:
            native.module.attach(ident, mode, frame if type(frame).__name__ == "frame" else None, line, entry)
        else:
            self.engine.attach(ident, mode, frame, line, entry)

    # -- stopping -------------------------------------------------------------------------------------------------------
    def stop(self, frame, reason, *, frames=None, not_run_yet=True, breakpoints=(), description="", line=None, extra=None, **more):
        """Holds this thread here until it is told to go on. SystemExit when the program shall end."""
        if self.dead or not self.channel.open:
            return
        ident = _thread.get_ident()
        if native.module is not None:
            native.module.note_stop()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # closed, None, or a thing of the program's own
                pass
        stop = stops.Stop(ident, frame, reason, frames)
        stop.not_run_yet, stop.extra = not_run_yet, extra
        self.stop_count += 1
        step = self.steps.get(ident)
        command = step.command if step is not None else "continue"
        where = stops.location(frame, line, ident)
        stop.event = {"reason": reason, "thread": operations.describe_thread(self, ident, "stopped", where), "location": where,
                      "not_run_yet": not_run_yet, "breakpoints": list(breakpoints), "description": description, "command": command, **more}
        with self.lock:
            self.stops[ident] = stop
            self.current = ident
            self.last_stop = stop
            was_pausing = self.pausing.pop(ident, None)
        if was_pausing is not None and self.engine.name == "monitoring":
            native.module.pause_at_line(0)
            self.engine.paused()
        self.steps.pop(ident, None)
        if native.module is not None:
            native.module.attach(ident, 0, None, 0, None)
        self.channel.event("stopped", stop.event)
        self._trace_stop(stop, command, more)
        try:
            operations.serve_stopped(self, stop)
        finally:
            with self.lock:
                self.stops.pop(ident, None)
                if self.current == ident:
                    self.current = next(reversed(self.stops), None) if self.stops else None
        if self.ending is not None:
            raise SystemExit(self.ending)

    def _trace_stop(self, stop, command, more):
        where = stop.event["location"]
        around = stops.code_around(where["file"], where["line"], 3)
        at = where["line"] - around["first"]
        context = {"before": around["lines"][:at], "current": around["lines"][at] if at < len(around["lines"]) else "",
                   "after": around["lines"][at + 1 :]}
        line = {"step": self.stop_count, "step_type": command, "reason": stop.reason, "location": where, "code_context": context,
                "call_stack": [stops.location(frame, number) for frame, number in stop.frames()[:20]],
                "breakpoints": stop.event["breakpoints"]}
        for name in ("exception", "checkpoint", "data", "bounds"):
            if name in more:
                line[name] = more[name]
        if self.options["trace_variables"]:
            try:
                found = operations.local_variables(stop.frames()[0][0], 50)
                line["variables"] = {name: values.describe(value, 1) for name, value, _ in found}
            except Exception:
                pass
        self.trace.write("stop", line)


class _ForkWarning:
    """Fits the warning about fork with threads while the second thread is ours."""

    @staticmethod
    def match(text, *_):
        return text.startswith("This process (pid=") and "multi-threaded" in text and len(sys._current_frames()) <= 2


def _quiet_fork_warning():
    import _warnings

    try:
        _warnings.filters.insert(0, ("ignore", _ForkWarning(), DeprecationWarning, None, 0))
        _warnings._filters_mutated()
    except AttributeError:
        pass
