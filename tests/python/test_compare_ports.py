"""`lockstep compare` on ports that differ in form, not in value, and on those that differ in both: other layouts, other
counts of calls, other tolerances, maps written by hand."""

import json

import numpy as np
import pytest
from test_compare import compare, normal, write_run


def near(x, relative, seed):
    """x with rounding of that size."""
    return (x + relative * np.sqrt((x**2).mean()) * normal(*x.shape, seed=seed)).astype(np.float32)


def run(folder, tensors):
    """Checkpoints: {name: array} or [(name, {step, hit, tags}, array)]."""
    if isinstance(tensors, dict):
        tensors = [(name, {}, array) for name, array in tensors.items()]
    write_run(folder, [(name, "checkpoint", array) for name, _, array in tensors])
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line, (_, key, _) in zip(lines, tensors):
        line.update(key)
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def packed(x):
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).transpose(0, 2, 4, 1, 3, 5).reshape(b, h * w // 4, c * 4)


@pytest.mark.parametrize("form", [lambda x: x.transpose(0, 2, 3, 1), packed], ids=["channels last", "packed"])
def test_another_layout_is_recognised_although_rounding_has_grown(tmp_path, form):
    stages = {f"stage{i}": normal(1, 16, 8, 12, seed=i) for i in range(8)}
    mine = {name: form(near(x, 5e-7 * (1 + 2 * i), 50 + i)) for i, (name, x) in enumerate(stages.items())}
    done = compare(run(tmp_path / "a", stages), run(tmp_path / "b", mine), "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0, result["first_divergence"]
    assert {t["state"] for t in result["tensors"]} == {"layout"}


@pytest.mark.parametrize("name", ["conv1", "stem"])
def test_a_bug_in_a_channels_last_port_is_measured_not_called_another_capture(tmp_path, name):
    x = normal(1, 48, 8, 6)
    y = x.copy()
    y[:, :, [0, -1]] += 0.5 * normal(1, 48, 2, 6, seed=1)
    y[:, :, :, [0, -1]] += 0.5 * normal(1, 48, 8, 2, seed=2)
    a = run(tmp_path / "a", {name: x, "out": x[0, :4] * 2})
    b = run(tmp_path / "b", {name: y.transpose(0, 2, 3, 1), "out": y[0, :4] * 2})
    first = json.loads(compare(a, b, "--json").stdout)["first_divergence"]
    assert (first["name"], first["kind"]) == (name, "glue") and first["error"]["relative"] < 1
    assert first["region"] == "only the border rows and columns"
    # Nothing in common: the sizes still say which axis is which, and it is no matter of the capture.
    b = run(tmp_path / "c", {name: normal(1, 8, 6, 48, seed=5), "out": normal(4, 8, 6, seed=6)})
    first = json.loads(compare(a, b, "--json").stdout)["first_divergence"]
    assert first["kind"] == "glue" and 1 < first["error"]["relative"] < 2


def test_other_shapes_are_no_rounding(tmp_path):
    x = normal(1, 32, 16)
    a = run(tmp_path / "a", {name: x * (i + 1) for i, name in enumerate("vwxyz")})
    b = run(tmp_path / "b", {name: x[:, :20] * (i + 1) for i, name in enumerate("vwxyz")})
    text = compare(a, b).stdout
    assert "rounding grows" not in text and "the model itself may be right" not in text
    assert "32 tokens where yours holds 20" in text


def test_a_call_more_at_the_beginning_is_told(tmp_path):
    calls = [normal(1, 32, 16, seed=s).cumsum(1) for s in range(4)]
    a = run(tmp_path / "a", [("blk", {"hit": s}, calls[s]) for s in range(3)])
    b = run(tmp_path / "b", [("blk", {"hit": 0}, calls[3])] + [("blk", {"hit": s + 1}, calls[s]) for s in range(3)])
    result = json.loads(compare(a, b, "--json").stdout)
    assert result["causes"][0]["cause"] == "capture.other_hit" and result["first_divergence"]["kind"] == "capture"
    assert (
        "your blk #1" in result["causes"][0]["explanation"]
        and "3 in the reference and 4 in yours" in result["causes"][0]["explanation"]
    )


def test_why_nothing_was_compared(tmp_path):
    x = normal(1, 32, 16)
    passes = [("eps", {"step": s, "tags": {"pass": p}}, x) for s in range(3) for p in ("cond", "uncond")]
    a = run(tmp_path / "a", passes)
    other = normal(1, 32, 16, seed=7)  # equal content would be compared, whatever its pass
    single = compare(a, run(tmp_path / "b", [("eps", {"step": s}, other) for s in range(3)]))
    assert single.returncode == 2 and "propose-map" not in single.stderr and "steps, hits and passes" in single.stderr
    assert (
        "eps: 6 of the reference (steps 0 to 2, pass=cond, pass=uncond) against 3 of yours (steps 0 to 2, no pass)"
        in single.stdout
    )
    only = compare(a, a, "--only", "nothing.*")
    assert only.returncode == 2 and "--only nothing.*" in only.stderr
    empty = compare(a, run(tmp_path / "c", {}))
    assert empty.returncode == 2 and "hold records" in empty.stderr


def test_both_passes_in_one_batch_are_compared_with_their_own(tmp_path):
    cond, uncond = normal(1, 32, 16), normal(1, 32, 16) + 1
    a = run(
        tmp_path / "a",
        [
            ("eps", {"step": s, "tags": {"pass": p}}, x)
            for s in range(3)
            for p, x in (("cond", cond), ("uncond", uncond))
        ],
    )
    b = run(tmp_path / "b", [("eps", {"step": s}, np.concatenate([uncond, cond])) for s in range(3)])
    done = json.loads(compare(a, b, "--json").stdout)
    assert done["verdict"] == "match" and done["compared"] == 6
    assert any("in one batch (unconditional first, by their values)" in note for note in done["notes"])


def test_the_most_specific_tolerance_decides_and_is_told(tmp_path):
    x = normal(1, 32, 16)
    a = run(tmp_path / "a", {"x": x, "blk.y": x, "z": x})
    b = run(tmp_path / "b", {"x": x, "blk.y": x * np.float32(1.002), "z": x})
    (tmp_path / "t.json").write_text('{"*": 1e-2, "blk.*": 1e-3, "nothing": 1}')
    text = compare(a, b, "--tolerances", tmp_path / "t.json").stdout
    assert text.startswith("MISMATCH: first at blk.y") and "2 times its tolerance of 1.00e-03" in text
    assert "the tolerance for nothing fits no tensor of the reference" in text
    (tmp_path / "t.json").write_text('{"*": 1e-3, "blk.*": 1e-2}')
    assert compare(a, b, "--tolerances", tmp_path / "t.json").returncode == 0


def test_the_factor_of_a_noise_run_is_the_one_that_is_used(tmp_path):
    x = normal(1, 64, 32)
    a = run(tmp_path / "a", {"x": x})
    noise = run(tmp_path / "n", {"x": near(x, 1e-3, 1)})
    for relative, status in ((2.5e-3, 0), (3.5e-3, 1)):
        done = compare(a, run(tmp_path / str(status), {"x": near(x, relative, 2)}), "--noise", noise, "--json")
        assert done.returncode == status and json.loads(done.stdout)["noise"]["factor"] == 3
    assert "beyond 3 floors" in compare(a, tmp_path / "1", "--noise", noise).stdout


@pytest.mark.parametrize(
    "rule, said",
    [
        ({"permute": "a"}, '"permute" of a rule'),
        ({"slice": {"from": 1}}, '"slice" of a rule'),
        ({"reshape": [1, "x"]}, '"reshape" of a rule'),
        ({"permut": [0, 2, 1]}, 'unknown field "permut"'),
        ({"reference": "*.x"}, "more stars"),
        ({"permute": [0, 1, 5]}, "the rule for x does not fit [1, 32, 16]"),
        ({"slice": [1, 0, 500]}, "the rule for x does not fit [1, 32, 16]"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_by_name(tmp_path, rule, said):
    a = run(tmp_path / "a", {"x": normal(1, 32, 16)})
    (tmp_path / "map.json").write_text(json.dumps({"rules": [{"candidate": "x", "reference": "x"} | rule]}))
    done = compare(a, a, "--map", tmp_path / "map.json")
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_rule_that_fits_nothing_is_said(tmp_path):
    a = run(tmp_path / "a", {"x": normal(1, 32, 16)})
    (tmp_path / "map.json").write_text('{"rules": [{"candidate": "layers.*.x", "reference": "blocks.*.x"}]}')
    assert "the map's layers.*.x is no tensor of yours" in compare(a, a, "--map", tmp_path / "map.json").stdout


def test_pixels_that_are_one_level_off_agree(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(1, 200, (64, 64, 3)).astype(np.uint8)
    off = (pixels + rng.integers(-1, 2, pixels.shape)).astype(np.uint8)
    assert compare(run(tmp_path / "a", {"image": pixels}), run(tmp_path / "b", {"image": off})).returncode == 0
    off[0, 0, 0] += 40
    assert compare(tmp_path / "a", run(tmp_path / "c", {"image": off})).returncode == 1


@pytest.mark.parametrize("form", ["bytes", "unit", "signed", "channels first", "batch"])
def test_pictures_of_any_form_have_psnr_and_ssim(tmp_path, form):
    pixels = (np.random.default_rng(0).random((48, 64, 3)) * 60 + np.linspace(0, 150, 48)[:, None, None]).astype(
        np.uint8
    )
    wrong = pixels.copy()
    wrong[10:20, 10:30] = 255 - wrong[10:20, 10:30]
    as_form = {
        "bytes": lambda x: x,
        "unit": lambda x: (x / np.float32(255)).astype(np.float32),
        "signed": lambda x: (x / np.float32(127.5) - 1).astype(np.float32),
        "channels first": lambda x: (x / np.float32(255)).astype(np.float32).transpose(2, 0, 1)[None],
        "batch": lambda x: np.stack([pixels, x]),
    }[form]
    a, b = run(tmp_path / "a", {"out.image": as_form(pixels)}), run(tmp_path / "b", {"out.image": as_form(wrong)})
    done = compare(a, b, "--json", "--report", tmp_path / "out.html")
    images = json.loads(done.stdout)["images"]
    name = "out.image[1]" if form == "batch" else "out.image"
    mse = ((pixels.astype(float) - wrong) ** 2).mean()
    assert images[name]["psnr"] == pytest.approx(10 * np.log10(255**2 / mse), abs=1e-3) and images[name]["ssim"] < 0.95
    assert f'"{name}"' in (tmp_path / "out.html").read_text()
    if form == "batch":
        assert images["out.image[0]"]["psnr"] == "Infinity"


@pytest.mark.parametrize(
    "name, shape, part, words",
    [
        ("blk.attn", (1, 8, 32, 16), np.s_[:, 3], "only head 3"),
        ("blk.attn", (1, 32, 8, 16), np.s_[:, :, 3], "only head 3"),
        ("attn_scores", (1, 8, 20, 20), np.s_[..., 12:], "only keys 12 and later"),
        ("down.0.res", (1, 16, 24, 24), np.s_[:, :, 0], "only row 0"),
        ("stem", (1, 24, 24, 16), np.s_[:, :, 5], "only column 5"),
        ("mystery", (1, 9, 24, 16), np.s_[:, 2], "only index 2 of axis 1"),
        ("six", (1, 2, 3, 4, 5, 6), np.s_[:, :, 2], "only index 2 of axis 2"),
        ("blk", (1, 300, 16), np.s_[0, 17, 5], "one element, [0, 17, 5]"),
        ("blk", (1, 300, 16), (np.zeros(3, int), np.array([17, 100, 200]), np.array([5, 9, 1])), "3 elements here and there, the first is [0, 17, 5]"),
    ],
)  # fmt: skip
def test_where_in_the_tensor(tmp_path, name, shape, part, words):
    x = normal(*shape)
    y = x.copy()
    y[part] += 2 + np.abs(normal(*np.shape(y[part]), seed=9))
    first = json.loads(compare(run(tmp_path / "a", {name: x}), run(tmp_path / "b", {name: y}), "--json").stdout)[
        "first_divergence"
    ]
    assert first["region"] == words


def blocks(names, bad_from=99, seed=0):
    """Six blocks of four tensors under `names`, wrong from block `bad_from` on."""
    out = {}
    for i in range(6):
        for part, name in enumerate(names):
            x = normal(1, 48, 48, seed=i * 10 + part) * (part + 1)
            wrong = normal(1, 48, 48, seed=seed + i * 10 + part + 500) * (part + 1)
            out[name.format(i)] = x if i < bad_from else wrong
    return out


THEIRS = ["net.blocks.{}.norm", "net.blocks.{}.attn.key", "net.blocks.{}.attn.out", "net.blocks.{}.fc2"]
OURS = {"layer{}/ln1": "net.blocks.#.norm", "layer{}/attn": "net.blocks.#.attn.out", "layer{}/mlp": "net.blocks.#.fc2"}


@pytest.mark.parametrize("bad_from", [2, 4])
def test_blocks_counted_in_a_word_teach_each_other(tmp_path, bad_from):
    mine = blocks(["layer{}/ln1", "left out {}", "layer{}/attn", "layer{}/mlp"], bad_from)
    mine = {name: x for name, x in mine.items() if not name.startswith("left out")}
    a, b = run(tmp_path / "a", blocks(THEIRS)), run(tmp_path / "b", mine)
    done = compare(a, b, "--propose-map", tmp_path / "map.json", "--json")
    rules = {rule["candidate"]: rule["reference"] for rule in json.loads((tmp_path / "map.json").read_text())["rules"]}
    assert rules == {name.format("#"): reference for name, reference in OURS.items()}
    assert json.loads(done.stdout)["first_divergence"]["name"] == f"net.blocks.{bad_from}.norm"


def test_a_proposal_says_that_axes_are_moved(tmp_path):
    x = normal(1, 16, 8, 12)
    a, b = run(tmp_path / "a", {"vae.conv_in": x}), run(tmp_path / "b", {"stem": x.transpose(0, 2, 3, 1)})
    done = compare(a, b, "--propose-map", tmp_path / "map.json")
    assert "stem is probably vae.conv_in (equal content, axes in the order 0, 3, 1, 2)" in done.stderr
    assert "the map takes its axes in the order 0, 3, 1, 2" in done.stdout
