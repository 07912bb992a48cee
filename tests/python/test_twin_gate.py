"""Where the two sides of a twin session meet: two gates over two pipes, each driven by a thread in place of a program."""

import json
import os
import pathlib
import sys
import threading

import pytest

np = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from lockstep.agent import gate  # noqa: E402


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
