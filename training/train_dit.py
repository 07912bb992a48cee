"""Trains the diffusion transformer and the text model together, on latents of the frozen autoencoder.

    python training/train_dit.py --steps 16400 --out $OUT                                          # first stage
    python training/train_dit.py --steps 10000 --rich --init $OUT --lr 6e-4 --shift 2 --out $OUT   # second: rich captions, more pairs

--steps fixes the schedule; with --minutes (counted from the start of the process) instead the clock drives it.
"""

import argparse
import glob
import json
import math
import os
import random
import shutil
import time

START = time.time()

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import check
import export
import grammar
import models
import scenes
import tokenizer
from scene_banks import TEXT_TOKENS, Scenes, build_banks
from step_graphs import capture_steps, milliseconds

SIZES = [
    (96, 128),
    (128, 96),
    (160, 160),
    (128, 192),
    (192, 128),
    (64, 64),
    (64, 128),
]  # height, width beside the usual 128x128
SHEET = [
    "a red circle on a white background",
    "a small blue star in the top left corner on a black background",
    "a large green heart",
    "a yellow triangle on a gray background",
    "a purple ring on the right, light blue background",
    "an orange cross at the bottom",
    "a pink diamond in the center on a dark blue background",
    "a black square on the left",
    "a red circle left of a blue square",
    "a blue heart above a yellow star on a black background",
    "a green triangle below an orange ring",
    "a purple diamond to the right of a cyan cross on a white background",
    "a small red star under a large blue circle on a light yellow background",
    "a white ring on the left and a pink heart on the right on a black background",
    "a green square with a red triangle above it",
    "a yellow circle over a purple square on a gray background",
    "two red hearts on a white background",
    "three green stars",
    "four blue circles on a light green background",
    "three orange triangles on a black background",
    "four purple diamonds",
    "two cyan rings on a gray background",
    "three pink squares on a dark blue background",
    "four black crosses on a yellow background",
    "the word HI in red",
    "the word CAT in blue on a white background",
    "the word LOVE in pink on a black background",
    '"STOP" written in white on a red background',
    "green text saying OK on a gray background",
    "the word QWEN in purple",
    "a sign that says GO in yellow on a dark blue background",
    "the letter A in orange on a white background",
]


def say(*words):
    print(f"[{time.time() - START:6.1f}s]", *words, flush=True)


def predict(dit, text, x, t, ids, length, prefix, cos, sin):
    """ids [B,T] without the template prefix -> velocity [B,N,64]"""
    full = torch.cat([prefix[None].expand(len(ids), -1), ids], dim=1)
    hidden = text(full)[:, models.PREFIX_TOKENS :]
    mask = torch.arange(ids.shape[1], device=ids.device)[None] < length[:, None]
    return dit(x, hidden * mask[..., None], mask, t, cos, sin)


def flow_loss(dit, text, x0, noise, t, ids, length, prefix, cos, sin):
    x = torch.lerp(x0, noise, t[:, None, None])
    return F.mse_loss(predict(dit, text, x, t, ids, length, prefix, cos, sin).float(), noise - x0)


def random_times(size, device, shift):
    """Logit-normal, a tenth uniform so that both ends are met, shifted towards noise."""
    u = torch.sigmoid(torch.randn(size, device=device))
    u = torch.where(torch.rand(size, device=device) < 0.1, torch.rand(size, device=device), u)
    return shift * u / (1 + (shift - 1) * u)


def inference_sigmas(tokens, steps):
    """The official scheduler's sigmas under export.SCHEDULER."""
    c = export.SCHEDULER
    slope = (c["max_shift"] - c["base_shift"]) / (c["max_image_seq_len"] - c["base_image_seq_len"])
    mu = math.exp(c["base_shift"] + slope * (tokens - c["base_image_seq_len"]))
    s = [mu / (mu + 1 / v - 1) for v in np.linspace(1, 1 / steps, steps)]
    stretch = (1 - s[-1]) / (1 - c["shift_terminal"])
    return [1 - (1 - v) / stretch for v in s] + [0.0]


@torch.no_grad()
def sample(dit, text, encoder, prompts, height, width, steps, guidance, noise):
    """The official text-to-image loop, latents out [B,N,64] (normalised)."""
    device = noise.device
    tokens = [encoder.tok.encode(p).ids + encoder.suffix for p in prompts]
    longest = max(len(t) for t in tokens)
    ids = torch.tensor([t + [encoder.pad] * (longest - len(t)) for t in tokens], device=device)
    length = torch.tensor([len(t) for t in tokens], device=device)
    blank = torch.tensor([encoder.tok.encode(" ").ids + encoder.suffix], device=device).expand(len(prompts), -1)
    blank_length = torch.full((len(prompts),), blank.shape[1], device=device)
    prefix = torch.tensor(encoder.prefix, device=device)
    rows, cols = height // 16, width // 16
    tables = [models.rope_tables(dit.axes, rows, cols, n, device) for n in (longest, blank.shape[1])]
    sigmas, x = inference_sigmas(rows * cols, steps), noise
    for now, after in zip(sigmas[:-1], sigmas[1:]):
        t = torch.full((len(prompts),), now, device=device)
        pos = predict(dit, text, x, t, ids, length, prefix, *tables[0]).float()
        neg = predict(dit, text, x, t, blank, blank_length, prefix, *tables[1]).float()
        both = neg + guidance * (pos - neg)
        v = both * (pos.norm(dim=-1, keepdim=True) / both.norm(dim=-1, keepdim=True))
        x = x + (after - now) * v
    return x


def save_weights(out, dit, text):
    os.makedirs(out, exist_ok=True)
    parts, size = [{}], 0
    for name, value in dit.items():
        if size + value.numel() * 4 > 12_000_000:
            parts.append({})
            size = 0
        parts[-1][name] = value.float().cpu().contiguous()
        size += value.numel() * 4
    for i, part in enumerate(parts):
        save_file(part, os.path.join(out, f"dit-{i}.safetensors"))
    save_file({k: v.float().cpu().contiguous() for k, v in text.items()}, os.path.join(out, "text.safetensors"))


def load_weights(folder):
    """From a folder of save_weights, or from an exported model."""
    dit, i = {}, 0
    if os.path.exists(os.path.join(folder, "transformer")):
        text = {}
        for path in sorted(glob.glob(os.path.join(folder, "transformer", "*.safetensors"))):
            dit.update(load_file(path))
        for path in sorted(glob.glob(os.path.join(folder, "text_encoder", "*.safetensors"))):
            text.update(load_file(path))
        mark = "model.language_model." if any(k.startswith("model.language_model.") for k in text) else "model."
        text = {k[len(mark) :]: v for k, v in text.items() if k.startswith(mark)}
        return dit, text
    while os.path.exists(os.path.join(folder, f"dit-{i}.safetensors")):
        dit.update(load_file(os.path.join(folder, f"dit-{i}.safetensors")))
        i += 1
    return dit, load_file(os.path.join(folder, "text.safetensors"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--minutes", type=float, default=9.0, help="without --steps")
    p.add_argument("--rich", action="store_true", help="captions and mixture of the second stage")
    p.add_argument("--shift", type=float, default=1.5, help="of the random times towards noise")
    p.add_argument("--out", default=os.environ.get("OUT", "out"))
    p.add_argument("--vae", default="", help="vae.safetensors, when not in --out")
    p.add_argument(
        "--init",
        default="",
        help="folder with dit-*.safetensors and text.safetensors, or an exported model, to start from",
    )
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--ema", type=float, default=0.999)
    p.add_argument("--captions", type=int, default=3_000_000)
    p.add_argument("--slots", type=int, default=500_000)
    p.add_argument("--other-captions", type=int, default=24_000)
    p.add_argument("--other-share", type=float, default=0.12)
    p.add_argument("--refresh-every", type=int, default=8)
    p.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 2))
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--no-graph", action="store_true", help="no CUDA graphs")
    p.add_argument("--judge", type=int, default=200, help="development prompts to draw and judge at the end")
    p.add_argument("--guidance", type=float, nargs="*", default=[export.GUIDANCE], help="for those")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    deadline = START + a.minutes * 60

    banks = build_banks({(128, 128): a.captions, **{s: a.other_captions for s in SIZES}}, a.workers, a.rich)
    say(f"captions and scenes: {sum(len(b[1]) for b in banks.values())}")

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(2 if a.rich else 1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    # frozen autoencoder
    vae_path = a.vae or os.path.join(a.out, "vae.safetensors")
    with safe_open(vae_path, "pt") as f:
        stats = json.loads(f.metadata()["latents"])
    vae = models.Vae()
    vae.load_state_dict(load_file(vae_path))
    vae = vae.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)
    mean, std = (torch.tensor(stats[k], device=device).view(1, 16, 1, 1) for k in ("mean", "std"))
    say("autoencoder from", vae_path)

    use_compile = device == "cuda" and not a.no_compile

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda", cache_enabled=False)

    def encode_eager(images):
        return vae.encode(images.contiguous(memory_format=torch.channels_last))[0]

    fast = {
        "render": torch.compile(scenes.render, dynamic=False) if use_compile else scenes.render,
        "encode": torch.compile(encode_eager, dynamic=False) if use_compile else encode_eager,
    }

    def render(*args):
        if args[5:] == (128, 128) and len(args[1]) == encode_batch:
            try:
                return fast["render"](*args)
            except Exception as error:  # a compiler failure must not cost the run
                say("render: falling back to eager:", repr(error)[:300])
                fast["render"] = scenes.render
        return scenes.render(*args)

    def encode(images, size):
        with torch.no_grad(), autocast():
            if size == (128, 128) and len(images) == encode_batch:
                try:
                    return fast["encode"](images).float()
                except Exception as error:
                    say("encode: falling back to eager:", repr(error)[:300])
                    fast["encode"] = encode_eager
            return encode_eager(images).float()

    encode_batch = min(512, a.slots)
    context = {
        "atlas": scenes.build_atlas(device),
        "colors": scenes.palette(device),
        "render": render,
        "encode": encode,
        "mean": mean,
        "std": std,
    }
    data = {size: Scenes(arrays, size, device) for size, arrays in banks.items()}
    del banks
    main_data = data[(128, 128)]
    others = [data[s] for s in SIZES]

    encoder = tokenizer.Encoder()
    text, dit = models.TextModel(encoder.vocab_size), models.Dit()
    models.init_text(text)
    models.init_dit(dit)
    text, dit = text.to(device), dit.to(device)
    if a.init:
        d, t = load_weights(a.init)
        dit.load_state_dict(d)
        text.load_state_dict(t)
        say("weights from", a.init)
    named = [("dit." + n, q) for n, q in dit.named_parameters()] + [
        ("text." + n, q) for n, q in text.named_parameters()
    ]
    params = [q for _, q in named]
    decay = [q for n, q in named if q.ndim == 2 and "embed_tokens" not in n]
    plain = [q for n, q in named if not (q.ndim == 2 and "embed_tokens" not in n)]
    cuda = device == "cuda"
    rate = torch.tensor(0.0, device=device)  # a tensor, because a captured step reads it at each replay
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=rate if cuda else 0.0,
        betas=(0.9, 0.99),
        eps=1e-8,
        fused=cuda,
        capturable=cuda,
    )
    average = [q.detach().clone() for q in params]
    say(
        f"parameters: transformer {sum(q.numel() for q in dit.parameters())}, text {sum(q.numel() for q in text.parameters())}, vocabulary {encoder.vocab_size}"
    )

    # a first stock of latents
    while main_data.latents is None or main_data.filled < len(main_data.latents):
        main_data.encode_more(encode_batch, a.slots, context)
    say(
        f"latents 128x128: {main_data.filled}, mean {main_data.latents[:4096].float().mean():.3f} std {main_data.latents[:4096].float().std():.3f}"
    )
    for bank in others:
        while bank.latents is None or bank.filled < len(bank.latents):
            bank.encode_more(min(256, bank.count), bank.count, context)
    if device == "cuda":
        torch.cuda.synchronize()
    say("latents of other sizes done")

    prefix = torch.tensor(encoder.prefix, device=device)
    empties = []
    for e in ("", " "):
        ids = encoder.caption(e)
        empties.append(
            (
                torch.tensor(ids + [encoder.pad] * (TEXT_TOKENS - len(ids)), device=device),
                torch.tensor(len(ids), device=device),
            )
        )
    tables = {size: models.rope_tables(dit.axes, size[0] // 16, size[1] // 16, TEXT_TOKENS, device) for size in data}
    losses = {"fast": torch.compile(flow_loss, dynamic=False) if use_compile else flow_loss}

    def train_loss(bank):
        usual = bank is main_data
        size = a.batch if usual else max(8, a.batch * 64 // max(64, bank.rows * bank.cols))
        x0, ids, length = bank.batch(size, empties)
        args = (
            dit,
            text,
            x0,
            torch.randn_like(x0),
            random_times(size, device, a.shift),
            ids,
            length,
            prefix,
            *tables[(bank.height, bank.width)],
        )
        with autocast():
            if usual:
                try:
                    return losses["fast"](*args)
                except Exception as error:
                    if losses["fast"] is flow_loss:
                        raise
                    say("training step: falling back to eager:", repr(error)[:300])
                    losses["fast"] = flow_loss
            return flow_loss(*args)

    sums = {bank: torch.zeros((), device=device) for bank in data.values()}  # losses since they were last shown

    def whole_step(bank):
        loss = train_loss(bank)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        sums[bank].add_(loss.detach())

    def free_step(bank):
        whole_step(bank)
        optimizer.zero_grad(set_to_none=True)

    def set_rate(value):
        rate.fill_(value)
        for group in optimizer.param_groups:
            if group["lr"] is not rate:
                group["lr"] = rate if cuda else value

    set_rate(0.0)  # the first steps compile and fill the optimizer's state without moving the weights
    try:
        free_step(main_data)
    except Exception as error:
        if losses["fast"] is flow_loss:
            raise
        say("backward: falling back to eager:", repr(error)[:300])
        losses["fast"] = flow_loss
        optimizer.zero_grad(set_to_none=True)
        free_step(main_data)
    say("compiled")
    graphs = capture_steps(data.values(), free_step, whole_step, optimizer, say) if cuda and not a.no_graph else {}

    def run_step(bank):
        if bank in graphs:
            graphs[bank].replay()
        else:
            free_step(bank)

    say(
        f"milliseconds: step {milliseconds(lambda: run_step(main_data), 20 if cuda else 1):.1f}, not captured "
        f"{milliseconds(lambda: free_step(main_data), 20 if cuda else 1):.1f}, other sizes {milliseconds(lambda: [run_step(b) for b in others], 3 if cuda else 1) / len(others):.1f}, "
        f"refresh {milliseconds(lambda: main_data.encode_more(encode_batch, a.slots, context), 5 if cuda else 1):.1f}"
    )
    for total in sums.values():
        total.zero_()
    begin, finish = time.time(), deadline - (40 if cuda else 5)
    say(f"training for {a.steps} steps" if a.steps else f"training for {finish - begin:.0f} s")
    rng, shown, step, usual_steps = random.Random(5), begin, 0, 0
    while True:
        now = time.time()
        along = step / a.steps if a.steps else (now - begin) / (finish - begin)
        if along >= 1:
            break
        value = (
            a.lr
            * min(1.0, (step + 1) / 500)
            * (0.5 * (1 + math.cos(math.pi * along)) if a.rich else 0.01 + 0.495 * (1 + math.cos(math.pi * along)))
        )
        set_rate(value)
        if a.refresh_every and step % a.refresh_every == 0:
            main_data.encode_more(encode_batch, a.slots, context)
        usual = rng.random() >= a.other_share
        run_step(main_data if usual else rng.choice(others))
        with torch.no_grad():
            torch._foreach_lerp_(average, params, 1 - min(a.ema, (1 + step) / (10 + step)))
        step += 1
        usual_steps += usual
        if step % 25 == 0:
            if cuda:
                torch.cuda.synchronize()  # keeps the clock honest: the queue is drained
            if time.time() - shown > 10:
                shown = time.time()
                say(
                    f"step {step} loss {sums[main_data].item() / max(1, usual_steps):.4f} lr {value:.2e} {step / (shown - begin):.1f} steps/s"
                )
                sums[main_data].zero_()
                usual_steps = 0
    if cuda:
        torch.cuda.synchronize()
    say(f"trained {step} steps")
    for q, v in zip(params, average):
        q.data.copy_(v)
    save_weights(a.out, dit.state_dict(), text.state_dict())
    if os.path.abspath(os.path.dirname(vae_path)) != os.path.abspath(a.out):
        shutil.copy(vae_path, os.path.join(a.out, "vae.safetensors"))
    say("weights saved")
    graphs.clear()
    dit.eval(), text.eval()
    for module in (dit, text, vae):  # as exported: weights rounded to bf16, arithmetic in f32
        for q in module.parameters():
            q.data.copy_(q.data.bfloat16().float())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")

    @torch.no_grad()
    def draw(prompts, seeds, guidance):
        """The noise of the official pipeline under these seeds -> uint8 [B,128,128,3]"""
        noise = torch.cat([torch.randn(1, 16, 16, 16, generator=torch.Generator().manual_seed(s)) for s in seeds])
        x = sample(dit, text, encoder, prompts, 128, 128, 20, guidance, models.pack(noise).to(device))
        images = vae.decode((models.unpack(x, 8, 8) * std + mean).contiguous(memory_format=torch.channels_last))
        return ((images.clamp(-1, 1) * 0.5 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()

    def sheet(name, images, columns):
        scenes.write_png(
            os.path.join(a.out, name),
            scenes.contact_sheet(torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1, columns),
        )

    sheet("samples.png", draw(SHEET, range(len(SHEET)), a.guidance[0]), 8)
    say("samples drawn")
    rows = grammar.development_prompts(a.judge)
    for guidance in a.guidance if rows else []:
        images = draw([r["prompt"] for r in rows], [r["seed"] for r in rows], guidance)
        sheet(f"development-{guidance:g}.png", images, 20)
        say("drawn")
        totals, bad = check.report(images, rows)
        say(f"development prompts, guidance {guidance:g}:", {k: f"{r}/{n}" for k, (r, n) in totals.items()})
        for i, why in bad[:25]:
            say("  ", why, rows[i]["prompt"])
    say("done")


if __name__ == "__main__":
    main()
