"""Captions and scenes drawn ahead of training, and the latents encoded from them."""

import multiprocessing
import random

import numpy as np
import torch

import grammar
import models
import tokenizer

TEXT_TOKENS = 32  # tokens after the template prefix, suffix included; longer captions are not used


def _bank_part(job):
    """One worker's share of captions and scenes as arrays."""
    seed, count, height, width, rich = job
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
        caption, scene = grammar.sample(rng, width, height, rich=rich)
        tokens = encoder.caption(caption)
        if len(tokens) > TEXT_TOKENS:
            continue
        ids[i, : len(tokens)] = tokens
        length[i] = len(tokens)
        glyph[i], geom[i], color[i], ground[i] = grammar.sprites(scene)
        i += 1
    return ids, length, glyph, geom, color, ground


def build_banks(jobs, workers, rich):
    """jobs: {(height, width): count} -> {(height, width): tuple of arrays}. Runs before the GPU is touched (fork)."""
    parts, owner = [], []
    for size, count in jobs.items():
        pieces = max(1, min(4 * workers, count // 2000))
        for k in range(pieces):
            share = count * (k + 1) // pieces - count * k // pieces
            parts.append((hash((8 if rich else 7, *size, k)) & 0xFFFFFFFF, share, *size, rich))
            owner.append(size)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        results = pool.map(_bank_part, parts, chunksize=1)
    return {
        size: tuple(np.concatenate(x) for x in zip(*[r for r, o in zip(results, owner) if o == size])) for size in jobs
    }


class Scenes:
    """Captions and scene parameters on the device, and the latents encoded from them so far."""

    def __init__(self, arrays, size, device):
        self.height, self.width = size
        self.rows, self.cols = self.height // 16, self.width // 16
        self.ids, self.length, self.glyph, self.geom, self.color, self.ground = (
            torch.from_numpy(a).to(device) for a in arrays
        )
        self.count = len(self.length)
        self.cursor = 0
        self.latents = None  # [slots, N, 64] normalised, fp16
        self.owner = None  # [slots] which caption
        self.slot = 0

    def images(self, index, atlas, colors, render):
        geom = self.geom[index].view(-1, grammar.SPRITES, 3)
        return render(
            atlas,
            self.glyph[index].long(),
            geom,
            colors[self.color[index].long()],
            colors[self.ground[index].long()],
            self.height,
            self.width,
        )

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
