"""The edit model: twins equal the official modules and pipeline, held-out wordings are new, the judge tells an edit from none."""

import json
import os
import random
import re
import sys

import numpy as np
import pytest
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
pytest.importorskip("diffusers")
import edit_check
import edit_export
import edit_grammar
import edit_models
import edit_tokenizer
import edit_wordings
import grammar
import models
import scenes
import tokenizer
import train_edit
from test_parity import close, randomised

TINY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "models", "tiny"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random model, saved as the trained one is, and its twin in the precision of the files."""
    encoder = edit_tokenizer.Encoder()
    model = edit_models.EditModel(encoder.vocab_size)
    for seed, part in enumerate((model.dit, model.text, model.vision)):
        randomised(part, seed)
    out = str(tmp_path_factory.mktemp("edit") / "tiny-edit")
    edit_export.save(
        out, *edit_export.build(model.dit.state_dict(), model.text.state_dict(), model.vision.state_dict()), tiny=TINY
    )
    return out, encoder, model.bfloat16().float().eval(), edit_export.pipeline(out)


@torch.no_grad()
@pytest.mark.parametrize("pictures,height,width,guidance", [(1, 128, 128, 1.0), (2, 128, 128, 2.5), (1, 96, 160, 1.0)])
def test_the_official_pipeline_draws_what_the_twin_does(folder, pictures, height, width, guidance):
    from PIL import Image

    _, encoder, model, pipe = folder
    rng = np.random.default_rng(pictures)
    inputs = [rng.integers(0, 255, (height, width, 3), dtype=np.uint8) for _ in range(pictures)]
    noise = torch.randn(1, (height // 16) * (width // 16), 64)
    instruction = 'replace "HI" with a circle, 日本'
    expected = pipe(
        [Image.fromarray(i) for i in inputs],
        instruction,
        negative_prompt=" ",
        true_cfg_scale=guidance,
        num_inference_steps=3,
        height=height,
        width=width,
        latents=noise,
        output_type="latent",
    ).images
    vae, mean, std = train_edit.load_vae(os.path.join(TINY, "vae"))
    images = torch.from_numpy(np.stack(inputs)).permute(0, 3, 1, 2)[None]
    z = (vae.encode(images[0].float() / 127.5 - 1)[0] - mean) / std
    conditions = models.pack(z.contiguous()).reshape(1, -1, 64)
    got = train_edit.sample(model, encoder, [instruction], images, conditions, noise, 3, guidance, height, width)
    close(got, expected, 1e-4)


def test_sizes_and_links(folder):
    out = folder[0]
    sizes = {
        os.path.relpath(os.path.join(d, f), out): os.path.getsize(os.path.join(d, f))
        for d, _, fs in os.walk(out)
        for f in fs
    }
    assert max(sizes.values()) <= 16_000_000 and sum(sizes.values()) <= 28_000_000
    assert os.path.islink(os.path.join(out, "vae", "diffusion_pytorch_model.safetensors"))
    with open(os.path.join(out, "model_index.json")) as f:
        assert json.load(f)["_class_name"] == "QwenImageEditPlusPipeline"


def test_prefix_and_letters():
    encoder = edit_tokenizer.Encoder()
    assert len(encoder.prefix) == edit_tokenizer.PREFIX_TOKENS == 64
    for word in grammar.COMMON_WORDS:
        assert len(encoder.piece(" " + word)) == len(word) + 1
        assert len(encoder.piece(word)) == len(word)
    for text in ("make the circle blue", 'change "HI" to GO.'):
        assert encoder.caption(text) == encoder.tok.encode(text + tokenizer.SUFFIX).ids
        assert encoder.tok.decode(encoder.tok.encode(text).ids) == text
    ids, starts = encoder.pictures([16, 4])
    assert [ids[s : s + n] for s, n in zip(starts, (16, 4))] == [
        [encoder.image] * 16,
        [encoder.image] * 4,
    ] and ids.count(encoder.image) == 20


def wording(edit):
    """The instruction with colours, shapes, sizes, words to write and names of pictures taken out."""
    text = edit["instruction"]
    for scene in edit["before"] + [edit["after"]]:
        if scene["word"]:
            text = re.sub(rf'"?\b{scene["word"]["text"]}\b"?', "W", text)
    text = text[0].lower() + text[1:].rstrip(".")
    for polite in edit_wordings.POLITE:
        if polite and text.startswith(polite):
            text = text[len(polite) :]
    text = text.replace("Please ", "please ")
    for mark, words in (
        ("C", [w for n in scenes.COLOR_NAMES for w in grammar.COLOR_WORDS.get(n, []) + [n]]),
        ("S", [w for ws in grammar.SINGULAR.values() for w in ws] + ["shape", "one", "object"]),
        ("Z", [w for ws in grammar.SIZE_WORDS.values() for w in ws]),
    ):
        for w in sorted(set(words), key=len, reverse=True):
            text = re.sub(rf"\b{w}\b(?!-)", mark, text)
    return re.sub(r"\ban\b", "a", text)


def test_held_out_wordings_are_new():
    rng = random.Random(12)
    drawn = [edit_grammar.sample_two(rng) if i % 9 == 0 else edit_grammar.sample(rng) for i in range(40000)]
    trained, seen = (
        {wording(e) for e in drawn},
        {w for e in drawn for w in re.findall(r"[a-z0-9-]+", e["instruction"].lower())},
    )
    assert "make the C S C" in trained and "make the word C" in trained
    development, rows = edit_grammar.development_edits(), edit_grammar.evaluation_edits()
    assert len(rows) == 240 and sum(r["kind"] == "two" for r in rows) == 40
    assert not {r["instruction"] for r in development if r["kind"] != "two"} & {r["instruction"] for r in rows}
    for row in development + rows:
        assert wording(row) not in trained, row["instruction"]
        text = row["instruction"]
        for scene in row["before"] + [row["after"]]:
            if scene["word"]:
                text = text.replace(scene["word"]["text"], "")
        assert set(re.findall(r"[a-z0-9-]+", text.lower())) <= seen, row["instruction"]
    with open(os.path.join(os.path.dirname(edit_grammar.__file__), "edit_eval.json")) as f:
        assert json.load(f) == json.loads(json.dumps(edit_grammar.edits_file(rows)))


def test_the_judge():
    rows = edit_grammar.development_edits(2, 3)
    inputs = [list(edit_check.draw(r["before"])) for r in rows]
    wanted = [edit_check.draw([r["after"]])[0] for r in rows]
    totals, bad = edit_check.report(wanted, inputs, rows)
    assert not bad and sum(n for _, _, n in totals.values()) == 19
    for image, given, row in zip(wanted, inputs, rows):
        untouched = edit_check.judge(given[row["base"]], given, row)
        assert not untouched["changed"] and untouched["kept"], row["instruction"]
        if row["kind"] != "background":
            assert not edit_check.judge(255 - image, given, row)["kept"]
