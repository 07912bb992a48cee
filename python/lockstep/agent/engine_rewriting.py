"""Breakpoints as new bytecode of the functions that hold them: Python 3.10 and 3.11."""

import builtins
import sys

from .engine import NativeEngine

_code_type = type((lambda: None).__code__)


class RewritingEngine(NativeEngine):
    name = "rewriting"

    def __init__(self, agent):
        super().__init__(agent)
        self._tables = [vars(builtins)]
        self.put_name("__lockstep_hook__", self._native.hook)
        self._exec = builtins.exec
        builtins.exec = self._native.looking_exec(builtins.exec)

    def put_name(self, name, value, table=None):
        for one in self._tables if table is None else (table,):
            one[name] = value

    def watch_new_code(self, wanted, names):
        if wanted:
            from . import rewrite  # noqa: F401  with the first breakpoint, rather than in the middle of the program's imports
        super().watch_new_code(wanted, names)

    def new_index(self):
        from . import rewrite

        index = super().new_index()
        self.put_name(rewrite.counter_name(index), self._native.counter(index))
        return index

    def enable(self, point, enabled):
        self._native.set_point(point.index, bool(enabled))
        if point.index not in self.points:
            for version in self.site(point.code).versions:
                self._native.watch_point(version, point.line, point.index, False)

    def place(self, site, functions, frames):
        from . import rewrite

        placed = [
            rewrite.Placed(point.index, point.line, point.entry, point.breakpoint.condition) for point in site.points
        ]
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
        threads = (
            [ident] if ident is not None else [one for one in sys._current_frames() if one != self.agent.own_thread]
        )
        for thread in threads:
            self._native.watch_frame(thread, frame)

    def new_code(self, code):
        """Code about to run for the first time: with breakpoints where it shall have some."""
        if not self.agent.table.is_interesting(code):
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

    def new_code_callbacks(self):
        return self.new_code, None

    def prepare(self, code):
        return self.new_code(code)
