"""The session's breakpoints, and which code may hold one of them."""

import _thread
import os
import sys

from . import breakpoints, native, sources
from .arguments import Refused

_IN_CODE = ("line", "function", "text")
MOST = 10_000


class Table(dict):
    """id → Breakpoint."""

    def __init__(self, agent):
        super().__init__()
        self.agent = agent
        self._numbers = 0

    def of_code(self):
        """Those that lie at places in code and may still stop the program."""
        return [one for one in self.values() if one.kind in _IN_CODE and one.state not in ("invalid", "done")]

    def is_interesting(self, code):
        """Whether code about to run may hold a breakpoint: a cheap look that most imports end with."""
        filename = code.co_filename
        for one in self.of_code():
            if one.path is not None:
                if sources.is_same(filename, one.path):
                    return True
            elif one.kind == "function" and one.file is None:
                last = one.function.rpartition(".")[2]
                if native.module.has_name(code, last) if native.module is not None else True:
                    return True
            elif one.kind == "text" and one.file is None:
                if breakpoints.searches(one, filename):
                    return True
            elif breakpoints.matches_file(one, filename):
                one.path, one.file = sources.canonical(filename), sources.absolute(filename)
                return True
        return False

    def tell_engine(self):
        """Which new code the engine shall look at: none where no breakpoint waits in code, else that of these file names."""
        found = self.of_code()
        names = {os.path.basename(one.path or one.file) if one.path or one.file else None for one in found}
        self.agent.engine.watch_new_code(bool(found), None if None in names else names)

    # -- changes --------------------------------------------------------------------------------------------------------
    def add(self, args):
        agent = self.agent
        if len(self) >= MOST:
            raise Refused("too_large", f"there are {MOST} breakpoints", "remove some")
        self._numbers += 1
        one = breakpoints.parse(self._numbers, args)
        if one.kind == "line":
            breakpoints.resolve_line(one)
        elif one.file is not None:
            path, found = breakpoints.find_file(one.file)
            if found:
                one.file, one.path = sources.absolute(path), sources.canonical(path)
        self[one.id] = one
        if one.kind in ("data", "checkpoint"):
            agent.load_features().add(one)
            one.state = "verified" if one.kind == "checkpoint" else one.state
            one.how = "hooked"
        elif one.state != "invalid" and one.enabled:
            agent.engine.update(one)
            self.tell_engine()
        if one.state == "pending" and not one.message and one.kind in _IN_CODE:
            one.message = "waits until the code is loaded"
        self._trace("set", one)
        return one

    def remove(self, one, change="removed"):
        if change == "removed":
            self.pop(one.id, None)
        self.agent.engine.forget_breakpoint(one)
        if self.agent.features is not None:
            self.agent.features.remove(one)
        self.tell_engine()
        self._trace(change, one)

    def enable(self, one, enabled):
        one.enabled = enabled
        for point in one.points:
            self.agent.engine.enable(point, enabled)
        if enabled and not one.points and one.kind in _IN_CODE:
            self.agent.engine.update(one)
            self.tell_engine()
        self._trace("enabled" if enabled else "disabled", one)

    def verified(self, one):
        """Its code was found."""
        if one.state != "pending":
            return
        one.state = "verified"
        if one.message.startswith(("waits", "no file")):
            one.message = ""
        if self.agent.own_thread is not None and self.agent.own_thread != _thread.get_ident():
            self._tell("verified", one)
            self._trace("verified", one)

    def done(self, one):
        """It was to stop the program once, and did."""
        one.state = "done"
        self.remove(one, "done")
        self._tell("done", one)

    def _tell(self, change, one):
        self.agent.channel.event("breakpoint", {"change": change, "breakpoint": one.describe(self.agent.engine)})

    def _trace(self, change, one):
        self.agent.trace.write("breakpoint", {"change": change, "breakpoint": one.describe(self.agent.engine)})


def module_of(filename):
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == filename:
            return name
    return None
