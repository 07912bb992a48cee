"""Puts breakpoints into running code: by rewriting bytecode (3.10, 3.11), by sys.monitoring (3.12 and later), or by tracing where
there is no extension."""

import builtins
import os
import sys

from . import breakpoints, conditions, native, opcodes, sources
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
        import gc

        kind = type(self.scan.__func__)
        functions = [one for one in gc.get_objects() if type(one) is kind and one.__code__.co_filename.endswith(base)]
        return functions, []

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
        for breakpoint in self.agent.code_breakpoints():
            if not breakpoints.matches_file(breakpoint, code.co_filename):
                continue
            if breakpoint.kind == "function":
                if breakpoints.function_matches(breakpoint, code, module or self.agent.module_of(code.co_filename)):
                    found.append((breakpoint, breakpoints.first_line(code), True))
            elif breakpoint.kind == "text":
                if breakpoint.file is None and sources.is_library(code.co_filename):
                    continue
                found += [(breakpoint, line, False) for line in breakpoints.text_lines(breakpoint, code.co_filename) if line in site.lines]
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
        if breakpoint.file is None:
            breakpoint.file = place["file"]
            if breakpoint.kind != "line":
                breakpoint.file = None
        self.agent.verified(breakpoint, point)
        return point

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
        if breakpoint.path is not None and sources.script is not None and sources.canonical(sources.script) == breakpoint.path:
            base = os.path.basename(sources.script)
        if breakpoint.kind == "text" and breakpoint.file is None:
            def wants(filename):
                return not sources.is_library(filename)
        else:
            def wants(filename):
                return breakpoints.matches_file(breakpoint, filename)
        sites, functions, frames = self.live_code(wants, base)
        for site in sites:
            if self.settle(site):
                self.place(site, functions, frames)
        self.finish_update(sites, functions, frames)

    def finish_update(self, sites, functions, frames):
        pass


class RewritingEngine(Engine):
    name = "rewriting"

    def __init__(self, agent):
        super().__init__(agent)
        self._native = native.module
        self._tables = [vars(builtins)]
        self.put_name("__lockstep_hook__", self._native.hook)
        self._exec = builtins.exec
        builtins.exec = self._native.looking_exec(builtins.exec)

    def put_name(self, name, value, table=None):
        for one in self._tables if table is None else (table,):
            one[name] = value

    def new_index(self):
        from . import rewrite

        index = self._native.new_point()
        self.put_name(rewrite.counter_name(index), self._native.counter(index))
        return index

    def reached(self, index):
        return self._native.reached(index)

    def enable(self, point, enabled):
        self._native.set_point(point.index, bool(enabled))
        if point.index not in self.points:
            for version in self.site(point.code).versions:
                self._native.watch_point(version, point.line, point.index, False)

    def place(self, site, functions, frames):
        from . import rewrite

        placed = [rewrite.Placed(point.index, point.line, point.entry, point.breakpoint.condition) for point in site.points]
        if placed:
            # Constants of the current form: nested functions may carry breakpoints of their own there.
            base = site.original.replace(co_consts=tuple(site.current.co_consts[: len(site.original.co_consts)]))
            fresh, _ = rewrite.rewritten(base, placed, self._native.stack_effect, self._native.ERROR_BASE)
        else:
            fresh = site.original
            self._copy_constants(site.current, fresh)
        self._swap(site, fresh)
        for point in site.points:
            point.breakpoint.how = "rewritten"
        for function in functions.get(id(site), ()):
            if function.__code__ is not fresh:
                function.__code__ = fresh
            self._know_builtins(function)
        for ident, frame in frames.get(id(site), ()):
            if frame.f_code is not fresh and site.points:
                self._watch(ident, frame, site)

    def _know_builtins(self, function):
        table = getattr(function, "__builtins__", None)
        if isinstance(table, dict) and not any(table is known for known in self._tables):
            known = self._tables[0]
            self._tables.append(table)
            for name, value in list(known.items()):
                if name.startswith("__lockstep_"):
                    table[name] = value

    def _copy_constants(self, source, target):
        for old, new in zip(target.co_consts, source.co_consts):
            if type(old) is _code_type and old is not new:
                self._native.replace_const(target.co_consts, old, new)

    def _swap(self, site, fresh):
        old = site.current
        if fresh is old:
            return
        if not any(fresh is version for version in site.versions):
            site.versions.append(fresh)
            self.sites[id(fresh)] = site
        site.current = fresh
        for parent in site.parents:
            for version in parent.versions:
                for previous in site.versions:
                    if previous is not fresh:
                        self._native.replace_const(version.co_consts, previous, fresh)

    def _watch(self, ident, frame, site):
        """A frame that entered the function before: only tracing reaches it."""
        version = frame.f_code
        before = set()
        if version is not site.original:  # points that this form of the code has already
            before = {constant for constant in version.co_consts if type(constant) is int}
        new = [point for point in site.points if point.index not in before and ~point.index not in before]
        if not new:
            return
        for point in new:
            self._native.watch_point(version, point.line, point.index, True)
            point.breakpoint.how = "traced"
            if not point.breakpoint.message:
                point.breakpoint.message = "the function is running: its thread is traced until it returns"
        threads = [ident] if ident is not None else [one for one in sys._current_frames() if one != self.agent.own_thread]
        for thread in threads:
            self._native.watch_frame(thread, frame)

    def new_code(self, code):
        """Code about to run for the first time: with breakpoints where it shall have some."""
        if not self.agent.is_interesting(code):
            return code
        top = self.site(code)
        sites = []
        stack = [code]
        while stack:
            one = stack.pop()
            site = self.site(one)
            sites.append(site)
            for constant in site.original.co_consts:
                if type(constant) is _code_type:
                    inner = self.site(constant)
                    if site not in inner.parents:
                        inner.parents.append(site)
                    stack.append(inner.original if constant is not inner.original else constant)
        changed = False
        for site in reversed(sites):  # inner ones first
            if self.settle(site):
                self.place(site, {}, {})
                changed = True
        if not changed and not any(site.points for site in sites):
            for site in sites:
                if len(site.versions) == 1:
                    self.sites.pop(id(site.original), None)
            return code
        return top.current

    def prepare(self, code):
        return self.new_code(code)


class MonitoringEngine(Engine):
    name = "monitoring"

    def __init__(self, agent):
        super().__init__(agent)
        self._native = native.module
        monitoring = self._monitoring = sys.monitoring
        self.tool = None
        for tool in (monitoring.DEBUGGER_ID, 4, 3, 5, 1, 2):
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "lockstep")
                self.tool = tool
                break
        if self.tool is None:
            raise RuntimeError("all tool numbers of sys.monitoring are taken")
        self._native.set_disable(monitoring.DISABLE)
        monitoring.register_callback(self.tool, monitoring.events.LINE, self._native.line_event)
        monitoring.register_callback(self.tool, monitoring.events.PY_START, self._native.start_event)
        monitoring.set_events(self.tool, monitoring.events.PY_START)

    def pause(self, ident):
        """Lines of all code report for a moment: this reaches a thread in any loop."""
        events = self._monitoring.events
        self._native.pause_at_line(ident)
        self._monitoring.set_events(self.tool, events.PY_START | events.LINE)
        self._monitoring.restart_events()

    def restart(self):
        """Functions whose start was reported once report again."""
        self._monitoring.restart_events()

    def paused(self):
        self._monitoring.set_events(self.tool, self._monitoring.events.PY_START)

    def new_index(self):
        return self._native.new_point()

    def reached(self, index):
        return self._native.reached(index)

    def enable(self, point, enabled):
        self._native.set_point(point.index, bool(enabled))
        if point.index not in self.points:
            site = self.site(point.code)
            site.points = [one for one in site.points if one is not point]
            self.place(site, {}, {})

    def place(self, site, functions, frames):
        code = site.original
        lines = {}
        for point in site.points:
            lines.setdefault(point.line, []).append(point.index)
            point.breakpoint.how = "monitored"
        self._set_conditions(site, functions)
        self._native.monitor(code, lines or None)
        monitoring = self._monitoring
        monitoring.set_local_events(self.tool, code, 0)  # off and on: lines that switched themselves off come back
        if lines:
            monitoring.set_local_events(self.tool, code, monitoring.events.LINE)

    def _set_conditions(self, site, functions):
        for point in site.points:
            breakpoint = point.breakpoint
            if breakpoint.condition is None:
                continue
            namespace = None
            for function in functions.get(id(site), ()):
                namespace = function.__globals__
                break
            if namespace is None:
                continue  # known when it runs for the first time
            self.compile_condition(point, namespace)

    def compile_condition(self, point, namespace):
        try:
            found = conditions.callable_for(point.breakpoint.condition, point.code, namespace)
        except (SyntaxError, StopIteration, ValueError, RecursionError):
            found = None
        if found is not None:
            self._native.set_point(point.index, point.breakpoint.enabled, *found)

    def on_start(self, code):
        if self.agent.is_interesting(code):
            self.prepare(code)

    def prepare(self, code):
        for one in sources.walk(code):
            site = self.site(one)
            if self.settle(site):
                self.place(site, {}, {})
            elif not site.points:
                self.sites.pop(id(one), None)
        return code


def make(agent):
    """The best engine there is, with the reason when it is not the usual one."""
    if native.module is None:
        from .pure import TracingEngine

        return TracingEngine(agent)
    if hasattr(sys, "monitoring"):
        try:
            return MonitoringEngine(agent)
        except RuntimeError as error:
            native.reason = str(error)
            from .pure import TracingEngine

            return TracingEngine(agent)
    if opcodes.CAN_REWRITE:
        return RewritingEngine(agent)
    from .pure import TracingEngine

    return TracingEngine(agent)
