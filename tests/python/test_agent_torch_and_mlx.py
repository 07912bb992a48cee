"""Each on a torch and on an MLX program: paths, loops, crashes, copies of a library, lines that have not run."""

import pytest
from debug_client import Session, line_of, program
from program import installed_frameworks

pytestmark = [pytest.mark.parametrize("framework", installed_frameworks())]

HEAD = {"torch": "import torch as fw\nfw.manual_seed(0)\n", "mlx": "import mlx.core as fw\nfw.random.seed(0)\n"}
MODEL = """
    class Denoiser:
        def __init__(self, fw, size):
            self.fw = fw
            self.weight = fw.ones((size, size)) / size

        def step(self, latents, sigma):
            noise = self.fw.matmul(latents, self.weight)
            latents = latents - sigma * noise
            return latents
"""
MAIN = """
from port.model import Denoiser

sigmas = [1.0, 0.5, 0.25, 0.0]
latents = fw.ones((2, 4))
net = Denoiser(fw, 4)
for i in range(4):
    latents = net.step(latents, sigmas[i])
total = latents.sum()
print("mean", float(total) / 8)
"""


def port(tmp_path, framework, main=MAIN, folder="real"):
    """A small port: real/port/model.py and main.py beside it."""
    program(tmp_path / folder, "", "port/__init__.py")
    model = program(tmp_path / folder, MODEL, "port/model.py")
    return model, program(tmp_path / folder, HEAD[framework] + main, "main.py")


def test_paths_are_normalised(tmp_path, framework):
    model, main = port(tmp_path, framework)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    line = line_of(model, "latents = latents - ")
    with Session(main, cwd=tmp_path) as s:
        s.stopped()
        for where in (
            f"{model}:{line}",
            f"{tmp_path}/link/port/model.py:{line}",
            f"real/port/../port/model.py:{line}",
            f"port/model.py:{line}",
        ):
            s.ask("break", where=where, once=True)
        assert s.go()["breakpoints"] == [1]
        assert s.ask("vars")["variables"][1]["value"]["tensor"]["shape"] == [2, 4]
        for number in (2, 3, 4):  # the other spellings mean the same place
            assert s.go()["breakpoints"] == [number]
        assert s.finish()["code"] == 0


def test_a_loop_breakpoint_is_removed_on_the_fly(tmp_path, framework):
    model, main = port(tmp_path, framework)
    with Session(main, cwd=tmp_path) as s:
        s.stopped()
        number = s.ask("break", where="Denoiser.step", condition="sigma > 0")["breakpoint"]["id"]
        s.go()
        s.go()
        assert s.eval("sigma") == 0.5
        s.ask("remove", id=number)
        assert s.finish()["code"] == 0 and s.output().startswith("mean")


def test_a_crash_in_the_middle_stops_in_its_frame(tmp_path, framework):
    model, main = port(tmp_path, framework, MAIN.replace("net = Denoiser(fw, 4)", "net = Denoiser(fw, 5)"))
    with Session(main, cwd=tmp_path) as s:
        s.stopped()
        stop = s.go()
        assert (
            stop["reason"] == "exception"
            and stop["location"]["function"] == "Denoiser.step"
            and not stop["not_run_yet"]
        )
        assert stop["location"]["line"] == line_of(model, "noise = ") and stop["exception"]["type"] in (
            "RuntimeError",
            "ValueError",
        )
        assert s.eval("latents.shape[1], self.weight.shape[0]") == "tuple of 2: 4, 5"
        assert s.eval("i", frame=1) == 0
        gone = s.finish()
        assert gone["how"] == "exception" and gone["code"] == 1 and "Traceback" in s.output()


def test_a_silent_crash_before_the_breakpoint_is_told(tmp_path, framework):
    _, main = port(
        tmp_path, framework, MAIN.replace("latents = fw.ones((2, 4))", "latents = fw.ones((2, 4)).reshape(3, 3)")
    )
    with Session(main, cwd=tmp_path, options={"stop_on_exception": "never"}) as s:
        s.stopped()
        s.ask("break", where="total = latents.sum()")
        gone = s.finish()
        assert gone["how"] == "exception" and gone["location"]["line"] == line_of(main, "reshape(3, 3)")
        why = next(event for event in s.passed if event["event"] == "final")["why"]["1"]["causes"]
        ended = next(cause for cause in why if cause["cause"] == "ended_first")
        assert f"main.py:{line_of(main, 'reshape(3, 3)')}" in ended["message"]


def test_another_copy_and_the_wrong_file_are_named(tmp_path, framework):
    clone, _ = port(tmp_path, framework, folder="clone")
    program(tmp_path / "clone", "", "pyproject.toml")
    installed, main = port(tmp_path, framework)
    wrong = program(tmp_path / "real", MODEL, "port/model_v1.py")
    with Session(main, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where=f"{clone}:{line_of(clone, 'noise = ')}")
        s.ask("break", where=f"{wrong}:{line_of(wrong, 'noise = ')}")
        s.ask("break", where="total = latents.sum()")
        assert s.go()["breakpoints"] == [3]
        cause = s.ask("why", id=1)["causes"][0]
        assert cause["cause"] == "other_copy" and cause["imported"] == str(installed)
        assert cause["command"].endswith(f"-m pip install -e {tmp_path / 'clone'}")
        assert s.ask("why", id=2)["causes"][0]["cause"] == "never_executed"
        ran = {one["file"]: one["functions_run"] for one in s.ask("files", filter=str(tmp_path))["files"]}
        assert ran[str(installed)] == 2 and str(wrong) not in ran and str(clone) not in ran


def test_the_line_has_not_run_yet(tmp_path, framework):
    model, main = port(tmp_path, framework)
    with Session(main, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", where=f"{model}:{line_of(model, 'latents = latents - ')}", once=True)
        stop = s.go()
        assert stop["not_run_yet"] and s.ask("location")["note"] == "this line has not run yet"
        assert s.ask("eval", expression="latents")["value"]["tensor"]["stats"]["mean"] == 1.0
        assert s.go("next")["location"]["line"] == stop["location"]["line"] + 1
        assert s.ask("eval", expression="latents")["value"]["tensor"]["stats"]["mean"] == 0.0
        s.ask("set", name="latents", value="latents + 3")
        s.ask("break", where="total = latents.sum()")
        s.go()
        assert s.eval("float(latents[0, 0])") > 0  # what was set went on through the loop


def test_a_sigma_beyond_the_end(tmp_path, framework):
    """torch raises, and the program stops there; MLX reads what lies behind, and the session says so."""
    main = MAIN.replace("sigmas = [1.0, 0.5, 0.25, 0.0]", "sigmas = fw.linspace(1.0, 0.0, 4)").replace(
        "range(4)", "range(5)"
    )
    _, main = port(tmp_path, framework, main)
    with Session(main, cwd=tmp_path, options={"check_bounds": True}) as s:
        s.stopped()
        stop = s.go()
        assert stop["location"]["line"] == line_of(main, "sigmas[i]") and s.eval("i") == 4
        if framework == "torch":
            assert stop["reason"] == "exception" and stop["exception"]["type"] == "IndexError"
        else:
            assert stop["reason"] == "bounds" and stop["bounds"] == {
                "index": 4,
                "axis": 0,
                "size": 4,
                "shape": [4],
                "expression": "latents = net.step(latents, sigmas[i])",
            }
            assert s.finish()["code"] == 0


@pytest.mark.parametrize("kind", ["when", "nan"])
def test_the_first_module_whose_output_fits(tmp_path, framework, kind):
    base = {"torch": ("fw.nn.Module", "forward"), "mlx": ("nn.Module", "__call__")}[framework]
    text = (
        HEAD[framework]
        + ("import mlx.nn as nn\n" if framework == "mlx" else "nn = fw.nn\n")
        + f"""
class Block({base[0]}):
    def __init__(self, factor):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.factor = factor
    def {base[1]}(self, x):
        return self.proj(x) * self.factor
class Net({base[0]}):
    def __init__(self):
        super().__init__()
        self.first = Block(1.0)
        self.second = Block(1e6 if {kind == "when"} else float("nan"))
        self.third = Block(1.0)
    def {base[1]}(self, x):
        x = self.first(x)
        x = self.second(x)
        return self.third(x)
Net()(fw.ones((2, 4)))
"""
    )
    path = program(tmp_path, "", "net.py")
    path.write_text(text)
    with Session(path, cwd=tmp_path) as s:
        s.stopped()
        s.ask("break", module="Net.*", **({"when": "absmax > 1e4"} if kind == "when" else {"nan": True}))
        stop = s.go()
        assert (
            stop["reason"] == "data"
            and stop["data"]["module"] == "Net.second"
            and stop["location"]["text"] == "x = self.second(x)"
        )
        s.ask("clear")
        assert s.finish()["code"] == 0
