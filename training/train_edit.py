"""Trains the edit model: transformer and text model from models/tiny, the vision tower from nothing, on latents of the frozen autoencoder.

    python training/train_edit.py --minutes 9.6 --out $OUT

The clock drives the schedule, counted from the start of the process, with time left to judge the development edits.
"""

import argparse
import json
import math
import os
import random
import time

START = time.time()

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import edit_check
import edit_export
import edit_grammar
import edit_models
import edit_scenes
import edit_tokenizer
import models
import scenes
import train_dit
from edit_banks import TEXT_TOKENS, Edits, Pairs, build_banks
from step_graphs import capture_steps, milliseconds

SIZES = [(1, 96, 160), (1, 160, 96)]  # pictures, height, width beside the usual 128x128


def say(*words):
    print(f"[{time.time() - START:6.1f}s]", *words, flush=True)


def load_vae(folder):
    """The 2-D twin of an exported autoencoder, with mean and deviation of its latents [1,16,1,1]."""
    state = {}
    for name, value in load_file(os.path.join(folder, "diffusion_pytorch_model.safetensors")).items():
        if ".time_conv." in name:
            continue
        value = value.float()
        state[name] = (
            value[:, :, -1] if value.ndim == 5 else value.reshape(-1, 1, 1) if name.endswith(".gamma") else value
        )
    vae = models.Vae()
    vae.load_state_dict(state)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    return vae.eval().requires_grad_(False), *(
        torch.tensor(config[k]).view(1, 16, 1, 1) for k in ("latents_mean", "latents_std")
    )


class Layout:
    """What depends on size and number of pictures alone: tokens of the pictures in the text, positions."""

    def __init__(self, model, encoder, pictures, height, width, text_tokens, device):
        head, self.starts = encoder.pictures([edit_models.image_tokens(height, width)] * pictures)
        self.head = torch.tensor(head, device=device)
        self.pictures, self.rows, self.cols = pictures, height // 16, width // 16
        self.vision = model.vision.tables(self.rows, self.cols, device)
        self.rope = edit_models.rope_tables(
            model.dit.axes, [(self.rows, self.cols)] * (pictures + 1), len(head) + text_tokens, device
        )
        self.prefix = torch.tensor(encoder.prefix, device=device)

    def prompt(self, model, images, ids):
        """images uint8 [B,P,3,H,W], ids [B,T] of instruction and suffix -> hidden"""
        patches = [model.vision.patches(images[:, k].float() / 255) for k in range(self.pictures)]
        return model.prompt(
            patches,
            torch.cat([self.head[None].expand(len(ids), -1), ids], dim=1),
            self.prefix,
            self.starts,
            self.vision,
        )


def flow_loss(model, layout, x0, conditions, images, ids, length, answers, noise, t, teacher):
    """answers: what the last token of the text should know (Pairs.batch); the teacher reads it off and is thrown away after training."""
    x = torch.lerp(x0, noise, t[:, None, None])
    hidden = layout.prompt(model, images, ids)
    length = length + len(layout.head)
    v = model.velocity(x, conditions, hidden, length, t, *layout.rope)
    loss = F.mse_loss(v.float(), noise - x0)
    if answers is None:
        return loss, loss.detach() * 0
    last = hidden[torch.arange(len(hidden), device=hidden.device), length - 1]
    guess = teacher(last.float()).float()
    lesson = F.cross_entropy(guess[:, :2], answers[:, 0]) + F.cross_entropy(guess[:, 2:], answers[:, 1])
    return loss + 0.05 * lesson, lesson.detach()


@torch.no_grad()
def sample(model, encoder, instructions, images, conditions, noise, steps, guidance, height=128, width=128):
    """The official loop: images uint8 [B,P,3,H,W], conditions [B,P*N,64], noise [B,N,64] -> latents [B,N,64]"""
    device = noise.device

    def encoded(texts):
        tokens = [encoder.tok.encode(s).ids + encoder.suffix for s in texts]
        longest = max(len(k) for k in tokens)
        ids = torch.tensor([k + [encoder.pad] * (longest - len(k)) for k in tokens], device=device)
        layout = Layout(model, encoder, images.shape[1], height, width, longest, device)
        length = torch.tensor([len(k) for k in tokens], device=device) + len(layout.head)
        return layout.prompt(model, images, ids), length, layout.rope

    prompts = [encoded(instructions)] + ([encoded([" "] * len(instructions))] if guidance > 1 else [])
    sigmas, x = train_dit.inference_sigmas((height // 16) * (width // 16), steps), noise
    for now, after in zip(sigmas[:-1], sigmas[1:]):
        t = torch.full((len(x),), now, device=device)
        v, *negative = [
            model.velocity(x, conditions, hidden, length, t, *rope).float() for hidden, length, rope in prompts
        ]
        if negative:
            both = negative[0] + guidance * (v - negative[0])
            v = both * (v.norm(dim=-1, keepdim=True) / both.norm(dim=-1, keepdim=True))
        x = x + (after - now) * v
    return x


def save_weights(out, tensors):
    parts, size = [{}], 0
    for name, value in tensors.items():
        if size + value.numel() * 4 > 14_000_000:
            parts.append({})
            size = 0
        parts[-1][name] = value.detach().float().cpu().contiguous()
        size += value.numel() * 4
    for i, part in enumerate(parts):
        save_file(part, os.path.join(out, f"edit-{i}.safetensors"))


def load_initial(model, tiny, init):
    """From a folder of save_weights, or transformer and text model from models/tiny."""
    if init:
        for part, state in zip((model.dit, model.text, model.vision), edit_export.load_parts(init)):
            part.load_state_dict(state)
        return
    dit, text = train_dit.load_weights(tiny)
    model.dit.load_state_dict({k: v.float() for k, v in dit.items()})
    text = {k: v.float() for k, v in text.items()}
    text["embed_tokens.weight"] = edit_tokenizer.initial_embedding(text["embed_tokens.weight"])
    model.text.load_state_dict(text)
    edit_models.init_vision(model.vision)
    with torch.no_grad():  # of the size of the other embeddings
        model.vision.merger.mlp[2].weight.mul_(0.3)


def judge(a, model, encoder, vae, mean, std, rows, settings, device):
    """Draws the rows on the device under each (steps, guidance) and says how many are right."""
    inputs = [list(edit_check.draw(r["before"])) for r in rows]
    results = {}
    for steps, guidance in settings:
        outputs = [None] * len(rows)
        for pictures in (1, 2):
            chosen = [i for i, r in enumerate(rows) if len(r["before"]) == pictures]
            if not chosen:
                continue
            images = (
                torch.from_numpy(np.stack([np.stack(inputs[i]) for i in chosen]))
                .permute(0, 1, 4, 2, 3)
                .contiguous()
                .to(device)
            )
            with torch.no_grad():
                z = (vae.encode(images.flatten(0, 1).float() / 127.5 - 1)[0] - mean) / std
                conditions = models.pack(z.contiguous()).view(len(chosen), -1, 64)
                noise = torch.cat(
                    [
                        torch.randn(1, 16, 16, 16, generator=torch.Generator().manual_seed(rows[i]["seed"]))
                        for i in chosen
                    ]
                )
                x = sample(
                    model,
                    encoder,
                    [rows[i]["instruction"] for i in chosen],
                    images,
                    conditions,
                    models.pack(noise).to(device),
                    steps,
                    guidance,
                )
                drawn = vae.decode(models.unpack(x, 8, 8) * std + mean)
            drawn = ((drawn.clamp(-1, 1) * 0.5 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
            for i, image in zip(chosen, drawn):
                outputs[i] = image
        totals, bad = edit_check.report(outputs, inputs, rows)
        name = f"{steps} steps, guidance {guidance:g}"
        results[name] = edit_check.summary(totals)
        say(name, results[name])
        for i, why in bad[:30]:
            say("  ", why, "|", rows[i]["kind"], "|", rows[i]["instruction"])
        if (steps, guidance) == settings[0]:
            pairs = [p for i in range(len(rows)) for p in (inputs[i][rows[i]["base"]], outputs[i])]
            sheet = torch.from_numpy(np.stack(pairs)).permute(0, 3, 1, 2) / 127.5 - 1
            scenes.write_png(os.path.join(a.out, "development.png"), scenes.contact_sheet(sheet, 16))
        with open(os.path.join(a.out, "judged.json"), "w") as f:
            json.dump(results, f, indent=1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=9.6)
    p.add_argument("--reserve", type=float, default=40, help="seconds at the end, for judging")
    p.add_argument("--out", default=os.environ.get("OUT", "out"))
    p.add_argument("--tiny", default="models/tiny")
    p.add_argument("--init", default="", help="folder of an earlier run to go on from")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=1.2e-3)
    p.add_argument("--ema", type=float, default=0.9993)
    p.add_argument("--shift", type=float, default=1.5)
    p.add_argument("--edits", type=int, default=1_000_000)
    p.add_argument("--slots", type=int, default=300_000)
    p.add_argument("--first", type=int, default=60_000, help="edits encoded before the first step")
    p.add_argument("--chunk", type=int, default=256, help="edits encoded at a time")
    p.add_argument("--two-scenes", type=int, default=4_000, help="of one object, mixed into edits with two pictures")
    p.add_argument("--two-batch", type=int, default=384)
    p.add_argument("--two-shift", type=float, default=3.0, help="which picture is meant is decided early")
    p.add_argument("--warm", type=int, default=400, help="steps until the full rate")
    p.add_argument("--other-edits", type=int, default=12_000)
    p.add_argument("--two-share", type=float, default=0.14)
    p.add_argument("--other-share", type=float, default=0.05)
    p.add_argument("--refresh-every", type=int, default=4)
    p.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 2))
    p.add_argument("--at-least", type=int, default=0, help="steps, even when time is up")
    p.add_argument(
        "--compile",
        choices=("whole", "block", "none"),
        default="block",
        help="of the training step; a block compiles in a fifth of the time",
    )
    p.add_argument("--compile-encode", action="store_true", help="pays when many edits are encoded")
    p.add_argument("--judge", type=int, default=25, help="development edits of each kind")
    p.add_argument("--settings", nargs="*", default=["8:1", "12:1", "20:1", "6:1", "8:2"], help="steps:guidance")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    deadline = START + a.minutes * 60
    usual, double = (1, 128, 128), (2, 128, 128)
    others = SIZES if a.other_share else []
    arrays = build_banks({usual: a.edits, **{s: a.other_edits for s in others}}, a.workers, a.seed)
    say("edits:", {k: len(v[1]) for k, v in arrays.items()})

    device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = device == "cuda"
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    vae, mean, std = load_vae(os.path.join(a.tiny, "vae"))
    vae, mean, std = vae.to(device, memory_format=torch.channels_last), mean.to(device), std.to(device)

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=cuda, cache_enabled=False)

    full = a.chunk

    def compiled(name, work, usual_size):
        """Compiled for the usual batch; a compiler failure must not cost the run."""
        state = {"fast": torch.compile(work, dynamic=False) if cuda and a.compile_encode else work}

        def run(*args):
            if usual_size(*args) and state["fast"] is not work:
                try:
                    return state["fast"](*args)
                except Exception as error:
                    say(name + ": falling back to eager:", repr(error)[:300])
                    state["fast"] = work
            return work(*args)

        return run

    def encode_all(images):
        return vae.encode(images.contiguous(memory_format=torch.channels_last))[0]

    encode_some = compiled("encode", encode_all, lambda x: len(x) == 2 * full and x.shape[2:] == (128, 128))

    def encode(images):
        with torch.no_grad(), autocast():
            return encode_some(images).float()

    render = compiled("render", scenes.render, lambda atlas, glyph, *r: len(glyph) == 2 * full and r[-2:] == (128, 128))
    context = {
        "atlas": scenes.build_atlas(device),
        "colors": scenes.palette(device),
        "render": render,
        "encode": encode,
        "mean": mean,
        "std": std,
    }
    banks = {k: Edits(v, *k, a.slots if k == usual else len(v[1]), device) for k, v in arrays.items()}
    del arrays
    banks[double] = Pairs(a.two_scenes, 400_000, a.seed, device)

    encoder = edit_tokenizer.Encoder()
    model = edit_models.EditModel(encoder.vocab_size)
    load_initial(model, a.tiny, a.init)
    model = model.to(device)
    teacher = torch.nn.Linear(128, 2 + len(edit_scenes.OBJECT_COLORS)).to(device)
    named = list(model.named_parameters())
    params = [q for _, q in named] + list(teacher.parameters())

    def decays(n, q):
        return q.ndim >= 2 and "embed_tokens" not in n

    rate = torch.tensor(0.0, device=device)  # a tensor, because a captured step reads it at each replay
    optimizer = torch.optim.AdamW(
        [
            {"params": [q for n, q in named if decays(n, q)], "weight_decay": 0.01},
            {"params": [q for n, q in named if not decays(n, q)] + list(teacher.parameters()), "weight_decay": 0.0},
        ],
        lr=rate if cuda else 0.0,
        betas=(0.9, 0.99),
        eps=1e-8,
        fused=cuda,
        capturable=cuda,
    )
    average = [q.detach().clone() for q in params]  # the teacher's last
    say("parameters:", sum(q.numel() for q in params))

    def fill(key, count, batch):
        while banks[key].made < count:
            banks[key].make(batch, context)

    fill(usual, min(a.first, banks[usual].count), min(full, banks[usual].count))
    say(
        f"latents of {banks[usual].made} edits, deviation {banks[usual].target[: min(2000, banks[usual].made)].float().std():.3f}"
    )
    for key in [double] + others:
        fill(key, banks[key].count, full)
    if cuda:
        torch.cuda.synchronize()
    say("all latents")

    empties = []
    for e in ("", " "):
        ids = encoder.caption(e)
        empties.append(
            (
                torch.tensor(ids + [encoder.pad] * (TEXT_TOKENS - len(ids)), device=device),
                torch.tensor(len(ids), device=device),
            )
        )
    layouts = {k: Layout(model, encoder, *k, TEXT_TOKENS, device) for k in banks}
    sizes = {k: a.two_batch if k == double else a.batch for k in banks}
    losses = {"fast": torch.compile(flow_loss, dynamic=False) if cuda and a.compile == "whole" else flow_loss}
    blocks = list(model.dit.transformer_blocks)
    if cuda and a.compile == "block":
        for block in blocks:
            block.compile(dynamic=False)

    def eager():
        losses["fast"] = flow_loss
        for block in blocks:
            block._compiled_call_impl = None

    def train_loss(key):
        batch = banks[key].batch(sizes[key], empties)
        shift = a.two_shift if key == double else a.shift
        noise, t = torch.randn_like(batch[0]), train_dit.random_times(sizes[key], device, shift)
        with autocast():
            work = losses["fast"] if key in (usual, double) else flow_loss
            return work(model, layouts[key], *batch, noise, t, teacher)

    sums = {k: torch.zeros((), device=device) for k in banks}

    lessons = torch.zeros((), device=device)

    def whole_step(key):
        loss, lesson = train_loss(key)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        sums[key].add_(loss.detach())
        if key == double:
            lessons.add_(lesson)

    def free_step(key):
        whole_step(key)
        optimizer.zero_grad(set_to_none=True)

    def set_rate(value):
        rate.fill_(value)
        for group in optimizer.param_groups:
            if group["lr"] is not rate:
                group["lr"] = rate if cuda else value

    set_rate(0.0)  # the first steps compile and fill the optimizer's state without moving the weights
    for key in (usual, double):
        try:
            free_step(key)
        except Exception as error:
            if not cuda:
                raise
            say("falling back to eager:", repr(error)[:300])
            eager()
            optimizer.zero_grad(set_to_none=True)
            free_step(key)
        say("first step of", key)
    graphs = capture_steps(banks, free_step, whole_step, optimizer, say) if cuda else {}

    def run_step(key):
        if key in graphs:
            graphs[key].replay()
        else:
            free_step(key)

    many = 10 if cuda else 1
    say(
        "milliseconds:",
        {str(k): round(milliseconds(lambda: run_step(k), many), 1) for k in banks},
        f"refresh {milliseconds(lambda: banks[usual].make(min(full, banks[usual].count), context), many):.1f}",
    )
    for total in sums.values():
        total.zero_()
    begin, finish = time.time(), deadline - a.reserve
    say(f"training for {finish - begin:.0f} s")
    rng, shown, step, saved = random.Random(a.seed), begin, 0, begin
    taken = dict.fromkeys(banks, 0)
    while True:
        along = (time.time() - begin) / max(1.0, finish - begin)
        if time.time() >= finish and step >= a.at_least:
            break
        along = min(along, 1.0)
        value = a.lr * min(1.0, (step + 1) / a.warm) * 0.5 * (1 + math.cos(math.pi * along))
        set_rate(value)
        if a.refresh_every and step % a.refresh_every == 0:
            banks[usual].make(min(full, banks[usual].count), context)
        roll = rng.random()
        key = double if roll < a.two_share else rng.choice(others) if roll < a.two_share + a.other_share else usual
        run_step(key)
        taken[key] += 1
        with torch.no_grad():
            torch._foreach_lerp_(average, params, 1 - min(a.ema, (1 + step) / (10 + step)))
        step += 1
        if step % 20 == 0:
            if cuda:
                torch.cuda.synchronize()  # keeps the clock honest: the queue is drained
            now = time.time()
            if now - shown > 12:
                shown = now
                say(
                    f"step {step}",
                    {str(k): round(sums[k].item() / max(1, taken[k]), 4) for k in banks},
                    f"lesson {lessons.item() / max(1, taken[double]):.3f} lr {value:.2e} {step / (now - begin):.1f}/s",
                )
                for k in banks:
                    sums[k].zero_()
                    taken[k] = 0
                lessons.zero_()
            if now - saved > 150:
                saved = now
                save_weights(a.out, {n: v for (n, _), v in zip(named, average)})
    if cuda:
        torch.cuda.synchronize()
    say(f"trained {step} steps, {banks[usual].made} edits drawn")
    for q, v in zip(params, average):
        q.data.copy_(v)
    save_weights(a.out, dict(named))
    say("weights saved")
    graphs.clear()
    eager()
    model.eval()
    for q in params:  # as exported: weights rounded to bf16, arithmetic in f32
        q.data.copy_(q.data.bfloat16().float())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    if a.judge:
        rows = edit_grammar.development_edits(a.judge, min(40, 2 * a.judge))
        judge(
            a,
            model,
            encoder,
            vae,
            mean,
            std,
            rows,
            [(int(s.split(":")[0]), float(s.split(":")[1])) for s in a.settings],
            device,
        )
    say("done")


if __name__ == "__main__":
    main()
