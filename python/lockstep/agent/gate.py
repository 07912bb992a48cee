"""Two programs in step: at every module's output and at every checkpoint the two sides of a twin session meet, compare, and go on together.

Both sides say where they are; the same place is compared, a place that the other side does not have is passed. The reference sends its values, the candidate
compares them with its own and says whether both go on or both stop. A side that waits looks up ten times a second, so that it can be ended, and goes on alone
once nobody wants the comparison any more."""

import os
import select
import sys

from . import tensors, values
from .globs import names_module
from .picture import _bytes

FLOOR_FACTOR = 6.0  # as src/compare/noise_floor.h has it: an error this many floors high is no rounding
MEMORY = 12  # good stages whose error may be inherited
MOST_EARLY = 32  # outputs of the reference that the candidate comes to later
_UNITS = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}


class Alone(Exception):
    """The other side is gone, or nobody wants the comparison any more."""


class Held(Exception):
    """The other side stands, and this one shall stand where it waits."""


class Wire:
    """Two pipes in the twin's folder, one for each direction."""

    def __init__(self, agent, folder, reference):
        self._agent = agent
        names = ("to_candidate", "to_reference") if reference else ("to_reference", "to_candidate")
        self._out, self._in = (
            os.open(os.path.join(folder, name), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for name in names
        )
        for end in (self._out, self._in):
            try:
                import fcntl

                fcntl.fcntl(end, 1031, 1 << 20)  # F_SETPIPE_SZ: a tensor in fewer pieces
            except (ImportError, OSError):
                pass
        self._rest, self._values = bytearray(), bytearray()
        self._wait_in, self._wait_out = select.poll(), select.poll()
        self._wait_in.register(self._in, select.POLLIN)
        self._wait_out.register(self._out, select.POLLOUT)

    def _look_up(self, gate):
        if gate.mode == "hold":
            raise Held
        if gate.mode == "off" or self._agent.dead or self._agent.endings.status is not None:
            raise Alone

    def send(self, gate, message, data=b""):
        parts = [memoryview(self._agent.channel.dumps(message) + b"\n"), memoryview(data)]
        while parts:
            try:
                written = os.writev(self._out, parts)
            except BlockingIOError:
                if not self._wait_out.poll(100):
                    self._look_up(gate)
                continue
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]

    def _when_there(self, gate, read):
        while True:
            try:
                return read()
            except BlockingIOError:
                while not self._wait_in.poll(100):
                    self._look_up(gate)

    def take(self, gate):
        """(message, the bytes that belong to it, which the next message takes the place of)"""
        while (end := self._rest.find(b"\n")) < 0:
            self._rest += self._when_there(
                gate, lambda: os.read(self._in, 4096)
            )  # values that follow are not read twice
        message = self._agent.channel.loads(bytes(self._rest[:end]))
        del self._rest[: end + 1]
        size = message.get("bytes", 0)
        if len(self._values) < size:
            self._values = bytearray(size)
        data = memoryview(self._values)[:size]
        at = min(size, len(self._rest))
        data[:at] = self._rest[:at]
        del self._rest[:at]
        while at < size:
            at += self._when_there(gate, lambda: os.readv(self._in, [data[at:]]))
        return message, data

    def clear(self):
        """What was under way when a side went on alone is for nobody."""
        self._rest.clear()
        try:
            while os.read(self._in, 1 << 20):
                pass
        except BlockingIOError:
            pass


def tail(name):
    """The name inside its component: two implementations call the whole model differently, and its parts alike."""
    return name.partition(".")[2]


class Gate:
    def __init__(self, agent, options):
        self.agent = agent
        self.reference = options["side"] == "reference"
        self.mode = "off"  # off, divergence, next
        self.place = None  # glob: stop at the next place of this name
        self.compared = self.passed = 0
        self.worst = 0.0
        self.substituted = []  # globs of names whose values are the reference's from now on
        self.replace_once = False
        self.last = None  # what was found at the last comparison
        self._map = [(_pattern(rule["candidate"]), rule["reference"]) for rule in options.get("map", ())]
        self._wire = Wire(agent, options["folder"], self.reference)
        self._hits, self._known, self._knowing = {}, set(), -1
        self._recent, self._early = [], {}
        self._thread = None

    # -- names ----------------------------------------------------------------------------------------------------------
    def _translated(self, name):
        """The candidate's name as the reference's."""
        for pattern, theirs in self._map:
            found = pattern.fullmatch(name)
            if found is not None:
                pieces = iter(found.groups())
                return "".join(next(pieces, "") if mark in "*#" else mark for mark in theirs)
        return name

    def _knows(self, name):
        names = self.agent.features.known_names()
        if len(names) != self._knowing:
            self._knowing = len(names)
            ours = {one if self.reference else self._translated(one) for one in names}
            self._known = ours | {"." + tail(one) for one in ours if tail(one)}
        return name in self._known or (tail(name) and "." + tail(name) in self._known)

    @staticmethod
    def _same(name, role, there):
        """Whether both stand at the same place. The whole model is the same one whatever its class is called; a checkpoint's name is all that it has."""
        other = there["at"]
        return name == other or (tail(name) == tail(other) and (bool(tail(name)) or role == there["role"] == "output"))

    # -- at a place -----------------------------------------------------------------------------------------------------
    def meet(self, name, value, module, frame, what="output"):
        """The value that the program goes on with."""
        import _thread

        framework = tensors.framework_of(value)
        if self.mode == "off" or framework not in ("torch", "mlx", "numpy"):
            return value
        ident = _thread.get_ident()
        if self._thread is None:
            self._thread = ident
        if self._thread != ident:
            return value
        ours = name if self.reference else self._translated(name)
        hit = self._hits[ours] = self._hits.get(ours, -1) + 1
        try:
            found = self._meet(ours, hit, what, value, framework, module)
        except Alone:
            self._wire.clear()
            return value
        except Held:
            self._wire.clear()
            self._hits[ours] -= 1
            self.mode = "off"
            from .features import _visible

            self.agent.stop(
                _visible(frame),
                "place",
                not_run_yet=False,
                extra={"_output": value, "_module": module},
                description=f"waits at the {what} of {name}, call {hit}: the other side stands",
            )
            return value
        if found is None:
            return value
        self.last = found
        replacement = found.pop("_reference", None)
        if found["stop"]:
            self.replace_once = False
            self._stop(name, found, value, module, frame, what, replacement)
        wanted = self.replace_once or any(names_module(glob, name) for glob in self.substituted)
        self.replace_once = False
        if wanted and replacement is not None:
            self.last["substituted"] = True
            return restored(value, framework, *replacement)
        return value

    def _meet(self, name, hit, role, value, framework, module):
        """What the comparison says; None where there was nothing to compare."""
        wire = self._wire
        if not self.reference and (name, hit) in self._early:
            return self._judge(name, hit, value, framework, module, *self._early.pop((name, hit)), alone=True)
        wire.send(self, {"at": name, "hit": hit, "role": role})
        while True:
            there, _ = wire.take(self)
            same = self._same(name, role, there)
            knows = bool(same or self._knows(there["at"]))
            wire.send(self, {"knows": knows})
            known, _ = wire.take(self)
            if same:
                break
            mine_unknown, theirs_unknown = not known["knows"], not knows
            if self.reference:
                passes, early = mine_unknown or not theirs_unknown, not mine_unknown and not theirs_unknown
            else:
                passes, early = mine_unknown and not theirs_unknown, not mine_unknown and not theirs_unknown
            if early:  # the order differs: the reference's values wait until the candidate comes to them
                if self.reference:
                    self._send_values(value, framework)
                else:
                    message, data = wire.take(self)
                    if len(self._early) < MOST_EARLY:
                        self._early[there["at"], there["hit"]] = (message, bytes(data))
            if passes:
                self.passed += 1
                return None
            # The other side has passed its place and comes to another one; we stand where we stood.
            wire.send(self, {"at": name, "hit": hit, "role": role})
        if self.reference:
            self._send_values(value, framework)
            verdict, _ = wire.take(self)
            self.compared += 1
            return verdict
        message, data = wire.take(self)
        found = self._judge(name, hit, value, framework, module, message, data)
        wire.send(self, {key: item for key, item in found.items() if not key.startswith("_")})
        return found

    def _send_values(self, value, framework):
        about = tensors.brief(value, framework)
        data = memoryview(floats_of(value, framework).reshape(-1).view("u1"))
        self._wire.send(self, {"shape": about["shape"], "dtype": about["dtype"], "bytes": len(data)}, data)

    # -- the comparison, on the candidate's side ------------------------------------------------------------------------
    def _judge(self, name, hit, value, framework, module, message, data, alone=False):
        about = tensors.brief(value, framework)
        found = {
            "name": name,
            "hit": hit,
            "reference": {"shape": message["shape"], "dtype": message["dtype"]},
            "candidate": {"shape": about["shape"], "dtype": about["dtype"]},
            "kind": "values",
            "alone": alone,
        }
        error = difference(data, message["shape"], floats_of(value, framework), about["shape"])
        unit = max(_UNITS.get(message["dtype"], 2.0**-24), _UNITS.get(about["dtype"], 2.0**-24))
        if error is None:
            found.update(kind="shape", beyond=True)
        else:
            floor = rounding_floor(unit, _reduction(module, about["shape"])) + max(self._recent, default=0.0)
            relative = error["relative"]
            beyond = not error["identical"] and (
                relative != relative or relative > FLOOR_FACTOR * floor or relative > max(1e-3, unit * 2e4)
            )
            found.update(error, floor=floor, beyond=beyond)
            found["_reference"] = (data, message["shape"])
            if not beyond:
                self._recent = [*self._recent[1 - MEMORY :], relative]
        self.compared += 1
        if error is not None and error["relative"] == error["relative"]:
            self.worst = max(self.worst, error["relative"])
        found["stop"] = (
            (found["beyond"] and self.mode == "divergence")
            or self.mode == "next"
            or bool(self.place and names_module(self.place, name))
        )
        return found

    def _stop(self, name, found, value, module, frame, what, replacement):
        from .features import _visible

        self.mode = "off"  # both sides are told anew how to go on
        extra = {"_output": value, "_module": module}
        if replacement is not None:
            extra["_reference"] = restored(value, tensors.framework_of(value), *replacement)
        data = {**found, "module": name, "value": values.describe(value, stats=True)}
        beyond = found["beyond"]
        words = (
            "the shapes differ"
            if found["kind"] == "shape"
            else f"relative error {found['relative']:.3g}, noise floor {found['floor']:.3g}"
        )
        self.agent.stop(
            _visible(frame),
            "divergence" if beyond else "place",
            not_run_yet=False,
            extra=extra,
            data=data,
            description=f"{what} of {name}, call {found['hit']}: {words}",
        )

    def status(self):
        return {
            "mode": self.mode,
            "compared": self.compared,
            "passed": self.passed,
            "worst": self.worst,
            "last": self.last,
            "substituted": self.substituted,
        }


def _pattern(text):
    """A name of a map file: `*` is anything, `#` a whole number."""
    import re

    return re.compile("".join("(.*)" if mark == "*" else r"(\d+)" if mark == "#" else re.escape(mark) for mark in text))


def rounding_floor(unit, length):
    return 2 * unit + 0.5 * min(unit, 2.0**-24) * max(1, length) ** 0.5


def _reduction(module, shape):
    """How many products a number of the output is the sum of, as far as the module's weight tells."""
    weight = getattr(module, "weight", None)
    sizes = getattr(weight, "shape", None)
    length = 1
    if sizes is not None and len(sizes) >= 2:
        for size in tuple(sizes)[1:]:
            length *= int(size)
        return length
    return int(shape[-1]) if shape else 1


def _laid_out(there, here):
    """Axes of the reference in the candidate's order, or None: the same, or channels at the other end."""
    if there == here:
        return tuple(range(len(there)))
    count = len(there)
    if count == len(here) and count in (3, 4, 5):
        for axes in ((0, *range(2, count), 1), (0, count - 1, *range(1, count - 1))):
            if [there[axis] for axis in axes] == here:
                return axes
    return None


def floats_of(value, framework):
    """The values as an array of float32, row major; not copied where they lie like that."""
    import numpy

    if framework == "torch" and not value.is_complex():
        try:
            return value.detach().to(device="cpu", dtype=sys.modules["torch"].float32).contiguous().numpy()
        except (RuntimeError, TypeError):  # a torch without NumPy, or a tensor that has no memory of its own
            pass
    if framework == "numpy" and value.dtype.kind != "c":
        return numpy.ascontiguousarray(value, dtype="<f4")
    return numpy.frombuffer(_bytes(framework, value), "<f4")


def difference(theirs, their_shape, ours, our_shape):
    """{relative, max_abs, identical, where}, or None where the shapes cannot be laid over each other."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        import numpy
    one, other = (
        numpy.frombuffer(values, "<f4").reshape(shape) for values, shape in ((theirs, their_shape), (ours, our_shape))
    )
    squeezed = [[size for size in shape if size != 1] for shape in (their_shape, our_shape)]
    axes = _laid_out(list(their_shape), list(our_shape))
    if axes is not None:
        one = one.transpose(axes)
    elif squeezed[0] == squeezed[1]:
        one = one.reshape(our_shape)
    else:
        return None
    if numpy.array_equal(one.view("<u4"), other.view("<u4")):  # bit for bit: a NaN equals itself
        return {"relative": 0.0, "max_abs": 0.0, "identical": True, "where": None}
    with numpy.errstate(all="ignore"):
        apart = other - one
        same = (other == one) | (numpy.isnan(other) & numpy.isnan(one))
        apart[same] = 0
        if not numpy.isfinite(apart).all():
            at = numpy.unravel_index(int(numpy.argmin(numpy.isfinite(apart))), apart.shape)
            return {
                "relative": float("nan"),
                "max_abs": float("inf"),
                "identical": False,
                "where": [int(i) for i in at],
            }
        size = float(numpy.sqrt(numpy.mean(numpy.square(numpy.where(numpy.isfinite(one), one, 0), dtype="f8"))))
        error = float(numpy.sqrt(numpy.mean(numpy.square(apart, dtype="f8"))))
        absolute = numpy.abs(apart)
        at = numpy.unravel_index(int(absolute.argmax()), apart.shape)
    return {
        "relative": error / size if size else (0.0 if error == 0 else float("inf")),
        "max_abs": float(absolute.max()),
        "identical": False,
        "where": [int(i) for i in at],
    }


def restored(like, framework, data, shape):
    """The reference's values as a tensor like this one."""
    import numpy

    array = numpy.frombuffer(data, "<f4").reshape(shape)
    axes = _laid_out(list(shape), [int(size) for size in like.shape])
    array = numpy.ascontiguousarray(
        array.transpose(axes) if axes is not None else array.reshape([int(size) for size in like.shape])
    )
    if framework == "torch":
        return sys.modules["torch"].from_numpy(array.copy()).to(device=like.device, dtype=like.dtype)
    if framework == "mlx":
        return sys.modules["mlx.core"].array(array).astype(like.dtype)
    return array.astype(like.dtype)
