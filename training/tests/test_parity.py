"""The training twins equal the official modules, weights random everywhere (a default initialisation would hide swapped tensors)."""

import json
import os
import random
import re
import sys

import pytest
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
pytest.importorskip("diffusers")
import export
import grammar
import models
import scenes
import tokenizer


def randomised(module, seed):
    g = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        fan = p[0].numel() if p.ndim > 1 else 0
        with torch.no_grad():
            if fan:
                p.copy_(torch.randn(p.shape, generator=g) * (1.0 if p.shape[1:] == (1, 1) else fan**-0.5))
            else:
                p.copy_(torch.randn(p.shape, generator=g) * 0.3 + (1.0 if p.ndim == 1 else 0.0))
    return module.eval()


@pytest.fixture(scope="module")
def pair():
    encoder = tokenizer.Encoder()
    ours = [
        randomised(models.Vae(), 1),
        randomised(models.Dit(), 2),
        randomised(models.TextModel(encoder.vocab_size), 3),
    ]
    mean, std = [0.1 * i for i in range(16)], [1.0 + 0.05 * i for i in range(16)]
    official = export.build(*[m.state_dict() for m in ours], mean, std)
    return encoder, ours, official


def close(a, b, limit=1e-5):
    scale = max(1.0, b.abs().max().item())
    assert a.shape == b.shape
    assert (a - b).abs().max().item() <= limit * scale, (a - b).abs().max().item() / scale


@torch.no_grad()
def test_vae(pair):
    _, (vae, _, _), (official, _, _) = pair
    x = torch.rand(2, 3, 48, 64) * 2 - 1
    moments = official.encode(x[:, :, None]).latent_dist
    mean, logvar = vae.encode(x)
    close(mean, moments.mean[:, :, 0])
    close(logvar, moments.logvar[:, :, 0])
    z = torch.randn(2, 16, 6, 8)
    got = vae.decode(z).clamp(-1, 1)
    assert 0.02 < got.std() and (got.abs() < 1).float().mean() > 0.2
    close(got, official.decode(z[:, :, None]).sample[:, :, 0])


@torch.no_grad()
def test_text(pair):
    encoder, (_, _, text), (_, _, official) = pair
    ids = torch.tensor([encoder.prefix + encoder.caption("a red circle left of a blue square with the word HI")])
    expected = official(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states[-1]
    close(text(ids), expected)
    padded = torch.cat([ids, torch.full((1, 7), encoder.pad)], dim=1)
    close(text(padded)[:, : ids.shape[1]], expected)


@torch.no_grad()
@pytest.mark.parametrize("rows,cols", [(8, 8), (5, 8)])
def test_dit(pair, rows, cols):
    _, (_, dit, _), (_, official, _) = pair
    x, text, t = torch.randn(2, rows * cols, 64), torch.randn(2, 20, 128), torch.tensor([0.3, 0.97])
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[1, 12:] = False
    cos, sin = models.rope_tables(dit.axes, rows, cols, 20, x.device)
    for m in (None, mask):
        expected = official(
            hidden_states=x,
            encoder_hidden_states=text,
            encoder_hidden_states_mask=m,
            timestep=t,
            img_shapes=[[(1, rows, cols)]] * 2,
            return_dict=False,
        )[0]
        close(dit(x, text, m, t, cos, sin), expected)


@torch.no_grad()
def test_pack(pair):
    from diffusers import QwenImagePipeline

    z = torch.randn(2, 16, 12, 8)
    packed = models.pack(z)
    assert torch.equal(packed, QwenImagePipeline._pack_latents(z, 2, 16, 12, 8))
    assert torch.equal(models.unpack(packed, 6, 4), z)


@torch.no_grad()
def test_saved_folder_runs_in_the_official_pipeline(pair, tmp_path):
    import copy

    from diffusers import QwenImagePipeline
    import train_dit

    encoder, ours, official = pair
    export.save(str(tmp_path / "tiny"), *copy.deepcopy(official))
    sizes = [f.stat().st_size for f in (tmp_path / "tiny").rglob("*") if f.is_file()]
    assert max(sizes) <= 16_000_000 and sum(sizes) <= 28_000_000
    pipe = QwenImagePipeline.from_pretrained(str(tmp_path / "tiny"), torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    assert len(pipe.tokenizer(tokenizer.PREFIX).input_ids) == 34
    prompts = ["a red circle left of a blue square", '日本 🙂 the word HI in "red"']
    for prompt in prompts:
        assert (
            pipe.tokenizer(tokenizer.PREFIX + prompt + tokenizer.SUFFIX).input_ids
            == encoder.prefix + encoder.tok.encode(prompt).ids + encoder.suffix
        )
    vae, dit, text = (copy.deepcopy(m).to(torch.bfloat16).float() for m in ours)  # the folder holds bf16
    for prompt, (height, width) in zip(prompts, ((128, 128), (96, 64))):
        noise = torch.randn(1, 16, height // 8, width // 8)
        expected = pipe(
            prompt,
            negative_prompt=" ",
            true_cfg_scale=3.0,
            num_inference_steps=5,
            height=height,
            width=width,
            output_type="latent",
            latents=models.pack(noise),
        ).images
        got = train_dit.sample(dit, text, encoder, [prompt], height, width, 5, 3.0, models.pack(noise))
        close(got, expected, 1e-4)


def test_words_reach_the_model_letter_by_letter():
    encoder = tokenizer.Encoder()
    for word in grammar.COMMON_WORDS:
        assert len(encoder.piece(" " + word)) == len(word) + 1
        assert len(encoder.piece(word)) == len(word)


def wording(caption, word=None):
    """The caption with colours, shapes, sizes, numbers and the written word taken out."""
    if word:
        caption = caption.replace(word, "W", 1)
    caption = caption.lower().rstrip(".")
    for mark, words in (
        ("C", [w for n in scenes.COLOR_NAMES for w in grammar.COLOR_WORDS.get(n, []) + [n]]),
        ("S", [w for t in (grammar.PLURAL, grammar.SINGULAR) for ws in t.values() for w in ws]),
        ("Z", [w for ws in grammar.SIZE_WORDS.values() for w in ws]),
        ("N", ["two", "three", "four", "2", "3", "4"]),
    ):
        for w in sorted(set(words), key=len, reverse=True):
            caption = re.sub(rf"\b{w}\b(?!-)", mark, caption)
    return re.sub(r"\ban\b", "a", caption)


def test_held_out_wordings_are_new():
    rng = random.Random(11)
    drawn = [grammar.sample(rng, rich=i % 3 > 0) for i in range(180000)]
    seen = set(w for c, _ in drawn for w in re.findall(r"[a-z0-9-]+", c.lower()))
    trained = {wording(c, scene.get("word")) for c, scene in drawn}
    assert wording("a red circle left of a navy box on white") in trained
    retired, development, rows = (
        grammar._retired_prompts(),
        grammar.development_prompts(400),
        grammar.evaluation_prompts(),
    )
    assert (len(retired), len(development), len(rows)) == (200, 400, 200)
    assert len({r["prompt"] for r in retired + development + rows}) == 800
    for row in rows + development:
        assert wording(row["prompt"], row.get("word")) not in trained, row["prompt"]
        words = re.findall(r"[a-z0-9-]+", row["prompt"].replace(row.get("word", "\0"), "").lower())
        assert set(words) <= seen, set(words) - seen
    with open(os.path.join(os.path.dirname(grammar.__file__), "eval_prompts.json")) as f:
        assert json.load(f) == json.loads(json.dumps(grammar.prompts_file(rows)))
