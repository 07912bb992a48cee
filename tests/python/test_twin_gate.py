"""Where the two sides of a twin session meet: two gates over two pipes, each driven by a thread in place of a program."""

import json
import os
import pathlib
import sys
import threading

import pytest

np = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from lockstep.agent import gate, likeness, native  # noqa: E402


class Program:
    """What a gate knows of the agent, and what happened to it: places passed, values it went on with, stops."""

    def __init__(self, folder, side, names, mode="divergence", **options):
        self.channel = type(
            "Channel",
            (),
            {"dumps": staticmethod(lambda one: json.dumps(one).encode()), "loads": staticmethod(json.loads)},
        )()
        self.dead = False
        self.endings = type("Endings", (), {"status": None})()
        self.features = type("Features", (), {"known_names": staticmethod(lambda: set(names))})()
        self.stops, self.went_on, self.at_stop = [], {}, lambda program: None
        self.gate = gate.Gate(self, {"side": side, "folder": str(folder), **options})
        self.gate.mode = mode

    def stop(self, frame, reason, *, data=None, description="", extra=None, **_):
        self.stops.append((reason, data and data["name"], data and data["hit"], description, extra))
        self.at_stop(self)

    def run(self, places):
        for name, value in places:
            self.went_on[name] = self.gate.meet(name, np.asarray(value, "float32"), None, sys._getframe())


@pytest.fixture
def meeting(tmp_path):
    for name in ("to_candidate", "to_reference"):
        os.mkfifo(tmp_path / name)
    return tmp_path


def run_both(meeting, reference, candidate, **options):
    """(the reference's program, the candidate's) after both have passed their places."""
    sides = [
        Program(meeting, "reference", [name for name, _ in reference]),
        Program(meeting, "candidate", [name for name, _ in candidate], **options),
    ]
    threads = [
        threading.Thread(target=side.run, args=(places,), daemon=True)
        for side, places in zip(sides, (reference, candidate))
    ]
    for thread in threads:
        thread.start()
    for side, thread, other in zip(sides, threads, reversed(sides)):
        thread.join(10 if not other.stops else 2)
        if thread.is_alive():
            side.gate.mode = "off"  # as the service does once the other side has ended
        thread.join(10)
        assert not thread.is_alive()
    return sides


X = np.linspace(-1, 1, 600).reshape(2, 3, 100)


def test_equal_programs_meet_everywhere_and_never_stop(meeting):
    places = [("Model.a", X), ("Model.b", X * 2), ("Model.a", X), ("Model", X * 3)]
    reference, candidate = run_both(meeting, places, places)
    assert not reference.stops and not candidate.stops
    assert reference.gate.compared == candidate.gate.compared == 4 and candidate.gate.worst == 0


def test_both_stop_at_the_first_place_that_parts(meeting):
    wrong = [("Model.a", X), ("Model.b", X * 2.01), ("Model.c", X)]
    right = [("Model.a", X), ("Model.b", X * 2), ("Model.c", X)]
    reference, candidate = run_both(meeting, right, wrong)
    for side in (reference, candidate):
        assert [stop[:3] for stop in side.stops] == [("divergence", "Model.b", 0)]
    assert candidate.gate.last["relative"] == pytest.approx(0.005, rel=1e-3)
    assert candidate.gate.last == reference.gate.last
    assert "relative error 0.005" in candidate.stops[0][3]
    assert np.array_equal(candidate.stops[0][4]["_reference"], np.float32(X) * 2)


def test_rounding_is_no_divergence(meeting):
    noise = 1 + 2e-7 * np.sign(np.sin(np.arange(600))).reshape(X.shape)
    reference, candidate = run_both(meeting, [("M.a", X), ("M.b", X)], [("M.a", X * noise), ("M.b", X * noise)])
    assert not candidate.stops and 0 < candidate.gate.worst < 1e-6


def test_names_of_the_whole_and_places_of_one_side_alone(meeting):
    reference = [("QwenModel.in", X), ("QwenModel.norm", X), ("QwenModel.out", X)]
    candidate = [("Port.in", X), ("Port.extra", X * 9), ("Port.out", X * 1.5)]
    reference, candidate = run_both(meeting, reference, candidate)
    assert candidate.stops[0][:2] == ("divergence", "Port.out") and reference.stops[0][0] == "divergence"
    assert candidate.gate.compared == 2 and candidate.gate.passed == reference.gate.passed == 1


def test_a_map_names_the_candidates_modules(meeting):
    rules = [{"candidate": "net.layers.#.mix.*", "reference": "blocks.#.attn.*"}]
    reference = [("blocks.0.attn.q", X), ("blocks.11.attn.q", X)]
    reference, candidate = run_both(
        meeting, reference, [("net.layers.0.mix.q", X), ("net.layers.11.mix.q", X * 2)], map=rules
    )
    assert candidate.stops[0][:2] == ("divergence", "blocks.11.attn.q") and candidate.gate.compared == 2


def test_another_order_is_still_compared(meeting):
    reference, candidate = run_both(
        meeting, [("M.k", X), ("M.q", X * 2), ("M.o", X)], [("M.q", X * 2), ("M.k", X * 1.1), ("M.o", X)]
    )
    assert [stop[:2] for stop in candidate.stops] == [("divergence", "M.k")]


@pytest.mark.parametrize("axes", [(0, 2, 1), None])
def test_layouts_and_shapes(meeting, axes):
    other = X.transpose(axes) if axes else X.reshape(6, 100)
    reference, candidate = run_both(meeting, [("M.a", X)], [("M.a", other)])
    assert bool(candidate.stops) == (axes is None)
    if axes is None:
        assert "shapes differ" in candidate.stops[0][3]


def test_the_reference_takes_the_candidates_place(meeting):
    right, wrong = [("M.a", X), ("M.b", X)], [("M.a", X * 2), ("M.b", X)]

    def replace(program):
        program.gate.replace_once, program.gate.mode = True, "divergence"

    reference = Program(meeting, "reference", ["M.a", "M.b"])
    candidate = Program(meeting, "candidate", ["M.a", "M.b"])
    candidate.at_stop = replace
    reference.at_stop = lambda program: setattr(program.gate, "mode", "divergence")
    threads = [
        threading.Thread(target=side.run, args=(places,), daemon=True)
        for side, places in ((reference, right), (candidate, wrong))
    ]
    [thread.start() for thread in threads]
    [thread.join(10) for thread in threads]
    assert np.array_equal(candidate.went_on["M.a"], np.float32(X)), "the reference's values went on"
    assert len(candidate.stops) == 1 and candidate.gate.compared == 2


def test_the_floor_is_that_of_compare():
    source = (pathlib.Path(__file__).resolve().parents[2] / "src" / "compare" / "noise_floor.h").read_text()
    assert f"kFloorFactor = {gate.FLOOR_FACTOR:g};" in source and f"kMemory = {gate.MEMORY};" in source
    assert gate.rounding_floor(2.0**-24, 1024) == pytest.approx(2 * 2.0**-24 + 16 * 2.0**-24)


# -- the way between them ------------------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch):
    """Sizes of the values that were sent through a pipe and laid down to be read, in turn."""
    piped, laid = [], []
    send, put = gate.Wire.send, gate.Shelf.put

    def counting_send(self, one, turn, message, data=b""):
        if len(data):
            piped.append(len(data))
        return send(self, one, turn, message, data)

    def counting_put(self, array):
        there = put(self, array)
        if there:
            laid.append(array.nbytes)
        return there

    monkeypatch.setattr(gate.Wire, "send", counting_send)
    monkeypatch.setattr(gate.Shelf, "put", counting_put)
    return piped, laid


def test_equal_values_are_never_sent(meeting, sent):
    places = [("M.a", X), ("M.b", X * 2), ("M", X * 3)]
    reference, candidate = run_both(meeting, places, places)
    assert candidate.gate.compared == reference.gate.compared == 3 and sent == ([], [])
    assert candidate.gate.last["identical"] and reference.gate.last["identical"]


def test_the_candidate_reads_where_the_reference_laid_them(meeting, sent):
    noise = 1 + 2e-7 * np.sign(np.sin(np.arange(600))).reshape(X.shape)
    places = [("M.a", X), ("M.b", X * 2), ("M.c", X * 3), ("M.d", X)]
    other = [(name, value * (noise if name in ("M.b", "M.c") else 1)) for name, value in places]
    reference, candidate = run_both(meeting, places, other)
    assert candidate.gate.compared == 4 and 0 < candidate.gate.worst < 1e-6 and not candidate.stops
    assert sent == ([], [2400] * 3), "two that differ, and the one after them, before it is known to be equal"


def test_values_go_through_the_pipe_where_memory_cannot_be_read(meeting, sent, monkeypatch):
    monkeypatch.setattr(gate.Shelf, "open", lambda self, place: False)
    big = np.linspace(-1, 1, 1 << 20).reshape(1, 1024, 1024)  # more than a pipe holds
    reference, candidate = run_both(meeting, [("M.a", X), ("M.b", big)], [("M.a", X * 1.0000001), ("M.b", big * 1.1)])
    assert candidate.stops[0][:2] == ("divergence", "M.b") and candidate.gate.compared == 2
    assert sent == ([2400, 4 << 20], [])
    assert np.array_equal(candidate.stops[0][4]["_reference"], np.float32(big))


def test_a_side_that_was_held_meets_the_other_where_it_stood(meeting):
    """One stands at a breakpoint, the other is held where it waits; told to go on, they meet there."""
    places = [("M.a", X), ("M.b", X * 2)]
    reference, candidate = (Program(meeting, side, ["M.a", "M.b"]) for side in ("reference", "candidate"))
    stands, on = threading.Event(), threading.Event()

    def stop(program):
        stands.set()
        assert on.wait(10)

    candidate.at_stop = stop
    threads = [threading.Thread(target=side.run, args=(places,), daemon=True) for side in (candidate, reference)]
    threads[0].start()
    candidate.gate.hold = True
    assert stands.wait(10) and "the other side stands" in candidate.stops[0][3]
    for side in (reference, candidate):
        side.gate.mode, side.gate.turn = "divergence", 1
    on.set()
    threads[1].start()
    [thread.join(10) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    assert (reference.gate.compared, candidate.gate.compared) == (2, 2) and len(candidate.stops) == 1
    assert candidate.gate.passed == reference.gate.passed == 0


def test_a_meeting_that_was_left_in_the_middle_is_for_nobody(meeting, monkeypatch):
    """The candidate is called away while values come in; the rest of them, sent later, is not taken for a message."""
    monkeypatch.setattr(gate.Shelf, "open", lambda self, place: False)
    big = np.linspace(-1, 1, 1 << 21).reshape(2, 1024, 1024)
    reference, candidate = (Program(meeting, side, ["M.a", "M.b"]) for side in ("reference", "candidate"))
    take, left = gate.Wire.take, []

    def leaving(self, one, turn, may_hold=False):
        if one is candidate.gate and not may_hold and not left:
            left.append(one)
            one.mode = "off"
            raise gate.Alone
        return take(self, one, turn, may_hold)

    monkeypatch.setattr(gate.Wire, "take", leaving)
    first = [threading.Thread(target=s.run, args=([("M.a", v)],), daemon=True) for s, v in ((reference, big), (candidate, big + 1))]  # fmt: skip
    [thread.start() for thread in first]
    first[1].join(10)
    reference.gate.mode = "off"  # as the service tells both
    first[0].join(10)
    assert left and not any(thread.is_alive() for thread in first) and candidate.gate.compared == 0
    for side in (reference, candidate):
        side.gate.mode, side.gate.turn, side.gate._thread = "divergence", 1, None
    second = [threading.Thread(target=s.run, args=([("M.b", v)],), daemon=True) for s, v in ((reference, X), (candidate, X * 2))]  # fmt: skip
    [thread.start() for thread in second]
    [thread.join(10) for thread in second]
    assert [stop[:2] for stop in candidate.stops] == [("divergence", "M.b")] == [s[:2] for s in reference.stops]


def test_a_program_that_closes_our_files_is_left_alone(meeting):
    """Numbers of closed descriptors are given to the next file that the program opens: nothing of ours goes there."""
    reference = Program(meeting, "reference", ["M.a"])
    mine = meeting / "mine"
    mine.write_bytes(b"precious")
    for end in (reference.gate._wire._out, reference.gate._wire._in, reference.gate._shelf._file):
        kept = os.open(mine, os.O_RDWR)
        os.dup2(kept, end)
        os.close(kept)
    assert not reference.gate._shelf.put(np.float32(X))
    reference.run([("M.a", X)])
    assert reference.gate.compared == 0 and mine.read_bytes() == b"precious"


# -- how far apart -------------------------------------------------------------------------------------------------------


def judged(one, other):
    return likeness.difference(np.float32(one), list(one.shape), np.float32(other), list(other.shape))


@pytest.fixture(params=["extension", "numpy"])
def form(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "module", None)
    else:
        native.load(None)
        if native.module is None:
            pytest.skip(native.reason)
    return request.param


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 4096, 4097, 10_000])
def test_differences_are_those_of_float64(form, count):
    made = np.random.default_rng(count)
    one = made.standard_normal(count).astype("f4")
    assert judged(one, one)["identical"]
    if not count:
        return
    other = (one + made.standard_normal(count).astype("f4") * 1e-3).astype("f4")
    found, apart = judged(one, other), (other - one).astype("f8")
    assert found["relative"] == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(one.astype("f8")), rel=1e-12)
    assert found["max_abs"] == np.abs(other - one).max() and found["where"] == [int(np.abs(other - one).argmax())]


@pytest.mark.parametrize("at", [3, 5000, 9999])
def test_what_is_no_number(form, at):
    one = np.random.default_rng(1).standard_normal(10_000).astype("f4")
    one[7], one[8] = np.nan, np.inf
    other = one * np.float32(1.5)
    both = judged(one, other)
    finite = np.isfinite(one)
    largest = np.abs(other[finite] - one[finite]).max()
    assert both["relative"] == pytest.approx(0.5, rel=1e-6) and both["max_abs"] == largest
    other[at] = np.nan
    assert np.isnan(judged(one, other)["relative"]) and judged(one, other)["where"] == [at]
    other[at] = -np.inf
    assert judged(one, other)["max_abs"] == float("inf") and judged(one, other)["where"] == [at]


def test_digests_tell_bits_apart(form):
    zero = np.zeros((2, 3), "f4")
    assert likeness.digest_of(zero, "numpy") == likeness.digest_of(zero.copy(), "numpy")
    assert likeness.digest_of(zero, "numpy") != likeness.digest_of(-zero, "numpy")
    strided = np.arange(12, dtype="f4").reshape(3, 4).T
    assert likeness.digest_of(strided, "numpy") == likeness.digest_of(np.ascontiguousarray(strided), "numpy")
    assert likeness.digest_of(np.float32(2).reshape(()), "numpy") == likeness.digest_of(np.float32([2]), "numpy")
