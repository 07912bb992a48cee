"""How a debugged program ends: by itself, by an exception, because it is told to, or without anyone who listens."""

import _thread
import atexit
import os
import sys
import time

from . import native, sources, stops, values


class Endings:
    def __init__(self, agent):
        self.agent = agent
        self.status = None  # exit status, once the program shall end
        self.exit = None  # how it ended
        self.told_to_leave = False
        self.forks = 0
        if sys.version_info >= (3, 12):
            _quiet_fork_warning()
        os.register_at_fork(after_in_parent=self._forking, after_in_child=self._forked)
        atexit.register(self._at_exit)
        self._hook_threads()

    def _hook_threads(self):
        """Exceptions that end a thread: the module `threading`, which the program may import later, takes its hook from _thread."""
        original = _thread._excepthook

        def excepthook(args, /):
            if args.exc_value is not None and args.exc_type is not SystemExit:
                self.post_mortem(args.exc_value)
            return original(args)

        _thread._excepthook = excepthook
        threading = sys.modules.get("threading")
        if threading is not None and threading.excepthook is original:
            threading.excepthook = threading.__excepthook__ = excepthook

    # -- what the program does ------------------------------------------------------------------------------------------
    def note_system_exit(self, error):
        if self.status is not None and error.code is None:
            error.code = self.status  # raised in a running thread, which only a class can be
        code = error.code
        status = code if isinstance(code, int) else 0 if code is None else 1
        self.note("terminated" if self.status is not None else "sys_exit", status, error)

    def note(self, how, status, error):
        self.exit = {"how": how, "code": status}
        if error is not None:
            described = values.describe_exception(error, locate)
            if how != "terminated":
                self.exit["exception"] = described
            if described["location"] is not None:
                self.exit["location"] = described["location"]

    def post_mortem(self, error):
        """An exception that nothing caught: its frames are still there to look at."""
        agent = self.agent
        if agent.options["stop_on_exception"] != "uncaught" or agent.dead or self.status is not None:
            return
        frames, step = [], error.__traceback__
        while step is not None:
            if not sources.is_machinery(step.tb_frame.f_code.co_filename):
                frames.append((step.tb_frame, step.tb_lineno))
            step = step.tb_next
        if not frames:
            return
        frames.reverse()
        agent.engine.enter()
        try:
            agent.stop(
                frames[0][0],
                "exception",
                frames=frames,
                not_run_yet=False,
                line=frames[0][1],
                description=f"{type(error).__name__} was not caught: {values.clip(str(error), 200)}",
                exception=values.describe_exception(error, locate),
            )
        except SystemExit:
            pass
        finally:
            agent.engine.leave()

    def _at_exit(self):
        agent = self.agent
        if agent.finished or agent.pid != os.getpid():
            return
        agent.finished = True
        agent.engine.enter()
        agent.engine.switch_off()
        gone = self.exit or {"how": "finished", "code": 0}
        from . import why

        table = [one.describe(agent.engine) for one in agent.table.values()]
        reasons = {
            str(one.id): why.explain(agent, one, ended=gone)
            for one in list(agent.table.values())[:200]
            if not one.hit_count or one.state != "done"
        }
        final = {
            "breakpoints": table,
            "why": reasons,
            "checkpoints": agent.features.checkpoint_list() if agent.features else [],
        }
        if agent.features is not None and agent.features.gate is not None:
            final["gate"] = agent.features.gate.status()
        from . import operations

        final.update(operations.files(agent, {"limit": 500}) if agent.calls_counted else operations.files_by_name(1000))
        agent.trace.write("exit", {**gone, "end_time": time.time(), "total_steps": agent.stop_count})
        if not agent.dead:
            if not agent.channel.event("final", final):
                self._leave(final)
            agent.channel.event("exited", gone)
        agent.channel.hang_up()
        agent.served.acquire(True, 1.0)  # what still runs while Python is taken down may crash with it
        agent.trace.close()

    def _leave(self, final):
        """The last words, for a service that comes after the end."""
        try:
            with open(os.path.join(self.agent.folder, "final.json"), "wb") as file:
                file.write(self.agent.channel.dumps(final))
        except OSError:
            pass

    # -- what is done to it ---------------------------------------------------------------------------------------------
    def end(self, status):
        """SystemExit in the main thread and in every stopped one."""
        main = stops.main_thread()
        with self.agent.lock:
            self.status = status
            for stop in self.agent.stops.values():
                stop.give(None)
            stands = main in self.agent.stops
        if not stands:
            if native.module is not None:
                native.module.raise_in(main, SystemExit)
            elif not _interruptible() and _raised_in(main, SystemExit):
                pass
            else:
                _thread.interrupt_main()

    def lost(self):
        """No one listens any more: go on, or end, as configured."""
        agent = self.agent
        with agent.lock:
            if agent.dead or agent.finished:
                return
            agent.dead = True
        agent.engine.switch_off()
        for one in list(agent.table.values()):
            agent.engine.forget_breakpoint(one)
        agent.engine.detach_all()
        if agent.options["on_disconnect"] == "terminate" and not self.told_to_leave:
            self.end(1)
        for stop in list(agent.stops.values()):
            stop.give(None)

    def _forking(self):
        self.forks += 1

    def _forked(self):
        """In a child: it runs free, and the session stays the parent's."""
        agent = self.agent
        agent.dead = True
        agent.engine.switch_off()
        agent.engine.detach_all()
        agent.channel.close_in_child()
        agent.trace.close()
        agent.finished = True


def _interruptible():
    """Whether Ctrl-C still means KeyboardInterrupt: a program may ignore it, or be started where it is ignored."""
    import _signal

    return _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler


def _raised_in(thread, kind):
    """The extension's raise_in for a Python that has none: slower to import, so only where nothing else helps."""
    try:
        from ctypes import c_ulong, py_object, pythonapi

        return pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread), py_object(kind)) == 1
    except Exception:  # a Python without ctypes: the service sends signals
        return False


def locate(traceback):
    """Location of the program's innermost frame in a traceback."""
    found = None
    while traceback is not None:
        if not sources.is_machinery(traceback.tb_frame.f_code.co_filename):
            found = (traceback.tb_frame, traceback.tb_lineno)
        traceback = traceback.tb_next
    return stops.location(*found) if found is not None else None


class _ForkWarning:
    """Fits the warning about fork with threads while the second thread is ours."""

    @staticmethod
    def match(text, *_):
        return text.startswith("This process (pid=") and "multi-threaded" in text and len(sys._current_frames()) <= 2


def _quiet_fork_warning():
    import _warnings

    try:
        _warnings.filters.insert(0, ("ignore", _ForkWarning(), DeprecationWarning, None, 0))
        if hasattr(_warnings, "_filters_mutated"):
            _warnings._filters_mutated()
        else:  # from 3.14 on
            _warnings._acquire_lock()
            try:
                _warnings._filters_mutated_lock_held()
            finally:
                _warnings._release_lock()
    except AttributeError:
        pass
