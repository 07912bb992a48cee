"""Trains the diffusion transformer and the text model together, on latents of the frozen autoencoder.

    python training/train_dit.py --minutes 9 --out $OUT                                   # all in one call
    python training/train_dit.py --minutes 9 --progress 0 0.5 --out $OUT                  # or split over two calls:
    python training/train_dit.py --minutes 9 --progress 0.5 1 --resume --out $OUT         # the second continues from --state

Time drives the schedule: --minutes counts from the start of the process, --progress says which part of the schedule this call covers.
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import time

START = time.time()

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import check
import grammar
import models
import scenes
import tokenizer

TEXT_TOKENS = 32  # tokens after the template prefix, suffix included; longer captions are not used
SIZES = [(96, 128), (128, 96), (160, 160), (128, 192), (192, 128), (64, 64), (64, 128)]  # height, width beside the usual 128x128
SHEET = ["a red circle on a white background", "a small blue star in the top left corner on a black background", "a large green heart",
         "a yellow triangle on a gray background", "a purple ring on the right, light blue background", "an orange cross at the bottom",
         "a pink diamond in the center on a dark blue background", "a black square on the left",
         "a red circle left of a blue square", "a blue heart above a yellow star on a black background", "a green triangle below an orange ring",
         "a purple diamond to the right of a cyan cross on a white background", "a small red star under a large blue circle on a light yellow background",
         "a white ring on the left and a pink heart on the right on a black background", "a green square with a red triangle above it",
         "a yellow circle over a purple square on a gray background",
         "two red hearts on a white background", "three green stars", "four blue circles on a light green background", "three orange triangles on a black background",
         "four purple diamonds", "two cyan rings on a gray background", "three pink squares on a dark blue background", "four black crosses on a yellow background",
         "the word HI in red", "the word CAT in blue on a white background", "the word LOVE in pink on a black background",
         "\"STOP\" written in white on a red background", "green text saying OK on a gray background", "the word QWEN in purple",
         "a sign that says GO in yellow on a dark blue background", "the letter A in orange on a white background"]


def say(*words):
    print(f"[{time.time() - START:6.1f}s]", *words, flush=True)


def _bank_part(job):
    """One worker's share of captions and scenes as arrays."""
    seed, count, height, width = job
    rng = random.Random(seed)
    encoder = tokenizer.Encoder()
    ids = np.full((count, TEXT_TOKENS), encoder.pad, np.int16)
    length = np.zeros(count, np.int16)
    glyph = np.zeros((count, grammar.SPRITES), np.int8)
    geom = np.zeros((count, grammar.SPRITES * 3), np.float32)
    color = np.zeros((count, grammar.SPRITES), np.int8)
    ground = np.zeros(count, np.int8)
    i = 0
    while i < count:
        caption, scene = grammar.sample(rng, width, height)
        tokens = encoder.caption(caption)
        if len(tokens) > TEXT_TOKENS:
            continue
        ids[i, :len(tokens)] = tokens
        length[i] = len(tokens)
        glyph[i], geom[i], color[i], ground[i] = grammar.sprites(scene)
        i += 1
    return ids, length, glyph, geom, color, ground


def build_banks(jobs, workers):
    """jobs: {(height, width): count} -> {(height, width): tuple of arrays}. Runs before the GPU is touched (fork)."""
    parts, owner = [], []
    for size, count in jobs.items():
        pieces = max(1, min(4 * workers, count // 2000))
        for k in range(pieces):
            share = count * (k + 1) // pieces - count * k // pieces
            parts.append((hash((7, *size, k)) & 0xFFFFFFFF, share, *size))
            owner.append(size)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        results = pool.map(_bank_part, parts, chunksize=1)
    return {size: tuple(np.concatenate(x) for x in zip(*[r for r, o in zip(results, owner) if o == size])) for size in jobs}


class Scenes:
    """Captions and scene parameters on the device, and the latents encoded from them so far."""

    def __init__(self, arrays, size, device):
        self.height, self.width = size
        self.rows, self.cols = self.height // 16, self.width // 16
        self.ids, self.length, self.glyph, self.geom, self.color, self.ground = (torch.from_numpy(a).to(device) for a in arrays)
        self.count = len(self.length)
        self.cursor = 0
        self.latents = None  # [slots, N, 64] normalised, fp16
        self.owner = None  # [slots] which caption
        self.slot = 0

    def images(self, index, atlas, colors, render):
        geom = self.geom[index].view(-1, grammar.SPRITES, 3)
        return render(atlas, self.glyph[index].long(), geom, colors[self.color[index].long()], colors[self.ground[index].long()], self.height, self.width)

    @torch.no_grad()
    def encode_more(self, batch, slots, context):
        """Encodes the next `batch` scenes into the ring of `slots` latents."""
        device = self.geom.device
        if self.latents is None:
            slots = min(slots, self.count)
            self.latents = torch.empty(slots, self.rows * self.cols, 64, dtype=torch.float16, device=device)
            self.owner = torch.zeros(slots, dtype=torch.long, device=device)
            self.filled = 0
        slots = len(self.latents)
        batch = min(batch, slots)
        index = (torch.arange(batch, device=device) + self.cursor) % self.count
        self.cursor = (self.cursor + batch) % self.count
        images = self.images(index, context["atlas"], context["colors"], context["render"])
        mean = context["encode"](images, (self.height, self.width))
        x = models.pack(((mean - context["mean"]) / context["std"]).contiguous())
        where = (torch.arange(batch, device=device) + self.slot) % slots
        self.latents[where] = x.half()
        self.owner[where] = index
        self.slot = (self.slot + batch) % slots
        self.filled = min(slots, self.filled + batch)

    def batch(self, size, empties):
        """x0 [B,N,64] f32, ids [B,T], length [B]; one caption in ten is emptied."""
        device = self.geom.device
        pick = torch.randint(self.filled, (size,), device=device)
        index = self.owner[pick]
        ids, length = self.ids[index].long(), self.length[index].long()
        roll = torch.rand(size, device=device)
        for (low, high), (empty_ids, empty_length) in zip(((0.0, 0.05), (0.05, 0.10)), empties):
            drop = (roll >= low) & (roll < high)
            ids = torch.where(drop[:, None], empty_ids[None], ids)
            length = torch.where(drop, empty_length, length)
        return self.latents[pick].float(), ids, length


def predict(dit, text, x, t, ids, length, prefix, cos, sin):
    """ids [B,T] without the template prefix -> velocity [B,N,64]"""
    full = torch.cat([prefix[None].expand(len(ids), -1), ids], dim=1)
    hidden = text(full)[:, models.PREFIX_TOKENS:]
    mask = torch.arange(ids.shape[1], device=ids.device)[None] < length[:, None]
    return dit(x, hidden * mask[..., None], mask, t, cos, sin)


def flow_loss(dit, text, x0, noise, t, ids, length, prefix, cos, sin):
    x = torch.lerp(x0, noise, t[:, None, None])
    return F.mse_loss(predict(dit, text, x, t, ids, length, prefix, cos, sin).float(), noise - x0)


def random_times(size, device, shift=1.5):
    """Logit-normal, a tenth uniform so that both ends are met, shifted towards noise."""
    u = torch.sigmoid(torch.randn(size, device=device))
    u = torch.where(torch.rand(size, device=device) < 0.1, torch.rand(size, device=device), u)
    return shift * u / (1 + (shift - 1) * u)


def inference_sigmas(tokens, steps):
    """The official scheduler's sigmas under export.SCHEDULER."""
    import export

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
    dit = {}
    i = 0
    while os.path.exists(os.path.join(folder, f"dit-{i}.safetensors")):
        dit.update(load_file(os.path.join(folder, f"dit-{i}.safetensors")))
        i += 1
    return dit, load_file(os.path.join(folder, "text.safetensors"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=9.0)
    p.add_argument("--progress", type=float, nargs=2, default=(0.0, 1.0))
    p.add_argument("--out", default=os.environ.get("OUT", "out"))
    p.add_argument("--state", default="/tmp/lockstep_training")
    p.add_argument("--vae", default="")
    p.add_argument("--resume", action="store_true", help="continue from --state (weights, optimizer, average)")
    p.add_argument("--init", default="", help="folder with dit-*.safetensors and text.safetensors to start from")
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
    p.add_argument("--judge", type=int, default=200, help="held-out prompts to draw and judge at the end")
    p.add_argument("--max-steps", type=int, default=0)
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    os.makedirs(a.state, exist_ok=True)
    deadline = START + a.minutes * 60

    banks = build_banks({(128, 128): a.captions, **{s: a.other_captions for s in SIZES}}, a.workers)
    say(f"captions and scenes: {sum(len(b[1]) for b in banks.values())}")

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1 + int(a.progress[0] * 1000))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    # frozen autoencoder
    folders = [a.vae, os.path.join(a.state, "vae.safetensors"), "carry/vae.safetensors", os.path.join(a.out, "vae.safetensors")]
    vae_path = next(f for f in folders if f and os.path.exists(f))
    with safe_open(vae_path, "pt") as f:
        stats = json.loads(f.metadata()["latents"])
    vae = models.Vae()
    vae.load_state_dict(load_file(vae_path))
    vae = vae.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)
    mean, std = (torch.tensor(stats[k], device=device).view(1, 16, 1, 1) for k in ("mean", "std"))
    say("autoencoder from", vae_path)

    use_compile = device == "cuda" and not a.no_compile
    autocast = lambda: torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")

    def encode_eager(images):
        return vae.encode(images.contiguous(memory_format=torch.channels_last))[0]

    fast = {"render": torch.compile(scenes.render, dynamic=False) if use_compile else scenes.render,
            "encode": torch.compile(encode_eager, dynamic=False) if use_compile else encode_eager}

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
    context = {"atlas": scenes.build_atlas(device), "colors": scenes.palette(device), "render": render, "encode": encode, "mean": mean, "std": std}
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
    named = [("dit." + n, q) for n, q in dit.named_parameters()] + [("text." + n, q) for n, q in text.named_parameters()]
    params = [q for _, q in named]
    decay = [q for n, q in named if q.ndim == 2 and "embed_tokens" not in n]
    plain = [q for n, q in named if not (q.ndim == 2 and "embed_tokens" not in n)]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=a.lr, betas=(0.9, 0.99),
                                  eps=1e-8, fused=device == "cuda")
    average = [q.detach().clone() for q in params]
    step = 0
    checkpoint = os.path.join(a.state, "dit_checkpoint.pt")
    if a.resume and os.path.exists(checkpoint):
        saved = torch.load(checkpoint, map_location=device)
        for q, v in zip(params, saved["params"]):
            q.data.copy_(v)
        average = [v.to(device) for v in saved["average"]]
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        say("resumed at step", step)
    elif a.resume:
        say("no checkpoint to resume: starting from", a.init or "scratch")
    say(f"parameters: transformer {sum(q.numel() for q in dit.parameters())}, text {sum(q.numel() for q in text.parameters())}, vocabulary {encoder.vocab_size}")

    # a first stock of latents
    while main_data.latents is None or main_data.filled < len(main_data.latents):
        main_data.encode_more(encode_batch, a.slots, context)
    say(f"latents 128x128: {main_data.filled}, mean {main_data.latents[:4096].float().mean():.3f} std {main_data.latents[:4096].float().std():.3f}")
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
        empties.append((torch.tensor(ids + [encoder.pad] * (TEXT_TOKENS - len(ids)), device=device), torch.tensor(len(ids), device=device)))
    tables = {size: models.rope_tables(dit.axes, size[0] // 16, size[1] // 16, TEXT_TOKENS, device) for size in data}
    losses = {"fast": torch.compile(flow_loss, dynamic=False) if use_compile else flow_loss}

    def train_loss(bank):
        usual = bank is main_data
        size = a.batch if usual else max(8, a.batch * 64 // max(64, bank.rows * bank.cols))
        x0, ids, length = bank.batch(size, empties)
        args = (dit, text, x0, torch.randn_like(x0), random_times(size, device), ids, length, prefix, *tables[(bank.height, bank.width)])
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

    try:
        train_loss(main_data).backward()  # compiles; the clock of the schedule starts afterwards
    except Exception as error:
        if losses["fast"] is flow_loss:
            raise
        say("backward: falling back to eager:", repr(error)[:300])
        losses["fast"] = flow_loss
        train_loss(main_data).backward()
    optimizer.zero_grad(set_to_none=True)
    if device == "cuda":
        torch.cuda.synchronize()
    begin, finish = time.time(), deadline - (30 if device == "cuda" else 5)
    first, last = a.progress
    say(f"compiled; training for {finish - begin:.0f} s")
    rng, shown, start_step = random.Random(5), begin, step
    running, running_n = torch.zeros((), device=device), 0
    while True:
        now = time.time()
        if now >= finish or (a.max_steps and step - start_step >= a.max_steps):
            break
        along = first + (last - first) * min(1.0, (now - begin) / (finish - begin))
        rate = a.lr * min(1.0, (step + 1) / 500) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * along)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        if a.refresh_every and step % a.refresh_every == 0:
            main_data.encode_more(encode_batch, a.slots, context)
        usual = rng.random() >= a.other_share
        loss = train_loss(main_data if usual else rng.choice(others))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(average, params, 1 - min(a.ema, (1 + step) / (10 + step)))
        step += 1
        if usual:
            running += loss.detach()
            running_n += 1
        if step % 25 == 0:
            value = running.item()  # also keeps the clock honest: the queue is drained
            if time.time() - shown > 10:
                shown = time.time()
                say(f"step {step} loss {value / max(1, running_n):.4f} lr {rate:.2e} {(step - start_step) / (shown - begin):.1f} steps/s")
                running.zero_()
                running_n = 0
    if device == "cuda":
        torch.cuda.synchronize()
    say(f"trained {step - start_step} steps")
    torch.save({"params": [q.detach().cpu() for q in params], "average": [v.cpu() for v in average], "optimizer": optimizer.state_dict(), "step": step},
               checkpoint)
    for q, v in zip(params, average):
        q.data.copy_(v)
    save_weights(a.out, dit.state_dict(), text.state_dict())
    save_weights(a.state, dit.state_dict(), text.state_dict())
    say("weights saved")
    dit.eval(), text.eval()

    @torch.no_grad()
    def draw(prompts, seed):
        generator = torch.Generator().manual_seed(seed)
        noise = models.pack(torch.randn(len(prompts), 16, 16, 16, generator=generator)).to(device)
        with autocast():
            x = sample(dit, text, encoder, prompts, 128, 128, 20, 3.0, noise)
            return vae.decode((models.unpack(x, 8, 8) * std + mean).contiguous(memory_format=torch.channels_last)).float()

    scenes.write_png(os.path.join(a.out, "samples.png"), scenes.contact_sheet(draw(SHEET, 0), 8))
    say("samples drawn")
    rows = grammar.evaluation_prompts(a.judge)["prompts"] if a.judge else []
    if rows:
        images = draw([r["prompt"] for r in rows], 1)
        scenes.write_png(os.path.join(a.out, "evaluation.png"), scenes.contact_sheet(images, 20))
        images = ((images.clamp(-1, 1) * 0.5 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        totals, bad = check.report(images, rows)
        say("held-out prompts:", {k: f"{r}/{n}" for k, (r, n) in totals.items()})
        for i, why in bad[:25]:
            say("  ", why, rows[i]["prompt"])
    say("done")


if __name__ == "__main__":
    main()
