"""Puts breakpoints into running code: by rewriting bytecode (3.10, 3.11), by sys.monitoring (3.12 and later), or by tracing where
neither can be had. Here is what these three engines share."""

import os
import sys

from . import breakpoints, native, opcodes, sources, table
from .breakpoints import Point

STEP, NEXT, FINISH, UNTIL, PAUSE = 1, 2, 3, 4, 5
_code_type = type((lambda: None).__code__)
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Site:
    """A code object, the forms of it that were made, and the points in the current one."""

    __slots__ = ("original", "current", "versions", "points", "parents", "lines")

    def __init__(self, code):
        self.original = self.current = code
        self.versions = [code]
        self.points = []
        self.parents = []
        self.lines = sources.lines_in(code)
        if code.co_name in _COMPREHENSIONS:
            self.lines.discard(code.co_firstlineno)  # its line belongs to the function around it: one arrival, one stop


class Engine:
    """What all engines share: which code objects of a file exist, and which breakpoint is at which of their lines."""

    name = "?"

    def __init__(self, agent):
        self.agent = agent
        self.points = {}  # index → Point
        self.sites = {}  # id of any version → Site
        self._kept = None  # all functions, while they do not change

    # -- finding code -------------------------------------------------------------------------------------------------
    def site(self, code):
        found = self.sites.get(id(code))
        if found is None:
            found = self.sites[id(code)] = Site(code)
        return found

    def all_frames(self):
        """(thread, frame) of everything that runs."""
        for ident, frame in sys._current_frames().items():
            if ident == self.agent.own_thread:
                continue
            while frame is not None:
                yield ident, frame
                frame = frame.f_back

    def scan(self, base):
        if native.module is not None:
            return native.module.scan(base)
        functions = self._kept if self._kept is not None else self._functions()
        return [one for one in functions if one.__code__.co_filename.endswith(base)], []

    def _functions(self):
        import gc

        kind = type(self.scan.__func__)
        return [one for one in gc.get_objects() if type(one) is kind]

    def keep_scan(self, on):
        """While nothing of the program runs: many breakpoints are looked up in one list."""
        self._kept = self._functions() if on and native.module is None else None

    def live_code(self, wants_file, base=""):
        """(sites, functions by site, frames by site) of the files that wants_file(filename) is true for."""
        sites, functions, frames = {}, {}, {}

        def add(code):
            stack = [code]
            while stack:
                site = self.site(stack.pop())
                if id(site) in sites:
                    continue
                sites[id(site)] = site
                for version in site.versions:
                    for constant in version.co_consts:
                        if type(constant) is _code_type:
                            inner = self.site(constant)
                            if site not in inner.parents:
                                inner.parents.append(site)
                            stack.append(constant)

        wanted = {}

        def right(filename):
            answer = wanted.get(filename)
            if answer is None:
                answer = wanted[filename] = wants_file(filename)
            return answer

        found, generators = self.scan(base)
        for function in found:
            code = function.__code__
            if right(code.co_filename):
                add(code)
                functions.setdefault(id(self.site(code)), []).append(function)
        for ident, frame in self.all_frames():
            code = frame.f_code
            if right(code.co_filename):
                add(code)
                frames.setdefault(id(self.site(code)), []).append((ident, frame))
        for generator in generators:
            for kind in ("gi", "cr", "ag"):
                code = getattr(generator, kind + "_code", None)
                frame = getattr(generator, kind + "_frame", None)
                if code is not None and frame is not None and right(code.co_filename):
                    add(code)
                    here = frames.setdefault(id(self.site(code)), [])
                    if not any(known is frame for _, known in here):
                        here.append((None, frame))
        return list(sites.values()), functions, frames

    # -- which points belong where --------------------------------------------------------------------------------------
    def wanted(self, site, module=None):
        """[(breakpoint, line, entry)] for one code object."""
        code, found = site.original, []
        for breakpoint in self.agent.table.of_code():
            if not breakpoints.matches_file(breakpoint, code.co_filename):
                continue
            if breakpoint.kind == "function":
                if breakpoints.function_matches(breakpoint, code, module or table.module_of(code.co_filename)):
                    found.append((breakpoint, breakpoints.first_line(code), True))
            elif breakpoint.kind == "text":
                if breakpoint.file is None and not breakpoints.searches(breakpoint, code.co_filename):
                    continue
                found += [
                    (breakpoint, line, False)
                    for line in breakpoints.text_lines(breakpoint, code.co_filename)
                    if line in site.lines
                ]
            else:
                line = breakpoint.line
                if line is None:  # waited for the file
                    line = breakpoint.requested_line
                    later = [one for one in sources.executable_lines(code.co_filename) if one >= line]
                    if line not in site.lines and later:
                        line = min(later)
                if line in site.lines:
                    found.append((breakpoint, line, False))
        return found

    def settle(self, site, module=None):
        """Brings the site's points up to date; True when something changed."""
        wanted = self.wanted(site, module)
        have = {(id(point.breakpoint), point.line): point for point in site.points}
        points = []
        changed = False
        for breakpoint, line, entry in wanted:
            point = have.pop((id(breakpoint), line), None)
            if point is None:
                point = self.new_point(breakpoint, line, entry, site.original)
                changed = True
            points.append(point)
        for point in have.values():
            self.forget(point)
            changed = True
        site.points = points
        return changed

    def new_point(self, breakpoint, line, entry, code):
        point = Point(self.new_index(), breakpoint, line, entry, code)
        self.points[point.index] = point
        breakpoint.points.append(point)
        place = {"file": sources.absolute(code.co_filename), "line": line, "function": sources.qualified_name(code)}
        if place not in breakpoint.places:
            breakpoint.places.append(place)
        if breakpoint.line is None:
            breakpoint.line = line
        if breakpoint.file is None and breakpoint.kind == "line":
            breakpoint.file = place["file"]
        if breakpoint.kind == "text" and breakpoint.file is None and not sources.is_library(code.co_filename):
            self._leave_libraries(breakpoint)
        self.agent.table.verified(breakpoint)
        return point

    def _leave_libraries(self, breakpoint):
        """The program has the statement in a file of its own: that one is meant."""
        if breakpoint.in_own_files:
            return
        breakpoint.in_own_files = True
        for point in list(breakpoint.points):
            if sources.is_library(point.code.co_filename):
                self.forget(point)
        breakpoint.places = [place for place in breakpoint.places if not sources.is_library(place["file"])]

    def forget(self, point):
        breakpoint = point.breakpoint
        if point in breakpoint.points:
            breakpoint.points.remove(point)
            breakpoint.reached_before += self.reached(point.index)
        self.points.pop(point.index, None)
        self.enable(point, False)

    def forget_breakpoint(self, breakpoint):
        """At once, also in a loop that is running."""
        for point in list(breakpoint.points):
            self.forget(point)

    def points_at(self, frame):
        """The enabled points that lie at the line where this frame is."""
        site = self.sites.get(id(frame.f_code))
        line = frame.f_lineno
        return [point for point in site.points if point.line == line] if site is not None else []

    def update(self, breakpoint):
        """A breakpoint was added, removed or switched."""
        base = os.path.basename(breakpoint.path or breakpoint.file or "")
        if (
            breakpoint.path is not None
            and sources.script is not None
            and sources.canonical(sources.script) == breakpoint.path
        ):
            base = os.path.basename(sources.script)
        if breakpoint.kind == "text" and breakpoint.file is None:

            def wants(filename):
                return breakpoints.searches(breakpoint, filename)
        else:

            def wants(filename):
                return breakpoints.matches_file(breakpoint, filename)

        sites, functions, frames = self.live_code(wants, base)
        for site in sites:
            if self.settle(site):
                self.place(site, functions, frames)

    # -- what engines differ in -----------------------------------------------------------------------------------------
    def place(self, site, functions, frames):
        """The site's points have changed."""

    def prepare(self, code):
        """The program's own code, before it runs: the code to run."""
        return code

    def watch_new_code(self, wanted, names):
        """Whether code that runs for the first time may hold a breakpoint, and in files of which names (None: any)."""

    def condition_was_false(self, point, frame):
        """Python has evaluated a condition: the engine may find a faster way for the next time."""

    def pause_over(self, ident):
        """The thread has stopped, or is gone."""

    def rearm(self):
        """A tracer of the program may have taken our place."""

    def note_stop(self):
        pass


class NativeEngine(Engine):
    """An engine whose hooks and tracer are those of the extension."""

    def __init__(self, agent):
        super().__init__(agent)
        self._native = native.module
        self._native.set_own_folder(sources.own_folder())
        self.watch_new_code(False, None)

    def new_code_callbacks(self):
        """(of code that exec is about to run, of functions that start for the first time)"""
        return None, None

    def watch_new_code(self, wanted, names):
        on_code, on_start = self.new_code_callbacks() if wanted else (None, None)
        self._native.set_callbacks(self.agent.arrivals.on_point, self.agent.arrivals.on_step, on_code, on_start, names)

    def enter(self):
        """This thread is inside the debugger: nothing stops it until leave()."""
        self._native.enter()

    def leave(self):
        self._native.leave()

    def new_index(self):
        return self._native.new_point()

    def reached(self, index):
        return self._native.reached(index)

    def attach(self, ident, mode, frame, line, entry=None):
        """The thread shall stop where the step ends."""
        self._native.attach(ident, mode, frame if type(frame).__name__ == "frame" else None, line, entry)

    def rearm(self):
        self._native.rearm()

    def note_stop(self):
        self._native.note_stop()

    def switch_off(self):
        self._native.set_off(True)

    def detach_all(self):
        self._native.detach_all()


def make(agent):
    """The best engine that this Python allows; the reason is told when it is not the usual one."""
    if native.module is not None and opcodes.CAN_REWRITE:
        from .engine_rewriting import RewritingEngine

        return RewritingEngine(agent)
    if native.module is not None and hasattr(sys, "monitoring"):
        from .engine_monitoring import MonitoringEngine

        tool = MonitoringEngine.free_tool()
        if tool is not None:
            return MonitoringEngine(agent, tool)
        native.reason = "all tool numbers of sys.monitoring are taken"
    from .engine_tracing import TracingEngine

    return TracingEngine(agent)
