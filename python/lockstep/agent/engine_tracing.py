"""The debugger without its extension: sys.settrace for everything. Works on every Python, and is slow. A thread has one tracer only: one
that the program sets by sys.settrace is called from ours; one set in C (coverage) takes our place."""

import _thread
import sys

from . import opcodes, sources
from .engine import FINISH, NEXT, PAUSE, STEP, UNTIL, Engine, Site

_GENERATOR = 0x20 | 0x80 | 0x200


class _Step:
    __slots__ = ("mode", "target", "line", "entry", "value", "returned")

    def __init__(self, mode, target, line, entry):
        self.mode, self.target, self.line, self.entry = mode, target, line, entry
        self.value, self.returned = None, False


def _only_yields(frame):
    """Whether it gives a value and will go on. Python 3.13 stands behind the yield then, where nothing else can stand right after one."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] in opcodes.YIELDS or (
        sys.version_info >= (3, 11) and at >= 2 and code[at - 2] in opcodes.YIELDS[:1]
    )


class TracingEngine(Engine):
    name = "tracing"

    def __init__(self, agent):
        super().__init__(agent)
        self._counts = []
        self._enabled = []
        self._busy = {}  # thread → depth
        self._steps = {}
        self._stops = 0
        self._lines = {}  # id of code → (code, {line: [index]})
        self._foreign = {}  # thread → tracer of the program
        self._foreign_locals = {}  # frame → what that tracer wants called for it
        self._settrace = sys.settrace  # this thread is traced from the program's first line on, see prepare
        sys.settrace, sys.gettrace = self._program_settrace, self._program_gettrace
        import threading

        threading.settrace(self._trace)

    def _program_settrace(self, function, /):
        if function == self._trace:  # `threading` does this in each new thread
            function = None
        self._foreign[_thread.get_ident()] = function
        self._settrace(self._trace if not self.agent.dead else function)

    def _program_gettrace(self):
        return self._foreign.get(_thread.get_ident())

    def enter(self):
        ident = _thread.get_ident()
        self._busy[ident] = self._busy.get(ident, 0) + 1

    def leave(self):
        self._busy[_thread.get_ident()] -= 1

    def new_index(self):
        self._counts.append(0)
        self._enabled.append(True)
        return len(self._counts) - 1

    def reached(self, index):
        return self._counts[index]

    def enable(self, point, enabled):
        self._enabled[point.index] = bool(enabled)

    def update(self, breakpoint):
        self._lines.clear()
        self.sites.clear()
        for point in list(breakpoint.points):
            self.forget(point)
        super().update(breakpoint)
        for ident, frame in self.all_frames():
            if not sources.is_machinery(frame.f_code.co_filename):
                frame.f_trace = self._local
        for ident, frame in sys._current_frames().items():
            self._busy.setdefault(ident, 0)

    def forget_breakpoint(self, breakpoint):
        super().forget_breakpoint(breakpoint)
        self._lines.clear()

    def place(self, site, functions, frames):
        for point in site.points:
            point.breakpoint.how = "traced"
        self._lines.clear()

    def prepare(self, code):
        for one in sources.walk(code):
            self._lines_of(one)
        self._settrace(self._trace)
        return code

    def _lines_of(self, code):
        known = self._lines.get(id(code))
        if known is not None and known[0] is code:
            return known[1]
        lines = {}
        if self.agent.table.is_interesting(code):
            site = self.sites.get(id(code))
            if site is None or site.original is not code:
                site = self.sites[id(code)] = Site(code)
            self.settle(site)
            for point in site.points:
                point.breakpoint.how = "traced"
                lines.setdefault(point.line, []).append(point)
        self._lines[id(code)] = (code, lines)
        if code.co_name == "<module>" and self.agent.table.is_interesting(
            code
        ):  # its functions are known before they run
            for inner in sources.walk(code):
                self._lines_of(inner)
        return lines

    def switch_off(self):
        pass  # agent.dead is looked at

    def detach_all(self):
        self._settrace(self._foreign.get(_thread.get_ident()))

    def attach(self, ident, mode, frame, line, entry=None):
        if not mode:
            self._steps.pop(ident, None)
            return
        self._steps[ident] = _Step(mode, frame if type(frame).__name__ == "frame" else None, line, entry)
        top = sys._current_frames().get(ident) if mode == PAUSE else frame
        while top is not None and type(top).__name__ == "frame":
            if not sources.is_machinery(top.f_code.co_filename):
                top.f_trace = self._local
            top = top.f_back

    def _trace(self, frame, event, arg):
        """A frame begins."""
        ident = _thread.get_ident()
        if self._busy.get(ident) or ident == self.agent.own_thread or sources.is_own(frame.f_code.co_filename):
            return None
        foreign = self._foreign.get(ident)
        local = foreign(frame, event, arg) if foreign is not None else None
        if local is not None:
            self._foreign_locals[frame] = local
        if self.agent.dead or sources.is_machinery(frame.f_code.co_filename):
            return local
        if local is not None or ident in self._steps or self._lines_of(frame.f_code):
            return self._local
        return None

    def _local(self, frame, event, arg):
        ident = _thread.get_ident()
        if self._busy.get(ident):
            return self._local
        foreign = self._foreign_locals.pop(frame, None)
        if foreign is not None:
            foreign = foreign(frame, event, arg)
            if foreign is not None and event != "return":
                self._foreign_locals[frame] = foreign
        if self.agent.dead:
            return self._local
        if event == "line":
            self._on_line(ident, frame)
        elif event == "return":
            self._on_return(ident, frame, arg)
        return self._local

    def _on_line(self, ident, frame):
        before = self.agent.stop_count
        self.enter()
        try:
            step = self._steps.get(ident)
            if step is not None and step.entry is not None:
                if frame.f_code.co_filename != step.entry or frame.f_code.co_name != "<module>":
                    return
                step.entry, step.target = None, frame
                return
            for point in self._lines_of(frame.f_code).get(frame.f_lineno, ()):
                if self._enabled[point.index]:
                    self._counts[point.index] += 1
                    self.agent.arrivals.on_point(point.index, frame)
            if self.agent.stop_count != before:
                return
            step = self._steps.get(ident)
            if step is None:
                return
            mode = step.mode
            if (
                mode == PAUSE
                or mode == STEP
                or (frame is step.target and (mode == NEXT or (mode == UNTIL and frame.f_lineno > step.line)))
            ):
                self._steps.pop(ident, None)
                self.agent.arrivals.on_step(frame, "pause" if mode == PAUSE else "step", step.value, int(step.returned))
        finally:
            self.leave()

    def _on_return(self, ident, frame, arg):
        step = self._steps.get(ident)
        if step is None:
            return
        if frame.f_code.co_flags & _GENERATOR and arg is not None and _only_yields(frame):
            return
        if step.mode == STEP:
            step.value, step.returned = arg, True
        elif step.target is frame and step.mode in (NEXT, FINISH, UNTIL):
            if step.mode != NEXT or not step.returned:
                step.value, step.returned = arg, True
            step.mode, step.target = NEXT, frame.f_back
            if frame.f_back is not None:
                frame.f_back.f_trace = self._local
