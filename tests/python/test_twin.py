"""Twin sessions: a reference and its port in step, on real models of torch and MLX."""

import json
import pathlib
import subprocess
import sys

import pytest
from debug_service import PROGRAM, alive

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
pytest.importorskip("torch")

REFERENCE = """import torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.lin = torch.nn.Linear(16, 16)

    def forward(self, x):
        scale = 1.0
        h = self.lin(self.norm(x) * scale)
        return x + h

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

net = Net()
x = torch.randn(2, 16)
with torch.no_grad():
    for turn in range(2):
        y = net(x)
print("sum", round(float(y.sum()), 4))
"""
WRONG = REFERENCE.replace("net = Net()", "net = Net()\nbad = id(net.blocks[2])").replace(
    "scale = 1.0", "scale = 1.05 if id(self) == bad else 1.0"
)
WRONG = WRONG.replace("class Net(", "class Port(").replace("net = Net()", "net = Port()")


def twin(home, candidate, *words, reference=REFERENCE):
    return home.debug(
        "twin",
        "start",
        home.write("reference.py", reference),
        home.write("candidate.py", candidate),
        "--python",
        home.python,
        *words,
    )


def together(home, *words):
    """The answer once both stand or have ended: on a busy machine importing torch alone may take longer than a call waits."""
    answer = home.debug("twin", *words)
    while any(answer[side]["state"] == "running" for side in ("reference", "candidate")):
        answer = home.debug("twin", "wait")
    return answer


def stops(answer):
    return [answer[side].get("stop", {}).get("description", "") for side in ("reference", "candidate")]


def test_both_stop_where_they_part_with_their_frames_alive(home):
    began = twin(home, WRONG)
    assert began["stopped"] and began["reference"]["stop"]["reason"] == "entry"
    found = together(home, "continue", "--until-divergence")
    assert found["stopped"]
    for side, name in (("reference", "Net"), ("candidate", "Port")):
        stop = found[side]["stop"]
        assert stop["reason"] == "divergence" and f"output of {name}.blocks.2.lin, call 0" in stop["description"]
        assert stop["location"]["function"] == "Block.forward"
    rows = {row["name"]: row for row in home.debug("twin", "vars")["variables"]}
    assert (rows["scale"]["reference"]["text"], rows["scale"]["candidate"]["text"]) == ("1.0", "1.05")
    assert rows["x"]["difference"]["unequal"] == 0, "what went in is the same"
    looked = home.debug("twin", "eval", "self.norm(x) * scale")
    assert looked["difference"]["relative"] == pytest.approx(0.05, rel=1e-3)
    apart = home.debug("eval", "float((_output - _reference).abs().max())", "--session", "candidate-candidate")[
        "value"
    ]["value"]
    assert apart == pytest.approx(found["candidate"]["stop"]["data"]["max_abs"], rel=1e-5)
    both = together(home, "next")
    assert [both[side]["stop"]["location"]["text"] for side in ("reference", "candidate")] == ["return x + h"] * 2
    ended = home.debug("twin", "terminate")
    assert not any(alive(ended[side]["pid"]) for side in ("reference", "candidate"))


def test_a_substituted_tensor_makes_the_rest_right(home):
    twin(home, WRONG)
    together(home, "continue", "--until-divergence")
    again = together(home, "substitute")
    assert all("blocks.2.lin, call 1" in text for text in stops(again)), (
        "the first call is mended, the second parts again"
    )
    done = together(home, "substitute", "--name", "*.blocks.2.lin")
    assert done["candidate"]["state"] == "ended", "nothing else parts: that was all"
    assert done["comparison"]["worst"] < 1 and done["comparison"]["compared"] == 26
    logs = [pathlib.Path(done[side]["output"]).read_text() for side in ("reference", "candidate")]
    assert logs[0] == logs[1] and logs[0].startswith("sum ")


def test_a_module_that_is_always_substituted_does_not_stop_again(home):
    """From the first divergence on: later calls of that module part too, and were stopped at one by one."""
    twin(home, WRONG.replace("range(2)", "range(3)"), reference=REFERENCE.replace("range(2)", "range(3)"))
    together(home, "continue", "--until-divergence")
    done = together(home, "substitute", "--name", "*.blocks.2.lin")
    assert [done[side]["state"] for side in ("reference", "candidate")] == ["ended", "ended"], stops(done)
    assert done["comparison"]["compared"] == 39
    logs = [pathlib.Path(done[side]["output"]).read_text() for side in ("reference", "candidate")]
    assert logs[0] == logs[1] and logs[0].startswith("sum ")


def test_equal_programs_end_together_and_places_are_the_same(home):
    twin(home, REFERENCE.replace("class Net(", "class Port(").replace("Net()", "Port()"))
    at = together(home, "continue", "--at", "*.blocks.1.norm")
    assert all("blocks.1.norm, call 0: relative error 0" in text for text in stops(at))
    assert all("blocks.1.lin, call 0" in text for text in stops(together(home, "next", "--call")))
    step = together(home, "continue", "--at", "*.blocks.1.norm", "--call", "1")
    assert all("blocks.1.norm, call 1" in text for text in stops(step)), stops(step)
    done = together(home, "continue", "--until-divergence")
    assert [done[side]["end"]["exit_code"] for side in ("reference", "candidate")] == [0, 0]
    assert done["comparison"]["worst"] == 0 and done["comparison"]["passed"] == 0


def test_a_side_that_ends_lets_the_other_go_on(home):
    twin(home, REFERENCE.replace("y = net(x)", "y = net.blocks[0](x)"))
    done = together(home, "continue", "--until-divergence")
    assert [done[side]["state"] for side in ("reference", "candidate")] == ["ended", "ended"]
    with pytest.raises(AssertionError, match="no twin session"):
        home.debug("twin", "status", "--twin", "nobody")


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_breakpoint_of_one_side_holds_the_other_and_both_go_on(home, side):
    """What the held side had said before was taken for an answer later, and a KeyError came up in the program."""
    twin(home, WRONG)
    line = next(n for n, text in enumerate(WRONG.splitlines(), 1) if "return x + h" in text)
    home.debug("break", f"{side}.py:{line}", "--hits", "2", "--session", f"candidate-{side}")
    held = together(home, "continue", "--until-divergence")
    other = "candidate" if side == "reference" else "reference"
    assert (
        held[side]["stop"]["reason"] == "breakpoint" and "the other side stands" in held[other]["stop"]["description"]
    )
    home.debug("clear", "--session", f"candidate-{side}")
    found = together(home, "continue", "--until-divergence")
    assert all("blocks.2.lin, call 0" in text for text in stops(found)), stops(found)
    assert found["comparison"]["compared"] == 8 and found["comparison"]["passed"] == 0


def test_a_port_to_mlx_is_held_to_torch(home):
    pytest.importorskip("mlx.core")
    pytest.importorskip("numpy")
    save = "\nimport numpy as np\nnp.savez('weights.npz', x=x.numpy(), **{name: value.detach().numpy() for name, value in net.state_dict().items()})\n"
    script = home.write("weights.py", REFERENCE + save)
    subprocess.run([sys.executable, script], cwd=home.folder, check=True, stdout=subprocess.DEVNULL)
    port = """import mlx.core as mx
import mlx.nn as nn
import numpy as np
held = np.load("weights.npz")

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.LayerNorm(16, eps=EPS)
        self.lin = nn.Linear(16, 16)

    def __call__(self, x):
        return x + self.lin(self.pre(x))

class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Layer() for _ in range(4)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

port = Port()
names = {key: key.replace("blocks", "layers").replace("norm", "pre") for key in held.files if key != "x"}
port.load_weights([(ours, mx.array(held[theirs])) for theirs, ours in names.items()])
y = port(mx.array(held["x"]))
mx.eval(y)
"""
    rules = home.write(
        "names.json",
        json.dumps(
            {
                "rules": [
                    {"candidate": "Port.layers.#.pre", "reference": "Net.blocks.#.norm"},
                    {"candidate": "Port.layers.*", "reference": "Net.blocks.*"},
                ]
            }
        ),
    )
    reference = REFERENCE.replace("range(2)", "range(1)")
    twin(home, port.replace("EPS", "1e-5"), "--map", rules, reference=reference)
    done = together(home, "continue", "--until-divergence")
    assert done["candidate"]["state"] == "ended", stops(done)
    assert done["comparison"]["compared"] >= 12 and 0 < done["comparison"]["worst"] < 1e-5
    twin(home, port.replace("EPS", "1e-2"), "--map", rules, reference=reference)
    parted = together(home, "continue", "--until-divergence")
    assert "Port.layers.0.pre" in stops(parted)[1] and "Net.blocks.0.norm" in stops(parted)[0]
