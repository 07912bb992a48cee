"""The tools that make goldens and check parity: they judge everything else, so they are judged first."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("diffusers")
import torch  # noqa: E402

torch.set_num_threads(1)  # tensors this small cost more to share out than to compute

REPO = Path(__file__).resolve().parents[2]
GOLDENS = REPO / "tests" / "goldens"
sys.path.insert(0, str(REPO / "tools" / "reference"))

import compare_runs  # noqa: E402
import golden_store  # noqa: E402
import make_goldens  # noqa: E402
import parity  # noqa: E402
import record_official  # noqa: E402
import run_writer  # noqa: E402
import tiny_pipeline  # noqa: E402
import tiny_tokenizer  # noqa: E402


def write_run(folder: Path, tensors: dict) -> run_writer.Run:
    writer = run_writer.RunWriter(folder, {"name": "test"})
    for (name, step, tags), value in tensors.items():
        writer.record(name, value, step=step, tags=dict(tags))
    writer.close()
    return run_writer.Run(folder)


def stage_tensors() -> dict:
    """One tensor for each stage a comparison insists on."""
    generator = torch.Generator().manual_seed(0)
    tensors = {(name, None, ()): torch.randn(4, 8, generator=generator) for name in compare_runs.REQUIRED_STAGES}
    tensors[("image", None, ())] = torch.randint(0, 256, (8, 8, 3), generator=generator, dtype=torch.uint8)
    return tensors


def test_template_prefix_is_34_tokens():
    tokenizer = tiny_tokenizer.make_tokenizer(300)
    prefix = (
        "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
        "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
    )
    assert len(tokenizer(prefix).input_ids) == 34
    assert len(tokenizer) == 256 + 300 + 22
    assert tokenizer.pad_token_id == 256 + 300


def test_tokenizer_matches_committed_ids():
    from transformers import Qwen2Tokenizer

    document = json.loads((GOLDENS / "tokens" / "tokens.json").read_text("utf-8"))
    tokenizer = Qwen2Tokenizer.from_pretrained(GOLDENS / document["tokenizer"])
    for case in document["cases"]:
        assert tokenizer(case["text"]).input_ids == case["ids"], case["text"]


def test_every_random_config_is_valid():
    for seed in range(300):
        tiny_pipeline.complete(tiny_pipeline.random_config(seed))
        case = parity.draw_case(seed)
        assert case == parity.draw_case(seed)
        tiny_pipeline.complete(case["model"])


def test_contradicting_config_is_refused():
    with pytest.raises(ValueError, match="axes"):
        tiny_pipeline.complete({"head_dim": 32, "axes": [8, 8, 8]})
    with pytest.raises(ValueError, match="unknown option"):
        tiny_pipeline.complete({"layer": 3})


def test_no_parameter_keeps_its_default():
    pipeline = tiny_pipeline.build(0, layers=1, heads=1, vae_base=4, vae_res_blocks=1)
    for component in ("transformer", "vae", "text_encoder"):
        for name, parameter in getattr(pipeline, component).named_parameters():
            assert parameter.numel() == 1 or parameter.std() > 0.01, f"{component}.{name}"


def test_stats_and_preview_are_strict_json():
    array = np.array([1.0, -2.0, 0.0, np.nan, np.inf, 1e-40], dtype=np.float32)
    stats = run_writer.stats(array)
    assert (stats["nan"], stats["inf"], stats["zero"], stats["denormal"]) == (1, 1, 1, 1)
    assert (stats["min"], stats["max"], stats["absmax"]) == (-2.0, 1.0, 2.0)
    assert run_writer.preview(array)[3:5] == ["NaN", "Infinity"]
    json.dumps([stats, run_writer.preview(array)], allow_nan=False)


def test_checksum_is_xxh3_128():
    if run_writer.checksum(np.zeros(0, np.uint8)) is None:
        pytest.skip("neither the xxhash package nor libxxhash is installed")
    assert run_writer.checksum(np.zeros(0, np.uint8)) == "99aa06d3014798d86001c324468d497f"


def test_file_names_never_collide_nor_leave():
    names = ["a/b", "a%2Fb", "a.b", "..", ".", "../x", "a b", "a_b", "é", "A"]
    escaped = [run_writer.escape(name) for name in names]
    assert len(set(escaped)) == len(names)
    assert all("/" not in name and not name.startswith(".") for name in escaped)


def test_run_keeps_bf16_and_counts_hits(tmp_path):
    values = torch.randn(3, 5).to(torch.bfloat16)
    writer = run_writer.RunWriter(tmp_path / "run", {"name": "test"})
    writer.record("x", values.T, step=0, tags={"pass": "cond"})
    writer.record("x", values, step=0, tags={"pass": "cond"})
    writer.record("x", values, step=1, tags={"pass": "cond"})
    writer.close()
    raw = np.load(tmp_path / "run" / "tensors" / "x%40step0%40cond.npy")
    assert raw.dtype.str in ("|V2", "<V2")
    run = run_writer.Run(tmp_path / "run")
    assert list(run.records) == ["x@step0@cond", "x@step0@cond@hit1", "x@step1@cond"]
    assert run.records["x@step0@cond"]["shape"] == [5, 3]
    assert np.array_equal(run.load("x@step0@cond").astype(np.float32), values.T.float().numpy())
    assert run.header["status"] == "finished"


def test_torn_last_line_is_skipped(tmp_path):
    run = write_run(tmp_path / "run", {("x", None, ()): torch.ones(2)})
    with open(run.directory / "records.jsonl", "a", encoding="utf-8") as lines:
        lines.write('{"seq": 1, "na')
    assert list(run_writer.Run(run.directory).records) == ["x"]


def test_equal_runs_match_and_planted_errors_are_found(tmp_path):
    reference = write_run(tmp_path / "reference", stage_tensors())
    same = compare_runs.compare(reference, write_run(tmp_path / "same", stage_tensors()), 1e-5)
    assert same.compared == len(compare_runs.REQUIRED_STAGES) and not same.problems

    tensors = stage_tensors()
    tensors[("latents", None, ())] *= 1 + 2e-5
    result = compare_runs.compare(reference, write_run(tmp_path / "scaled", tensors), 1e-5)
    assert len(result.problems) == 1 and result.problems[0].startswith("latents:")
    assert result.worst == (pytest.approx(2e-5, rel=0.01), "latents")

    tensors = stage_tensors()
    tensors[("noise_pred", None, ())][0, 0] = math.nan
    result = compare_runs.compare(reference, write_run(tmp_path / "nan", tensors), 1e-5)
    assert len(result.problems) == 1 and result.problems[0].startswith("noise_pred:")

    tensors = stage_tensors()
    pixels = tensors[("image", None, ())]
    pixels[0, 0, 0] = (int(pixels[0, 0, 0]) + 128) % 256
    result = compare_runs.compare(reference, write_run(tmp_path / "image", tensors), 1e-5)
    assert len(result.problems) == 1 and "levels" in result.problems[0]

    tensors = stage_tensors()
    tensors[("latents", None, ())] = tensors[("latents", None, ())].T.contiguous()
    result = compare_runs.compare(reference, write_run(tmp_path / "shape", tensors), 1e-5)
    assert len(result.problems) == 1 and "shape" in result.problems[0]

    tensors = stage_tensors()
    del tensors[("prompt_embeds", None, ())]
    result = compare_runs.compare(reference, write_run(tmp_path / "missing", tensors), 1e-5)
    assert result.problems == ["prompt_embeds: missing in the candidate"]


def test_bf16_pool_judges_a_stage_over_its_layers():
    pool = compare_runs.Bf16Pool()
    for layer in range(30):
        pool.add("Pipeline", f"transformer.transformer_blocks.{layer}.attn.0", 0.012 if layer % 2 else 0.009, 0.01)
    pool.add("Pipeline", "image", 9.0, 1.0)
    for layer in range(30):  # of another class: judged alone
        pool.add("Other", f"transformer.transformer_blocks.{layer}.attn.0", 0.01, 0.01)
    expected = math.sqrt((0.012**2 + 0.009**2) / 2) / 0.01
    assert pool.ratios() == [
        (pytest.approx(expected), "Pipeline transformer.transformer_blocks.*.attn.*"),
        (pytest.approx(1.0), "Other transformer.transformer_blocks.*.attn.*"),
    ]


def test_goldens_are_complete_and_small():
    total = sum(path.stat().st_size for path in GOLDENS.rglob("*") if path.is_file())
    assert total < 14_000_000  # of seven pipelines
    for folder, stem in (("t2i_f32", "recording"), ("t2i_bf16", "recording_bf16"), ("t2i_bf16", "recording_f32")):
        records = golden_store.load_recording(GOLDENS / folder, stem)
        for key in (
            "text_encoder.model.layers.0@uncond",
            "prompt_embeds",
            "initial_latents_packed",
            "transformer.transformer_blocks.1.1@step0@uncond",
            "noise_pred@step3@combined",
            "latents@step3",
            "latents_denormalized",
            "vae.decoder.conv_out",
            "image",
        ):
            assert key in records, f"{folder}/{stem}: {key}"
        assert all(np.isfinite(np.abs(value.astype(np.complex128))).all() for value in records.values())


def test_official_code_still_gives_the_f32_golden(tmp_path):
    golden = golden_store.load_recording(GOLDENS / "t2i_f32")
    run = run_writer.Run(
        record_official.record_run(GOLDENS / "t2i_f32" / "model", tmp_path / "run", dtype="f32", **make_goldens.F32_RUN)
    )
    for key, expected in golden.items():
        error = compare_runs.error_of(key, compare_runs.real_values(expected), compare_runs.real_values(run.load(key)))
        assert error <= (1 if key == "image" else 1e-5), key


FAKE_ENGINE = """#!{python}
import json, sys
from pathlib import Path
sys.path.insert(0, {tools!r})
import record_official, torch
torch.set_num_threads(1)
options = dict(a[2:].split("=", 1) for a in sys.argv[1:] if a.startswith("--") and "=" in a)
plain = dict(zip(sys.argv, sys.argv[1:]))
run = Path(plain["--home"]) / "runs" / "1"
for name in ("width", "height", "steps", "seed"):
    options[name] = int(options[name])
options["guidance"] = float(options["guidance"])
pipeline = record_official.load_pipeline(plain["--model"], plain["--dtype"])
with torch.no_grad():
    pipeline.transformer.transformer_blocks[0].attn.to_k.bias += {bias}
options = {{key.replace("-", "_"): value for key, value in options.items()}}
record_official.record_run(plain["--model"], run, dtype=plain["--dtype"], pipeline=pipeline, **options)
print(json.dumps({{"run": str(run)}}))
"""


@pytest.mark.parametrize(("bias", "status"), [(0.0, 0), (0.01, 1)])
def test_parity_driver_with_a_stand_in_engine(tmp_path, monkeypatch, capsys, bias, status):
    engine = tmp_path / "engine"
    engine.write_text(FAKE_ENGINE.format(python=sys.executable, tools=str(REPO / "tools" / "reference"), bias=bias))
    engine.chmod(0o755)
    monkeypatch.setattr(sys, "argv", ["parity.py", "--seed", "7", "--count", "1", "--engine", str(engine)])
    assert parity.main() == status
    output = capsys.readouterr().out
    if status:
        # The first tensor named is the one with the planted bias.
        assert "    transformer.transformer_blocks.0.attn.to_k@step0@cond: " in output
        assert "failed seeds [7]" in output
    else:
        assert "1 of 1 match" in output


def test_parity_driver_reports_a_failing_engine(tmp_path, monkeypatch, capsys):
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\necho no such model >&2\nexit 2\n")
    engine.chmod(0o755)
    monkeypatch.setattr(sys, "argv", ["parity.py", "--seed", "8", "--engine", str(engine)])
    assert parity.main() == 3
    assert "no such model" in capsys.readouterr().out
