"""A stopped thread: its frames, the work it is asked to do, and how it goes on."""

import _imp
import _thread
import sys

from . import sources


class EntryFrame:
    """Stands for the module's frame before its first line has run: the frame itself does not exist yet."""

    f_back = None
    f_lasti = -1

    def __init__(self, code, namespace, line):
        self.f_code = code
        self.f_globals = self.f_locals = namespace
        self.f_lineno = line


class Stop:
    def __init__(self, ident, frame, reason, frames=None):
        self.thread = ident
        self.reason = reason
        self.frame = frame
        self._frames = frames  # [(frame, line)], given after an exception
        self.queue = []
        self.lock = _thread.allocate_lock()
        self.lock.acquire()
        self.busy = None  # the request that is being worked on
        self.going = False  # it has been told to go on
        self.event = {}
        self.not_run_yet = True
        self.extra = None  # further names for evaluations: _output, _module
        self.kept = []  # results of evaluations that somebody may look into while the thread stands

    def frames(self):
        """[(frame, line)], innermost first, without ours."""
        if self._frames is None:
            found, frame = [], self.frame
            while frame is not None and len(found) < 10_000:
                if not sources.is_machinery(frame.f_code.co_filename):
                    found.append((frame, frame.f_lineno))
                frame = frame.f_back
            self._frames = found
        return self._frames

    def give(self, request):
        self.queue.append(request)
        try:
            self.lock.release()
        except RuntimeError:
            pass  # it has been told already

    def take(self):
        while not self.queue:
            self.lock.acquire()
        return self.queue.pop(0)


def location(frame, line=None, thread=None):
    code = frame.f_code
    line = frame.f_lineno if line is None else line
    name = frame.f_globals.get("__name__")
    function = sources.qualified_name(code)
    if not hasattr(code, "co_qualname"):
        owner = frame.f_locals.get("self") if code.co_argcount and code.co_varnames[0] == "self" else None
        if owner is not None and not isinstance(owner, type):
            function = f"{type(owner).__qualname__}.{function}"
    where = {
        "file": sources.absolute(code.co_filename),
        "line": line or 0,
        "function": function,
        "module": name if isinstance(name, str) else None,
        "text": sources.line_text(code.co_filename, line or 0).strip()[:300],
    }
    if thread is not None:
        where["thread"] = thread
    return where


def visible(frame):
    """The innermost frame that is the program's: a checkpoint stops inside our own package."""
    while frame is not None and sources.is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def frame_kind(frame):
    code = frame.f_code
    if code.co_flags & 0x80:
        return "coroutine"
    if code.co_flags & (0x20 | 0x200):
        return "generator"
    if code.co_name == "<module>":
        return "exec" if code.co_filename.startswith("<") else "module"
    return "function" if code.co_flags & 1 else "class"


def code_around(filename, line, around):
    lines = sources.lines_of(filename)
    first = max(1, line - around)
    return {"first": first, "lines": [text[:300] for text in lines[first - 1 : line + around]], "current": line}


def thread_name(ident):
    threading = sys.modules.get("threading")
    thread = getattr(threading, "_active", {}).get(ident) if threading is not None else None
    if thread is not None:
        return str(getattr(thread, "name", "?"))[:100]
    return "MainThread" if ident == main_thread() else f"Thread-{ident}"


def describe_thread(agent, ident, state=None, where=None):
    if state is None:
        stop = agent.stops.get(ident)
        state = "running" if stop is None or stop.going else "evaluating" if stop.busy is not None else "stopped"
        where = stop.event["location"] if stop is not None else None
    about = {"id": ident, "name": thread_name(ident), "main": ident == main_thread(), "state": state}
    if where is not None:
        about["location"] = where
    return about


_main = _thread.get_ident()


def main_thread():
    return _main


def looks_for_a_module(frame):
    """In a finder that the import system asks: it holds the lock of all imports, and whatever else imports would wait for this thread."""
    if not _imp.lock_held():
        return False
    while frame is not None and not (
        frame.f_code.co_name == "_find_spec" and sources.is_machinery(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame is not None
