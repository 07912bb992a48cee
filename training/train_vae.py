"""Trains the autoencoder on endless random scenes, as its 2-D single-frame equivalent.

    python training/train_vae.py --minutes 7 --out $OUT

Writes vae.safetensors (2-D weights, f32; the latents' mean and deviation in its metadata) and reconstructions.png.
"""

import argparse
import json
import math
import os
import random
import time

START = time.time()

import torch
from safetensors.torch import save_file

import grammar
import models
import scenes


def say(*words):
    print(f"[{time.time() - START:6.1f}s]", *words, flush=True)


def grammar_scenes(count, seed, device, height=128, width=128):
    """Scenes of the captions' grammar: the held-out measure and the statistics of the latents."""
    rng = random.Random(seed)
    rows = [grammar.sprites(grammar.sample(rng, width, height)[1]) for _ in range(count)]
    glyph, geom, color, ground = (torch.tensor([r[i] for r in rows], device=device) for i in range(4))
    colors = scenes.palette(device)
    return glyph, geom.view(count, grammar.SPRITES, 3).float(), colors[color], colors[ground]


def vae_loss(vae, images, noise, kl_weight):
    """Mean absolute and squared error, error of neighbour differences (edges), and a light pull of the latents to N(0,1)."""
    mean, logvar = vae.encode(images)
    z = mean + (0.5 * logvar).exp() * noise
    out = vae.decode(z).float()
    error = out - images
    square = error.square().mean()
    edges = (error[:, :, 1:] - error[:, :, :-1]).abs().mean() + (error[:, :, :, 1:] - error[:, :, :, :-1]).abs().mean()
    kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
    return error.abs().mean() + 4.0 * square + 0.25 * edges + kl_weight * kl, square, kl


@torch.no_grad()
def psnr(vae, images, chunk=64):
    """Mean over pictures of the PSNR of the clamped reconstruction, through the mean latent."""
    values, outs = [], []
    for part in images.split(chunk):
        out = vae.decode(vae.encode(part.contiguous(memory_format=torch.channels_last))[0]).float().clamp(-1, 1)
        outs.append(out)
        mse = ((out - part) * 0.5).square().flatten(1).mean(1)
        values.append(-10 * torch.log10(mse.clamp(min=1e-10)))
    return torch.cat(values), torch.cat(outs)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=7.0)
    p.add_argument("--out", default=os.environ.get("OUT", "out"))
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--kl", type=float, default=3e-4)
    p.add_argument("--max-steps", type=int, default=0)
    p.add_argument("--no-compile", action="store_true")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    deadline = START + a.minutes * 60
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")

    use_compile = device == "cuda" and not a.no_compile

    atlas, colors = scenes.build_atlas(device), scenes.palette(device)
    generator = torch.Generator(device=device).manual_seed(1)
    vae = models.Vae()
    for m in vae.modules():  # residual branches start small
        if isinstance(m, models.ResidualBlock):
            m.conv2.weight.data.mul_(0.3)
    vae = vae.to(device, memory_format=torch.channels_last)
    params = list(vae.parameters())
    optimizer = torch.optim.AdamW(params, lr=a.lr, betas=(0.9, 0.99), weight_decay=1e-4, fused=device == "cuda")
    average = [q.detach().clone() for q in params]
    say(f"parameters {sum(q.numel() for q in params)} (2-D)")
    held = grammar_scenes(min(512, 4 * a.batch), 99, device)
    held_images = scenes.render(atlas, *held, 128, 128)
    fast = {
        "render": torch.compile(scenes.render, dynamic=False) if use_compile else scenes.render,
        "loss": torch.compile(vae_loss, dynamic=False) if use_compile else vae_loss,
    }
    kl_weight = torch.tensor(a.kl, device=device)

    def call(name, eager, *args):
        if fast[name] is not eager:
            try:
                return fast[name](*args)
            except Exception as error:  # a compiler failure must not cost the run
                say(f"{name}: falling back to eager:", repr(error)[:300])
                fast[name] = eager
        return eager(*args)

    def loss_of(batch, height, width, compiled):
        scene = scenes.random_scenes(batch, height, width, generator, colors)
        if compiled:
            images = call("render", scenes.render, atlas, *scene, height, width)
        else:
            images = scenes.render(atlas, *scene, height, width)
        images = images.detach().contiguous(memory_format=torch.channels_last)
        noise = torch.randn(batch, 16, height // 8, width // 8, device=device)
        with autocast():
            return (
                call("loss", vae_loss, vae, images, noise, kl_weight)
                if compiled
                else vae_loss(vae, images, noise, kl_weight)
            )

    try:
        loss_of(a.batch, 128, 128, True)[0].backward()  # compiles
    except Exception as error:
        if fast["loss"] is vae_loss:
            raise
        say("backward: falling back to eager:", repr(error)[:300])
        fast["loss"] = vae_loss
        loss_of(a.batch, 128, 128, True)[0].backward()
    optimizer.zero_grad(set_to_none=True)
    if device == "cuda":
        torch.cuda.synchronize()
    begin, finish = time.time(), deadline - (15 if device == "cuda" else 20)
    say(f"compiled; training for {finish - begin:.0f} s")
    rng, step, shown = random.Random(3), 0, begin
    sizes = [(192, 192), (96, 160), (160, 96), (64, 64)]
    while True:
        now = time.time()
        if now >= finish or (a.max_steps and step >= a.max_steps):
            break
        along = min(1.0, (now - begin) / (finish - begin))
        rate = a.lr * min(1.0, (step + 1) / 300) * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * along)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        if rng.random() < 0.04:  # other sizes, eagerly, so that attention and borders meet them
            height, width = rng.choice(sizes)
            loss, square, kl = loss_of(max(2, a.batch * 8192 // (height * width)), height, width, False)
        else:
            loss, square, kl = loss_of(a.batch, 128, 128, True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(average, params, 1 - min(0.998, (1 + step) / (10 + step)))
        step += 1
        if step % 20 == 0:
            value = loss.item()
            if time.time() - shown > 10:
                shown = time.time()
                with autocast():
                    held_value = psnr(vae, held_images[:128])[0].mean().item()
                say(
                    f"step {step} loss {value:.4f} psnr(batch) {-10 * math.log10(square.item() / 4 + 1e-12):.2f} held-out {held_value:.2f} dB "
                    f"kl {kl.item():.2f} lr {rate:.2e} {step / (shown - begin):.1f} steps/s"
                )
    say(f"trained {step} steps")
    for q, v in zip(params, average):
        q.data.copy_(v)
    vae.eval()
    values, outs = psnr(vae, held_images)  # f32
    say(
        f"held-out PSNR f32: mean {values.mean():.2f} dB, tenth percentile {values.quantile(0.1):.2f}, worst {values.min():.2f}"
    )
    weights = {k: v.to(torch.bfloat16).float() for k, v in vae.state_dict().items()}
    backup = {k: v.clone() for k, v in vae.state_dict().items()}
    vae.load_state_dict(weights)
    say(f"held-out PSNR with bf16 weights: mean {psnr(vae, held_images)[0].mean():.2f} dB")
    vae.load_state_dict(backup)

    # statistics of the latents over scenes of the grammar: of the mean, but a dead channel keeps its posterior noise as scale
    chunks = []
    with torch.no_grad():
        for k in range(8 if device == "cuda" else 1):
            images = scenes.render(atlas, *grammar_scenes(min(512, 4 * a.batch), 1000 + k, device), 128, 128)
            chunks += [vae.encode(part.contiguous(memory_format=torch.channels_last)) for part in images.split(64)]
    mean, logvar = (torch.cat([c[i] for c in chunks]) for i in range(2))
    center = mean.mean(dim=(0, 2, 3))
    std = (mean.var(dim=(0, 2, 3)) + logvar.exp().mean(dim=(0, 2, 3))).sqrt()
    say("latent means", [round(v, 3) for v in center.tolist()])
    say("latent deviations", [round(v, 3) for v in std.tolist()])
    say("deviations of the mean", [round(v, 3) for v in mean.std(dim=(0, 2, 3)).tolist()])
    say("posterior noise", [round(v, 3) for v in logvar.exp().mean(dim=(0, 2, 3)).sqrt().tolist()])
    stats = {"mean": [round(v, 6) for v in center.tolist()], "std": [round(v, 6) for v in std.tolist()]}
    tensors = {k: v.float().cpu().contiguous() for k, v in vae.state_dict().items()}
    path = os.path.join(a.out, "vae.safetensors")
    save_file(tensors, path, metadata={"latents": json.dumps(stats), "psnr": f"{values.mean():.2f}"})
    worst = values.argsort()[:8]
    pick = torch.cat([torch.arange(min(24, len(values)), device=worst.device), worst])
    pairs = torch.stack([held_images[pick], outs[pick]], 1).flatten(0, 1)
    scenes.write_png(os.path.join(a.out, "reconstructions.png"), scenes.contact_sheet(pairs, 16))
    say("done")


if __name__ == "__main__":
    main()
