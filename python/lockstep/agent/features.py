"""Breakpoints on data and on checkpoints, captures, and the bounds of MLX indexing. Loaded only when one is asked for."""

import os
import sys

from . import sources, stops, tensors, values
from .globs import matches, names_module

_WHEN_NAMES = ("min", "max", "mean", "std", "rms", "absmax", "nan", "inf", "zero", "denormal", "count")


class Features:
    def __init__(self, agent):
        self.agent = agent
        self._checkpoints = {}  # name → [hits, location, skipped hits]
        self._checkpoint_breaks = []
        self._data_breaks = []
        self._modules = None
        self._looked = {}  # id of breakpoint → outputs looked at
        self._bounds = None
        self._session = None
        self.gate = None  # of a twin session
        package = sys.modules.get("lockstep")
        if package is not None:
            self.package_imported(package)

    # -- breakpoints ----------------------------------------------------------------------------------------------------
    def add(self, one):
        if one.kind == "checkpoint":
            self._checkpoint_breaks.append(one)
            return
        self._data_breaks.append(one)
        if self._modules is None:
            from .modules import ModuleWatch

            self._modules = ModuleWatch(self)
        if self._modules.ready:
            one.state = "verified"
        else:
            one.message = "waits until torch or mlx is imported"
        self._modules.forget_interest()

    def remove(self, one):
        for known in (self._checkpoint_breaks, self._data_breaks):
            if one in known:
                known.remove(one)
        if self._modules is not None:
            self._modules.forget_interest()

    def open_gate(self, options):
        """The program is one of two that run in step."""
        from .gate import Gate
        from .modules import ModuleWatch

        if self._modules is None:
            self._modules = ModuleWatch(self)
        self.gate = Gate(self.agent, options)

    def known_names(self):
        """Names of all modules that are known so far, called or not, and of the checkpoints passed."""
        return {*(self._modules.known_names() if self._modules is not None else ()), *self._checkpoints}

    def meet(self, name, module, output, frame):
        """At the output of a module in a twin session; what the program goes on with."""
        for path, value in _tensors_in(output, name):
            given = self.gate.meet(path, value, module, frame)
            if given is not value:
                output = _with(output, value, given)
        return output

    def modules_ready(self):
        for one in self._data_breaks:
            if one.state == "pending":
                one.state, one.message = "verified", ""

    def wants(self, name):
        return [one for one in self._data_breaks if names_module(one.module, name)]

    def looked(self, one):
        return self._looked.get(one.id, 0)

    def names_seen(self, kind):
        if kind == "checkpoint":
            return list(self._checkpoints)
        return self._modules.names() if self._modules is not None else []

    def skipped(self, pattern):
        return sum(entry[2] for name, entry in self._checkpoints.items() if matches(name, pattern))

    def fits(self, one, value):
        """(whether a tensor fits --nan or --when, its statistics)"""
        framework = tensors.framework_of(value)
        if framework is None:
            return False, None
        stats = tensors.statistics(value, framework)
        if not stats:
            return False, None
        if one.nan and (stats["nan"] or stats["inf"]):
            return True, stats
        if one.when_code is not None:
            names = {name: stats.get(name, 0) for name in _WHEN_NAMES}
            names["count"] = tensors.brief(value, framework)["count"]
            return bool(eval(one.when_code, {"__builtins__": {"abs": abs, "max": max, "min": min}}, names)), stats
        return False, stats

    def module_output(self, name, module, output, wanted, frame):
        """After a module's call: stops at the first output that fits."""
        for one in wanted:
            if not one.enabled or one.state == "done":
                continue
            for path, value in _tensors_in(output, name):
                self._looked[one.id] = self._looked.get(one.id, 0) + 1
                try:
                    fits, stats = self.fits(one, value)
                except Exception as error:
                    self.agent.arrivals.condition_failed(one, frame, error)
                    continue
                if not fits:
                    continue
                frame = _visible(frame)
                forward = getattr(type(module), "forward", None) or getattr(type(module), "__call__", None)
                code = getattr(forward, "__code__", None)
                data = {
                    "module": name,
                    "output": path,
                    "class": type(module).__qualname__,
                    "stats": stats,
                    "value": values.describe(value),
                    "fits": one.when or "nan",
                }
                if code is not None:
                    data["forward"] = {"file": sources.absolute(code.co_filename), "line": code.co_firstlineno}
                self.agent.arrivals.hit(
                    one,
                    frame,
                    "data",
                    what=_words(f"the output of {path} ({data['class']})", data["value"], stats, one),
                    data=data,
                    not_run_yet=False,
                    extra={"_output": value, "_module": module, "_result": output},
                )
                break

    # -- checkpoints ----------------------------------------------------------------------------------------------------
    def package_imported(self, package):
        """The program has imported `lockstep`: its checkpoints come to us, recorded or not."""
        if hasattr(package, "_debugger") and hasattr(package, "_set_off"):
            package._debugger = self.checkpoint
            package._set_off(False)

    def checkpoint_list(self):
        return [
            {"name": name, "hits": hits, "location": where}
            for name, (hits, where, _) in list(self._checkpoints.items())[:1000]
        ]

    def checkpoint(self, name, tensor, step, tags, named, frame, skip):
        agent = self.agent
        if agent.dead:
            return
        agent.engine.enter()
        try:
            name = sources.qualified_name(frame.f_code) if name is None else str(name)
            known = self._checkpoints.get(name)
            if known is None:
                if len(self._checkpoints) > 100_000:
                    return
                known = self._checkpoints[name] = [0, stops.location(frame), 0]
            known[0] += 1  # hits are counted here and nowhere else, skipped or not
            known[2] += bool(skip)
            if self.gate is not None and not skip:
                for key, value in ({"": tensor} if tensor is not None else named).items():
                    self.gate.meet(f"{name}.{key}" if key else name, value, None, frame, "checkpoint")
            if skip or not self._checkpoint_breaks:
                return
            for one in list(self._checkpoint_breaks):
                if one.enabled and one.state != "done" and matches(name, one.checkpoint):
                    self._checkpoint_break(one, name, known[0], tensor, step, tags or {}, named, frame)
        finally:
            agent.engine.leave()

    def _checkpoint_break(self, one, name, number, tensor, step, tags, named, frame):
        one.reached_before += 1
        context = {
            **{key: str(value) for key, value in tags.items()},
            **({"step": str(step), "timestep": str(step)} if step is not None else {}),
        }
        for key, value in (one.context or {}).items():
            if context.get(key) != str(value):
                return
        held = {**({"tensor": tensor} if tensor is not None else {}), **named}
        if not held:
            held = {
                key: value
                for key, value in list(frame.f_locals.items())
                if not key.startswith("_") and tensors.framework_of(value) is not None
            }
        if one.condition_code is not None:
            from . import evaluate

            try:
                if not evaluate.quick(one.condition_code, frame):
                    return
            except Exception as error:
                self.agent.arrivals.condition_failed(one, frame, error)
                return
        what = ""
        if one.nan or one.when:
            looked_at = ((key, value, self.fits(one, value)) for key, value in held.items())
            found = next(((key, value, stats) for key, value, (fits, stats) in looked_at if fits), None)
            if found is None:
                return
            what = _words(f"{found[0]} of {name}", values.describe(found[1]), found[2], one)
        shown = {key: values.describe(value, stats=True) for key, value in list(held.items())[:20]}
        self.agent.arrivals.hit(
            one,
            frame,
            "checkpoint",
            what=what,
            not_run_yet=False,
            extra={"_" + key: value for key, value in held.items()},
            checkpoint={
                "name": name,
                "hit": number,
                "step": step,
                "context": {key: str(value) for key, value in tags.items()},
                "values": shown,
            },
        )

    # -- captures -------------------------------------------------------------------------------------------------------
    def capture(self, one, value, frame):
        package = load_package()
        session = self._session or package._session.current()
        if session is None:
            session, _ = package._session.open_run(package._session.program_name())
        self._session = session
        code = frame.f_code
        where = (sources.absolute(code.co_filename), frame.f_lineno, sources.qualified_name(code))
        session.offer(one.capture_name, value, role="variable", where=where)
        described = values.describe(value, stats=True)
        self.agent.output(
            "capture",
            f"{one.capture_name}: {described['text']}",
            breakpoint=one.id,
            location=stops.location(frame),
            value=described,
            run=session.path,
        )

    # -- bounds ---------------------------------------------------------------------------------------------------------
    def watch_bounds(self, enabled, stop):
        if self._bounds is None:
            from .bounds import BoundsWatch

            self._bounds = BoundsWatch(self.agent)
        self._bounds.enabled, self._bounds.stop = enabled, stop


def _words(subject, described, stats, one):
    """What a breakpoint on data has found: whose tensor, and the numbers that fit."""
    if one.nan and (stats["nan"] or stats["inf"]):
        found = f"{stats['nan']} NaN and {stats['inf']} infinities"
    else:
        count = described["tensor"]["count"]
        found = ", ".join(
            f"{name} {count if name == 'count' else stats[name]:.6g}"
            for name in _WHEN_NAMES
            if name in one.when_code.co_names and (name == "count" or name in stats)
        )
    return f"{subject} has {found or one.when}; {described['text']}"


def _visible(frame):
    """The innermost frame of the program itself: neither ours nor of torch's and MLX's own module calls."""
    first = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if not sources.is_machinery(file) and "/torch/nn/modules/module.py" not in file:
            return frame
        frame = frame.f_back
    return first


def _tensors_in(value, path, depth=0):
    if tensors.framework_of(value) is not None:
        yield path, value
    elif depth < 3 and isinstance(value, dict):
        for key, item in list(value.items())[:50]:
            yield from _tensors_in(item, f"{path}.{key}", depth + 1)
    elif depth < 3 and isinstance(value, (list, tuple)):
        for index, item in enumerate(value[:50]):
            yield from _tensors_in(item, f"{path}.{index}", depth + 1)


def _with(output, old, new, depth=0):
    """The same output with one tensor in another's place."""
    if output is old:
        return new
    if depth < 3 and isinstance(output, dict):
        for key, item in list(output.items())[:50]:
            changed = _with(item, old, new, depth + 1)
            if changed is not item:
                output[key] = changed
    elif depth < 3 and type(output) in (list, tuple):
        return type(output)(_with(item, old, new, depth + 1) for item in output)
    elif depth < 3 and isinstance(output, tuple) and hasattr(output, "_replace"):
        return output._replace(**{key: _with(getattr(output, key), old, new, depth + 1) for key in output._fields})
    return output


def load_package():
    """The package `lockstep`: the program's own, else the one that this debugger belongs to."""
    if "lockstep" in sys.modules:
        return sys.modules["lockstep"]
    folder = os.path.dirname(os.path.dirname(sources.own_folder()))
    sys.path.append(folder)
    try:
        import lockstep

        return lockstep
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
