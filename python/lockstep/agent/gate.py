"""Two programs in step: at every module's output and at every checkpoint the two sides of a twin session meet, compare, and go on together.

Both sides say where they are, and a digest of what they have there. The same place with the same digest is equal: both go on at once, and nothing else is
sent. Otherwise the reference lays its values where the candidate reads them, and the candidate says whether both go on or both stop; once values have
parted they lie there before anybody asks. A place that the other side does not have is passed. A side that waits looks up ten times a second, so that it can
be ended, and goes on alone once nobody wants the comparison any more."""

from . import likeness, tensors, values
from .globs import names_module
from .likeness import FLOOR_FACTOR, floats_of, restored, rounding_floor  # noqa: F401
from .wire import Again, Alone, Held, Shelf, Wire

MEMORY = 12  # good stages whose error may be inherited
MOST_EARLY = 32  # outputs of the reference that the candidate comes to later


def tail(name):
    """The name inside its component: two implementations call the whole model differently, and its parts alike."""
    return name.partition(".")[2]


class Gate:
    def __init__(self, agent, options):
        self.agent = agent
        self.reference = options["side"] == "reference"
        self.mode = "off"  # off, divergence, next, meet
        self.hold = False  # to stand where it waits for the other side
        self.place = None  # glob: stop at the next place of this name
        self.call = None  # only at this call of it, from 0
        self.compared = self.passed = 0
        self.worst = 0.0
        self.substituted = []  # globs of names whose values are the reference's from now on
        self.replace_once = False
        self.last = None  # what was found at the last comparison
        self._map = [(_pattern(rule["candidate"]), rule["reference"]) for rule in options.get("map", ())]
        self.turn = 0  # grows whenever both are told how to go on
        self._wire, self._shelf = Wire(agent, options["folder"], self.reference), Shelf(self.reference)
        self._parted = False  # the last values differed: the next ones will, so no digest is made
        self._reads = self._there_reads = False  # whether the candidate can read what the reference lays down
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
        if not likeness.has_values(value, framework):
            return value
        ident = _thread.get_ident()
        if self._thread is None:
            self._thread = ident
        if self._thread != ident:
            return value
        ours = name if self.reference else self._translated(name)
        hit = self._hits[ours] = self._hits.get(ours, -1) + 1
        found = None
        while self.mode != "off":
            turn = self.turn
            try:
                self._wire.check()
                found = self._meet(turn, name, ours, hit, what, value, framework, module)
            except Again:
                continue
            except Alone:
                pass
            except Held:
                self.mode, self.hold = "off", False
                self._stand(name, hit, value, module, frame, what)
                continue  # told to go on together, it meets the other side here
            break
        if found is None:
            return value
        self.last = found
        replacement = found.pop("_reference", None)
        if found["stop"]:
            self.replace_once = False
            self._stop(name, found, value, module, frame, what, replacement)
        wanted = self.replace_once or self._substitutes(name)
        self.replace_once = False
        if wanted and found["identical"]:
            self.last["substituted"] = True
        elif wanted and replacement is not None:
            self.last["substituted"] = True
            return restored(value, framework, *replacement)
        return value

    def _substitutes(self, name):
        return any(names_module(glob, name) for glob in self.substituted)

    def _meet(self, turn, own_name, name, hit, role, value, framework, module):
        """What the comparison says; None where there was nothing to compare."""
        wire = self._wire
        if not self.reference and (name, hit) in self._early:
            message, data = self._early.pop((name, hit))
            return self._judge(own_name, name, hit, value, framework, module, message, data, alone=True)
        about = likeness.about(value, framework)
        here = {"at": name, "hit": hit, "role": role, **about, "watched": self.mode != "divergence" or bool(self.place)}
        laid = False
        if self._parted:
            laid = self.reference and self._there_reads and self._lay(value, framework)
        else:
            here["digest"] = likeness.digest_of(value, framework)
        if self.reference:
            here.update(laid=laid, memory=self._shelf.place())
        else:
            here["reads"] = self._reads
        while True:
            wire.send(self, turn, here)
            there, _ = wire.take(self, turn, may_hold=True)
            if self.reference:
                self._there_reads = there["reads"]
            else:
                self._reads = self._shelf.open(there["memory"])
            if self._same(name, role, there):
                break
            if self._passes(turn, there, value, framework):
                self.passed += 1
                return None
            # The other side has passed its place and comes to another one; we stand where we stood.
        if not (here["watched"] or there["watched"]) and all(
            here.get(key) is not None and here.get(key) == there.get(key) for key in ("digest", "shape", "dtype")
        ):
            return self._equal(name if not self.reference else there["at"], hit, about)
        if self.reference:
            if not laid:
                self._send_values(turn, value, framework, about)
            verdict = wire.take(self, turn)[0]["verdict"]
            self.compared += 1
            self._parted = not verdict["identical"]
            return verdict
        message, data = (there, None) if there["laid"] else wire.take(self, turn)
        if data is None or message.get("laid"):
            data = self._shelf.look(4 * _count(message["shape"]))
        found = self._judge(own_name, name, hit, value, framework, module, message, data)
        self._parted = not found["identical"]
        verdict = {key: item for key, item in found.items() if not key.startswith("_")}
        wire.send(self, turn, {"verdict": verdict})
        return found

    def _passes(self, turn, there, value, framework):
        """Whether this side goes on from a place at which the other one is not."""
        wire = self._wire
        knows = bool(self._knows(there["at"]))
        wire.send(self, turn, {"knows": knows})
        known, _ = wire.take(self, turn)
        mine_unknown, theirs_unknown = not known["knows"], not knows
        early = not mine_unknown and not theirs_unknown
        if early:  # the order differs: the reference's values wait until the candidate comes to them
            if self.reference:
                self._send_values(turn, value, framework, likeness.about(value, framework), early=True)
            else:
                message, data = wire.take(self, turn)
                if len(self._early) < MOST_EARLY:
                    self._early[there["at"], there["hit"]] = (message, bytes(data))
        return (mine_unknown or not theirs_unknown) if self.reference else (mine_unknown and not theirs_unknown)

    def _lay(self, value, framework):
        return self._shelf.put(floats_of(value, framework))

    def _send_values(self, turn, value, framework, about, early=False):
        floats = floats_of(value, framework)
        if not early and self._there_reads and self._shelf.put(floats):
            self._wire.send(self, turn, {**about, "laid": True})
        else:
            self._wire.send(self, turn, about, memoryview(floats.reshape(-1).view("u1")))

    def _equal(self, name, hit, about):
        """Both sides find this by themselves."""
        self.compared += 1
        self._recent = [*self._recent[1 - MEMORY :], 0.0]
        return {
            "name": name,
            "hit": hit,
            "reference": about,
            "candidate": about,
            "kind": "values",
            "alone": False,
            **likeness.IDENTICAL,
            "floor": 0.0,
            "beyond": False,
            "stop": False,
        }

    # -- the comparison, on the candidate's side ------------------------------------------------------------------------
    def _judge(self, own_name, name, hit, value, framework, module, message, data, alone=False):
        about = likeness.about(value, framework)
        found = {
            "name": name,
            "hit": hit,
            "reference": {"shape": message["shape"], "dtype": message["dtype"]},
            "candidate": about,
            "kind": "values",
            "alone": alone,
            "identical": False,
        }
        error = likeness.difference(data, message["shape"], floats_of(value, framework), about["shape"])
        unit = likeness.unit_of(message["dtype"], about["dtype"])
        if error is None:
            found.update(kind="shape", beyond=True)
        else:
            floor = rounding_floor(unit, likeness.reduction(module, about["shape"])) + max(self._recent, default=0.0)
            relative = error["relative"]
            beyond = not error["identical"] and likeness.is_beyond(relative, floor, unit)
            found.update(error, floor=floor, beyond=beyond)
            if not beyond:
                self._recent = [*self._recent[1 - MEMORY :], relative]
        self.compared += 1
        if error is not None and error["relative"] == error["relative"]:
            self.worst = max(self.worst, error["relative"])
        substituted = self._substitutes(own_name)
        found["stop"] = (
            (found["beyond"] and self.mode == "divergence" and not substituted)  # that it parts there is known
            or self.mode == "next"
            or bool(self.place and names_module(self.place, name) and self.call in (None, hit))
        )
        if error is not None and (found["stop"] or self.replace_once or substituted):
            found["_reference"] = (bytes(data), message["shape"])  # the reference goes on and lays down others
        return found

    def _stand(self, name, hit, value, module, frame, what):
        from .features import _visible

        self.agent.stop(
            _visible(frame),
            "place",
            not_run_yet=False,
            extra={"_output": value, "_module": module},
            description=f"waits at the {what} of {name}, call {hit}: the other side stands",
        )

    def _stop(self, name, found, value, module, frame, what, replacement):
        from .features import _visible

        self.mode, self.hold = "off", False  # both sides are told anew how to go on
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


def _count(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def _pattern(text):
    """A name of a map file: `*` is anything, `#` a whole number."""
    import re

    return re.compile("".join("(.*)" if mark == "*" else r"(\d+)" if mark == "#" else re.escape(mark) for mark in text))
