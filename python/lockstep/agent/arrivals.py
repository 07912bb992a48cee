"""What happens when a thread arrives at a breakpoint, or at the end of a step."""

import _thread
import sys

from . import endings, engine, native, sources, stops, values
from .breakpoints import is_first_instruction


class Step:
    """What a thread that goes on shall do next."""

    __slots__ = ("command", "mode", "remaining", "library", "line")

    def __init__(self, command, mode=0, remaining=1, library=True, line=0):
        self.command, self.mode, self.remaining, self.library, self.line = command, mode, remaining, library, line


class Arrivals:
    def __init__(self, agent):
        self.agent = agent
        self._skip_once = {}  # thread → (frame, line, points): a step has stopped there, its breakpoints count as hit

    # -- at a breakpoint ------------------------------------------------------------------------------------------------
    def on_point(self, value, frame=None):
        """Called from the hook: value says which point, and whether its condition was looked at already."""
        agent = self.agent
        if agent.dead:
            return
        if frame is None:
            frame = sys._getframe(1)
        known, failed = value < 0, False
        index = value
        if known:
            base = native.module.ERROR_BASE
            failed = value <= -base
            index = -(value + base) if failed else ~value
        point = agent.engine.points.get(index)
        if point is None:
            return
        one = point.breakpoint
        if not one.enabled or one.state == "done":
            return
        if point.entry and not self._at_entry(point, frame):
            return
        if failed:
            self.condition_failed(one, frame, sys.exc_info()[1])
            return
        if self._counts_as_hit(point, frame):
            return
        if not known and one.condition_code is not None:
            from . import evaluate

            try:
                if not evaluate.quick(one.condition_code, frame):
                    agent.engine.condition_was_false(point, frame)
                    return
            except Exception as error:
                self.condition_failed(one, frame, error)
                return
        self.hit(one, frame)

    def _at_entry(self, point, frame):
        if self.agent.engine.name == "rewriting" and frame.f_code is not point.code:
            return True
        return is_first_instruction(frame, point.line)

    def _counts_as_hit(self, point, frame):
        """Whether a step has stopped at this very arrival already."""
        ident = _thread.get_ident()
        skipped = self._skip_once.get(ident)
        if skipped is None:
            return False
        if skipped[0] is not frame or skipped[1] != point.line:
            del self._skip_once[ident]
            return False
        if point not in skipped[2]:
            return False
        skipped[2].remove(point)
        if not skipped[2]:
            del self._skip_once[ident]
        return True

    def condition_failed(self, one, frame, error):
        one.errors += 1
        one.last_error = values.describe_exception(error, endings.locate)
        if one.error_stopped:
            return
        one.error_stopped = True
        self.agent.stop(
            frame,
            "condition_error",
            breakpoints=[one.id],
            exception=one.last_error,
            description=f"the condition of breakpoint {one.id} raised {type(error).__name__}: {values.clip(str(error), 200)}",
        )

    def hit(self, one, frame, reason="breakpoint", what="", **more):
        """The condition holds. `what` says it in words. True when it stopped."""
        one.hit_count += 1
        if one.hits_wanted is not None and one.hit_count < one.hits_wanted:
            return False
        if one.hit_test is not None and not one.hit_test(one.hit_count):
            return False
        if one.log_code is not None or one.capture_code is not None:
            self._log(one, frame)
            if one.once:
                self.agent.table.done(one)
            return False
        if one.once:
            self.agent.table.done(one)
        self.agent.stop(
            frame,
            reason,
            breakpoints=[one.id],
            description=f"breakpoint {one.id} at {one.where}" + (f": {what}" if what else ""),
            **more,
        )
        return True

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
                    text = values.clip(f"{text}")
                    self.agent.output("log", text, breakpoint=one.id, location=stops.location(frame), value=described)
                    self.agent.print_line(f"lockstep: breakpoint {one.id}: {text}")
                else:
                    self.agent.load_features().capture(one, value, frame)
            except Exception as error:
                self.condition_failed(one, frame, error)
                return

    # -- at the end of a step -------------------------------------------------------------------------------------------
    def on_step(self, frame, reason, value, returned):
        """Called by the tracer at a line where a step, or a pause, ends."""
        agent = self.agent
        if agent.dead:
            return
        ident = _thread.get_ident()
        step = agent.steps.get(ident)
        if reason == "pause":
            if sources.is_machinery(frame.f_code.co_filename) or stops.looks_for_a_module(frame):
                agent.engine.attach(ident, engine.PAUSE, None, 0)
            else:
                agent.stop(frame, "pause", description="paused")
            return
        if step is None:
            return
        if sources.is_machinery(frame.f_code.co_filename) or (
            not step.library and sources.is_library(frame.f_code.co_filename)
        ):
            agent.engine.attach(ident, step.mode if step.mode == engine.STEP else engine.NEXT, frame, step.line)
            return
        if step.remaining > 1:
            step.remaining -= 1
            agent.engine.attach(ident, step.mode, frame, step.line)
            return
        ids = self._count_hits(ident, frame) if agent.engine.name != "tracing" else []
        more = {"return_value": values.describe(value)} if returned else {}
        agent.stop(frame, "breakpoint" if ids else "step", breakpoints=ids, description=f"after {step.command}", **more)

    def _count_hits(self, ident, frame):
        """Numbers of the breakpoints that would stop here too, right after the step: one stop is enough."""
        hit = [point for point in self.agent.engine.points_at(frame) if _stops_here(point, frame)]
        for point in hit:
            point.breakpoint.hit_count += 1
            if point.breakpoint.once:
                self.agent.table.done(point.breakpoint)
        coming = [point for point in hit if not point.breakpoint.once]
        if coming:
            self._skip_once[ident] = (frame, frame.f_lineno, coming)
        return [point.breakpoint.id for point in hit]


def _stops_here(point, frame):
    from . import evaluate

    one = point.breakpoint
    if (
        not one.enabled
        or point.entry
        or one.log is not None
        or one.capture is not None
        or one.hits_wanted is not None
        or one.hit_test is not None
    ):
        return False
    try:
        return one.condition_code is None or bool(evaluate.quick(one.condition_code, frame))
    except Exception:
        return False
