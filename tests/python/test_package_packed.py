"""Tensors in lists, tuples and dictionaries, given to checkpoint() or among the caller's variables."""

import collections
import dataclasses

import numpy as np
import pytest
from test_package_edges import home, records_of  # noqa: F401  home: a fixture

torch = pytest.importorskip("torch")
import lockstep  # noqa: E402

Pair = collections.namedtuple("Pair", "q k")


@dataclasses.dataclass
class State:
    hidden: object
    length: int


def names_of(run):
    return [one["name"] for one in records_of(run)]


def test_each_tensor_is_recorded_by_its_place():
    """A list was "no tensor": nothing of it was recorded."""
    one, two = torch.ones(2), torch.zeros(3)
    cases = {
        "list": ([one, two], ["0", "1"]),
        "tuple": ((one, None, two), ["0", "2"]),
        "dict": ({"q": one, 3: [two]}, ["q", "3.0"]),
        "named": (Pair(one, two), ["0", "1"]),
        "state": (State((one, two), 2), ["hidden.0", "hidden.1"]),
        "mixed": ([1.5, "text", np.ones(2)], ["2"]),
    }
    with lockstep.run("t") as run:
        for name, (value, _) in cases.items():
            assert lockstep.checkpoint(name, value) is value
        first, second = lockstep.checkpoint("several", a=[one], b=two, step=3)
        assert first[0] is one and second is two
    expected = [f"{name}.{path}" for name, (_, paths) in cases.items() for path in paths]
    assert names_of(run) == [*expected, "several.a.0", "several.b"]
    assert all(record["where"]["file"] == __file__ for record in records_of(run))


def test_the_references_values_stand_in_a_container_of_the_same_kind():
    with lockstep.run("reference"):
        lockstep.checkpoint("x", [torch.full((2,), 7.0), torch.full((2,), 8.0)])
        lockstep.checkpoint("y", collections.OrderedDict(q=torch.full((2,), 9.0)))
        lockstep.checkpoint("z", Pair(torch.full((2,), 5.0), None))
    with lockstep.run("mine", reference="latest:reference", substitute="x.1,y.*,z.*"):
        x, y, z = (
            [torch.zeros(2), torch.zeros(2)],
            collections.OrderedDict(q=torch.zeros(2)),
            Pair(torch.zeros(2), "kept"),
        )
        new_x, new_y, new_z = lockstep.checkpoint("x", x), lockstep.checkpoint("y", y), lockstep.checkpoint("z", z)
    assert new_x[0] is x[0] and new_x[1].tolist() == [8, 8] and x[1].tolist() == [0, 0]
    assert type(new_y) is collections.OrderedDict and new_y["q"].tolist() == [9, 9] and y["q"].tolist() == [0, 0]
    assert type(new_z) is Pair and new_z.q.tolist() == [5, 5] and new_z.k == "kept"


def test_variables_that_hold_tensors_are_opened(capfd):
    mlx = pytest.importorskip("mlx.nn")

    def block(self, hidden, cache):
        nothing, itself = [1, 2], [hidden]
        itself.append(itself)
        lockstep.checkpoint("block")
        return nothing

    with lockstep.run("t") as run:
        block(mlx.Linear(2, 2), torch.ones(1), {"k": [torch.ones(2)], "v": 3})
    assert names_of(run) == ["block.hidden", "block.cache.k.0", "block.itself.0"]
    assert capfd.readouterr().err == ""


def test_what_holds_no_tensor_or_cannot_be_opened_costs_one_warning(capfd):
    class Odd(dict):
        def items(self):
            raise KeyError("its own way")

    with lockstep.run("t"):
        for value in ([1, 2], Odd(a=1)):
            assert lockstep.checkpoint("x", value) is value
            assert lockstep.checkpoint("x", value) is value
    assert capfd.readouterr().err.splitlines() == [
        "lockstep: x is not recorded: a list is no tensor",
        "lockstep: x is not recorded: 'its own way'",
    ]
