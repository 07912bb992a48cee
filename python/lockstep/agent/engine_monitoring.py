"""Breakpoints as events of sys.monitoring: Python 3.12 and later. Lines without a breakpoint switch themselves off."""

import sys

from . import sources
from .engine import PAUSE, NativeEngine


_TAKES_APART = sys.version_info[:2] == (3, 12)  # pairs of instructions, see python/agent/pairs.cpp


class MonitoringEngine(NativeEngine):
    name = "monitoring"

    @staticmethod
    def free_tool():
        """A tool number that no one uses; None when all are taken."""
        monitoring = sys.monitoring
        return next(
            (tool for tool in (monitoring.DEBUGGER_ID, 4, 3, 5, 1, 2) if monitoring.get_tool(tool) is None), None
        )

    def __init__(self, agent, tool):
        super().__init__(agent)
        monitoring = self._monitoring = sys.monitoring
        self.tool = tool
        monitoring.use_tool_id(tool, "lockstep")
        self._native.set_disable(monitoring.DISABLE)
        monitoring.register_callback(self.tool, monitoring.events.LINE, self._native.line_event)
        monitoring.register_callback(self.tool, monitoring.events.PY_START, self._native.start_event)
        monitoring.register_callback(self.tool, monitoring.events.JUMP, self._native.jump_event)
        monitoring.set_events(self.tool, monitoring.events.PY_START)

    def attach(self, ident, mode, frame, line, entry=None):
        if mode != PAUSE:
            super().attach(ident, mode, frame, line, entry)
            return
        events = self._monitoring.events  # lines of all code report for a moment: this reaches a thread in any loop
        self._native.pause_at_line(ident, True)
        self._monitoring.set_events(self.tool, events.PY_START | events.LINE | events.JUMP)
        self._monitoring.restart_events()

    def pause_over(self, ident):
        self._native.pause_at_line(ident, False)
        if self.agent.pausing:
            return
        self._monitoring.set_events(self.tool, self._monitoring.events.PY_START)
        if (
            _TAKES_APART
        ):  # every function reports its next start, where its pairs are put together again; those that run, here
            self._monitoring.restart_events()
            for code in {frame.f_code for _, frame in self.all_frames()}:
                self._native.join_pairs_in(code)

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
        from . import condition_steps, conditions  # loaded with the first condition

        try:
            found = conditions.callable_for(point.breakpoint.condition, point.code, namespace)
            if found is not None:
                steps = condition_steps.simple_steps(point.breakpoint.condition, point.code)
                self._native.set_point(point.index, point.breakpoint.enabled, *found, steps)
        except (SyntaxError, StopIteration, ValueError, RecursionError):
            pass

    def condition_was_false(self, point, frame):
        if point.code.co_flags & 1 or frame.f_locals is frame.f_globals:
            self.compile_condition(point, frame.f_globals)

    def new_code_callbacks(self):
        return None, self.on_start

    def on_start(self, code):
        if self.agent.table.is_interesting(code):
            self.prepare(code)

    def prepare(self, code):
        for one in sources.walk(code):
            site = self.site(one)
            if self.settle(site):
                self.place(site, {}, {})
            elif not site.points:
                self.sites.pop(id(one), None)
        return code
