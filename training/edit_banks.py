"""Edits drawn ahead of training, and the pictures and latents made from them."""

import multiprocessing
import random

import numpy as np
import torch

import edit_grammar
import edit_scenes
import edit_tokenizer
import models

TEXT_TOKENS = 22  # of instruction and suffix; longer instructions are not used
SOFT_SHARE = 0.2  # of the inputs is slightly blurred, as pictures drawn by a model are


def _part(job):
    """One worker's share of edits as arrays."""
    seed, count, pictures, height, width = job
    rng, encoder = random.Random(seed), edit_tokenizer.Encoder()
    k, scenes_each = edit_scenes.SPRITES, pictures + 1
    ids, length = np.full((count, TEXT_TOKENS), encoder.pad, np.int16), np.zeros(count, np.int16)
    glyph, color = (np.zeros((count, scenes_each, k), np.int8) for _ in range(2))
    geom, ground = np.zeros((count, scenes_each, 3 * k), np.float32), np.zeros((count, scenes_each), np.int8)
    i = 0
    while i < count:
        edit = edit_grammar.sample_two(rng, width, height) if pictures == 2 else edit_grammar.sample(rng, width, height)
        tokens = encoder.caption(edit["instruction"])
        if len(tokens) > TEXT_TOKENS:
            continue
        ids[i, : len(tokens)], length[i] = tokens, len(tokens)
        for s, scene in enumerate(edit["before"] + [edit["after"]]):
            glyph[i, s], geom[i, s], color[i, s], ground[i, s] = edit_scenes.sprites(scene)
        i += 1
    return ids, length, glyph, geom, color, ground


def build_banks(jobs, workers, seed):
    """jobs: {(pictures, height, width): count} -> the same keys with arrays. Runs before the GPU is touched (fork)."""
    parts, owner = [], []
    for key, count in jobs.items():
        pieces = max(1, min(4 * workers, count // 2000))
        for k in range(pieces):
            share = count * (k + 1) // pieces - count * k // pieces
            parts.append((hash((seed, *key, k)) & 0xFFFFFFFF, share, *key))
            owner.append(key)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        results = pool.map(_part, parts, chunksize=1)
    return {
        key: tuple(np.concatenate(x) for x in zip(*[r for r, o in zip(results, owner) if o == key])) for key in jobs
    }


class Edits:
    """Edits of one size on the device, and a ring of the pictures and latents made of them so far."""

    def __init__(self, arrays, pictures, height, width, slots, device):
        self.pictures, self.height, self.width = pictures, height, width
        self.rows, self.cols = height // 16, width // 16
        self.ids, self.length, self.glyph, self.geom, self.color, self.ground = (
            torch.from_numpy(a).to(device) for a in arrays
        )
        self.count = len(self.length)
        n, slots = self.rows * self.cols, min(slots, self.count)
        self.target = torch.empty(slots, n, 64, dtype=torch.float16, device=device)
        self.conditions = torch.empty(slots, pictures * n, 64, dtype=torch.float16, device=device)
        self.images = torch.empty(slots, pictures, 3, height, width, dtype=torch.uint8, device=device)
        self.owner = torch.zeros(slots, dtype=torch.long, device=device)
        self.filled = torch.zeros((), device=device)  # a tensor, because a captured step reads it
        self.slots, self.cursor, self.slot, self.made = slots, 0, 0, 0

    @torch.no_grad()
    def make(self, batch, context):
        """Draws and encodes the next `batch` edits into the ring."""
        device, p = self.geom.device, self.pictures
        index = (torch.arange(batch, device=device) + self.cursor) % self.count
        self.cursor = (self.cursor + batch) % self.count

        def flat(a):
            return a[index].flatten(0, 1)

        geom = flat(self.geom).view(-1, edit_scenes.SPRITES, 3)
        colors = context["colors"]
        drawn = context["render"](
            context["atlas"],
            flat(self.glyph).long(),
            geom,
            colors[flat(self.color).long()],
            colors[flat(self.ground).long()],
            self.height,
            self.width,
        )
        soft = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(drawn, (1, 1, 1, 1), mode="replicate"), 3, 1)
        share = torch.rand(batch, p + 1, device=device) * (torch.rand(batch, p + 1, device=device) < SOFT_SHARE)
        share[:, p] = 0  # the picture asked for is sharp
        drawn = torch.lerp(drawn, soft, share.view(-1, 1, 1, 1) * 0.8)
        levels = ((drawn * 0.5 + 0.5) * 255).round()
        mean = context["encode"](levels / 127.5 - 1)
        x = models.pack(((mean - context["mean"]) / context["std"]).contiguous()).view(batch, p + 1, -1, 64)
        where = (torch.arange(batch, device=device) + self.slot) % self.slots
        self.conditions[where] = x[:, :p].flatten(1, 2).half()
        self.target[where] = x[:, p].half()
        self.images[where] = levels.view(batch, p + 1, *levels.shape[1:])[:, :p].byte()
        self.owner[where] = index
        self.slot = (self.slot + batch) % self.slots
        self.made += batch
        self.filled.fill_(min(self.slots, self.made))

    def batch(self, size, empties):
        """target, conditions, images, ids, length; one instruction in twenty is emptied"""
        device = self.geom.device
        pick = (torch.rand(size, device=device) * self.filled).long().clamp(max=self.slots - 1)
        index = self.owner[pick]
        ids, length = self.ids[index].long(), self.length[index].long()
        roll = torch.rand(size, device=device)
        for (low, high), (empty_ids, empty_length) in zip(((0.0, 0.025), (0.025, 0.05)), empties):
            drop = (roll >= low) & (roll < high)
            ids = torch.where(drop[:, None], empty_ids[None], ids)
            length = torch.where(drop, empty_length, length)
        return self.target[pick].float(), self.conditions[pick].float(), self.images[pick], ids, length, None


class Pairs:
    """Edits with two pictures, mixed on the device: scenes of one object, encoded in every colour that stands out from their background.

    The shape of scene i in the colour of scene j is scene i encoded in that colour, so a few thousand scenes make endless edits.
    """

    def __init__(self, scene_count, edits, seed, device):
        rng, encoder, inks = random.Random(seed), edit_tokenizer.Encoder(), edit_scenes.OBJECT_COLORS
        self.scenes = [edit_scenes.random_scene(rng, 128, 128, (1,)) for _ in range(scene_count)]
        self.made, self.count = 0, scene_count
        allowed = np.array([[c in edit_scenes.CONTRASTS[s["background"]] for c in inks] for s in self.scenes])
        apart = np.array([[a in edit_scenes.CONTRASTS[b] for a in inks] for b in inks])
        draw = np.random.default_rng(seed)
        i, j = draw.integers(scene_count, size=(2, 6 * edits))
        own, new = draw.integers(len(inks), size=(2, 6 * edits))
        good = np.flatnonzero(allowed[i, own] & allowed[i, new] & allowed[j, new] & apart[own, new] & (i != j))[:edits]
        self.mix = torch.from_numpy(np.stack([i, own, j, new], 1)[good]).to(device)
        texts = [(encoder.caption(edit_grammar.two_phrase(rng, b)), b) for b in (0, 1) for _ in range(6000)]
        texts = [(t, b) for t, b in texts if len(t) <= TEXT_TOKENS]
        self.ids = torch.tensor([t + [encoder.pad] * (TEXT_TOKENS - len(t)) for t, _ in texts], device=device)
        self.length = torch.tensor([len(t) for t, _ in texts], device=device)
        self.base = torch.tensor([b for _, b in texts], device=device)
        self.latents = torch.empty(scene_count, len(inks), 64, 64, dtype=torch.float16, device=device)
        self.images = torch.empty(scene_count, len(inks), 3, 128, 128, dtype=torch.uint8, device=device)
        flat = [edit_scenes.sprites(s) for s in self.scenes]
        self.glyph, self.geom, _, self.ground = (torch.tensor([f[k] for f in flat], device=device) for k in range(4))
        self.device, self.inks = device, len(inks)

    @torch.no_grad()
    def make(self, batch, context):
        """Draws and encodes the next scenes in every object colour (the first of the palette)."""
        where = torch.arange(self.made, min(self.count, self.made + max(1, batch // self.inks)), device=self.device)
        index = where.repeat_interleave(self.inks)
        ink = torch.arange(self.inks, device=self.device).repeat(len(where))
        colors = context["colors"]
        drawn = context["render"](
            context["atlas"],
            self.glyph[index],
            self.geom[index].view(len(index), -1, 3),
            colors[ink][:, None].expand(-1, edit_scenes.SPRITES, -1),
            colors[self.ground[index]],
            128,
            128,
        )
        levels = ((drawn * 0.5 + 0.5) * 255).round()
        mean = context["encode"](levels / 127.5 - 1)
        self.latents[where] = (
            models.pack(((mean - context["mean"]) / context["std"]).contiguous())
            .view(len(where), self.inks, 64, 64)
            .half()
        )
        self.images[where] = levels.view(len(where), self.inks, 3, 128, 128).byte()
        self.made += len(where)

    def batch(self, size, empties):
        """As Edits.batch, and which picture gives the shape and which colour the other gives [B,2]; no instruction is emptied"""
        i, own, j, new = self.mix[torch.randint(len(self.mix), (size,), device=self.device)].unbind(1)
        text = torch.randint(len(self.ids), (size,), device=self.device)
        base = self.base[text]

        def ordered(kept, other):
            first = (base == 0).view(-1, *[1] * (kept.ndim - 1))
            return torch.stack([torch.where(first, kept, other), torch.where(first, other, kept)], dim=1)

        conditions = ordered(self.latents[i, own].float(), self.latents[j, new].float()).flatten(1, 2)
        images = ordered(self.images[i, own], self.images[j, new])
        return (
            self.latents[i, new].float(),
            conditions,
            images,
            self.ids[text],
            self.length[text],
            torch.stack([base, new], dim=1),
        )
