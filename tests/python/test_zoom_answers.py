"""What becomes of a zoom's answer: on the terminal, in a comparison, in the report, by its schema, in a session."""

import json
import subprocess
import sys

import pytest
from program import PROGRAM
from zoom_place import REFERENCE, line_of, lines, place  # noqa: F401  place is a fixture

pytest.importorskip("torch")


def test_a_run_that_cannot_be_run_again_says_so(place):  # nor the official pipeline in its place
    place.run("--debug", "generate", "--prompt", "a red circle", "--steps", "2", "--width", "64", "--height", "64",
              "--schedule", "lightning", "--run-name", "engine", "--output", "engine.png")  # fmt: skip
    done = place.run("zoom", "latest:engine", "latest:reference", "--stage", "Block", status=2)
    assert "--operations" in done.stderr


def test_the_terminal_shows_both_sources(place):
    place.write("shown", REFERENCE, ("gate * self.attention", "self.attention"))
    place.record("shown", "--operations", "Block")
    shown = place.run("zoom", "latest:reference", "latest:shown", "--stage", "Block", status=1).stdout
    assert (
        "missing step" in shown
        and "x += self.attention(hidden)" in shown
        and "x += gate * self.attention(hidden)" in shown
    )


def test_a_comparison_can_zoom_by_itself(place):
    text = place.write("both", REFERENCE, ("(q, k, v)\n", "(q, k, v, scale=0.7)\n"))
    place.record("both")
    answer = json.loads(place.run("--json", "compare", "latest:reference", "latest:both", "--zoom", status=1).stdout)
    assert any(line_of(text, "mixed = ") in lines(region) for region in answer["zoom"]["regions"])


def test_the_answer_is_what_the_schema_says(place):
    from test_json_schemas import check

    place.write("schema", REFERENCE, ("(q, k, v)\n", "(q, k, v, scale=0.7)\n"))
    place.record("schema", "--operations", "Block")
    check(place.zoom("schema", "--stage", "Block"), "zoom")
    check(place.zoom("reference", "--stage", "Block", status=0), "zoom")


def test_the_report_shows_both_sources(place):
    place.write("reported", REFERENCE, ("(q, k, v)\n", "(q, k, v, scale=0.7)\n"))
    place.record("reported")
    place.run("compare", "latest:reference", "latest:reported", "--zoom", "--report", "out.html", status=1)
    page = (place.folder / "out.html").read_text()
    assert page.count("mixed = F.scaled_dot_product_attention(q, k, v, scale=0.7)") >= 1 and '"inside":{' in page


def test_a_session_stops_where_zoom_points(place, tmp_path):
    from debug_service import Home

    text = place.write("stopped", REFERENCE, ("(q, k, v)\n", "(q, k, v, scale=0.7)\n"))
    home = Home(tmp_path)
    try:
        for name in ("reference", "stopped"):
            words = ["record", "--operations", "Block", "--name", name, "--", sys.executable, f"{name}.py"]
            subprocess.run(
                [PROGRAM, "--home", str(home.home), "--quiet", *words],
                cwd=place.folder,
                check=True,
                capture_output=True,
                timeout=300,
            )
        home.debug("start", "--python", sys.executable, str(place.folder / "stopped.py"))
        made = home.debug("zoom", "latest:reference", "latest:stopped", "--stage", "Block")
        assert [one["line"] for one in made["breakpoints"]] == [line_of(text, "mixed = ")] and "reference" in made[
            "note"
        ]
        stop = home.debug("continue", "--max-wait", "60")["stop"]
        assert stop["location"]["line"] == line_of(text, "mixed = ") and stop["location"]["file"].endswith("stopped.py")
    finally:
        home.close()


NESTED = """
import torch, torch.nn as nn, torch.nn.functional as F

class Expand(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 4 * width)

    def forward(self, x):
        return F.gelu(self.proj(x), approximate="tanh")

class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([Expand(width), nn.Identity(), nn.Linear(4 * width, width)])

    def forward(self, x):
        for layer in self.net:
            x = layer(x)
        return x

class Flat(nn.Module):
    def __init__(self, official):
        super().__init__()
        self.up, self.down = official.net[0].proj, official.net[2]

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))

class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x):
        return x + self.mlp(self.norm(x))

torch.manual_seed(0)
model = nn.ModuleDict({"block": Block()})
if FLAT:
    model.block.mlp = Flat(model.block.mlp)
with torch.no_grad():
    model.block(torch.randn(2, 6, 16))
"""


def test_a_module_answers_its_counterpart_though_its_parts_are_named_otherwise(place):
    place.write("nested", NESTED.replace("FLAT", "False"))
    text = place.write("flat", NESTED.replace("FLAT", "True"))
    for name in ("nested", "flat"):
        place.record(name)
    answer = json.loads(place.run("--json", "zoom", "latest:nested", "latest:flat", status=1).stdout)
    assert answer["call"]["yours"] == answer["call"]["reference"]
    assert [lines(region) for region in answer["regions"]] == [[line_of(text, "self.down(F.gelu")]]
