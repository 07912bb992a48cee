"""Judges pictures against evaluation rows (grammar.evaluation_prompts): colours, background, relation, shape, count, word.

A quick judge for training; colours by nearest palette entry, shapes by overlap with their outlines scaled to the bounding box,
words by cutting the ink's bounding box into font cells.
"""

import numpy as np
import torch
import torch.nn.functional as F

import scenes

NAMES = scenes.COLOR_NAMES
PALETTE = np.array([scenes.COLORS[n] for n in NAMES], np.float32)
GRID = 24


def _templates():
    """[8, GRID, GRID] coverage of each shape inside its bounding box, and its width/height."""
    out, aspect = [], []
    atlas = scenes.build_atlas("cpu")
    for i in range(len(scenes.SHAPES)):
        inside = (atlas[i] < 0).numpy()
        ys, xs = np.where(inside)
        crop = inside[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
        out.append(_resize(crop, GRID))
        aspect.append(crop.shape[1] / crop.shape[0])
    return np.stack(out), np.array(aspect)


def _resize(mask, size, width=None):
    t = torch.from_numpy(mask.astype(np.float32))[None, None]
    return F.interpolate(t, (size, width or size), mode="area" if min(mask.shape) >= size else "bilinear")[0, 0].numpy()


_cache = []


def components(mask):
    """Connected parts (8 neighbours) of a bool mask of at least 40 pixels, largest first."""
    parent, runs, above = [], [], []  # runs: row, first, last + 1; above: numbers of the runs of the row before

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for y, row in enumerate(mask):
        steps = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]])))
        here = []
        for first, end in zip(steps[::2].tolist(), steps[1::2].tolist()):
            number = len(runs)
            runs.append((y, first, end))
            parent.append(number)
            here.append(number)
            for other in above:
                if runs[other][1] <= end and first <= runs[other][2]:  # they touch, corners included
                    parent[root(number)] = root(other)
        above = here
    parts = {}
    for i, run in enumerate(runs):
        parts.setdefault(root(i), []).append(run)
    found = []
    for members in parts.values():
        if sum(end - first for _, first, end in members) >= 40:
            part = np.zeros(mask.shape, bool)
            for y, first, end in members:
                part[y, first:end] = True
            found.append(part)
    return sorted(found, key=lambda part: -part.sum())


def shape_of(mask):
    if not _cache:
        _cache.extend(_templates())
    templates, aspects = _cache
    ys, xs = np.where(mask)
    crop = mask[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    small = _resize(crop, GRID)
    overlap = np.minimum(templates, small).sum((1, 2)) / np.maximum(templates, small).sum((1, 2))
    overlap = overlap - 0.3 * np.abs(np.log(aspects / (crop.shape[1] / crop.shape[0])))
    return scenes.SHAPES[int(overlap.argmax())]


def read_word(mask):
    parts = [c for c in components(mask)]
    if not parts:
        return ""
    mask = np.any(parts, axis=0)
    ys, xs = np.where(mask)
    crop = mask[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    n = int(np.clip(round((7 * crop.shape[1] / crop.shape[0] + 1) / 6), 1, 4))
    cells = F.adaptive_avg_pool2d(
        F.interpolate(torch.from_numpy(crop.astype(np.float32))[None, None], (7 * 8, (6 * n - 1) * 8), mode="bilinear"),
        (7, 6 * n - 1),
    )[0, 0].numpy()
    word = ""
    for i in range(n):
        cell = cells[:, 6 * i : 6 * i + 5]
        scores = {
            c: -np.abs(cell - np.array([[v == "#" for v in row] for row in rows])).sum()
            for c, rows in scenes.FONT.items()
        }
        word += max(scores, key=scores.get)
    return word


def judge(image, row):
    """image uint8 [H,W,3] -> {colors, background, relation?, shape?, count?, word?: bool}"""
    pixels = image.astype(np.float32)
    border = np.concatenate(
        [
            pixels[:3].reshape(-1, 3),
            pixels[-3:].reshape(-1, 3),
            pixels[:, :3].reshape(-1, 3),
            pixels[:, -3:].reshape(-1, 3),
        ]
    )
    nearest = np.linalg.norm(np.median(border, axis=0)[None] - PALETTE, axis=1)
    result = {"background": NAMES[int(nearest.argmin())] == row["background"]}
    ground = PALETTE[NAMES.index(row["background"])]
    wanted = list(dict.fromkeys(row["colors"]))
    centers = np.stack([ground] + [PALETTE[NAMES.index(c)] for c in wanted])
    label = np.linalg.norm(pixels[:, :, None] - centers, axis=-1).argmin(-1)
    foreground = np.linalg.norm(pixels - ground, axis=-1) > 55
    full = np.linalg.norm(pixels[:, :, None] - PALETTE, axis=-1).argmin(-1)
    masks = [label == i + 1 for i in range(len(wanted))]
    # the wanted colours cover most of the foreground by their own name, and each is there
    named = np.isin(full, [NAMES.index(c) for c in wanted]) & foreground
    result["colors"] = bool(
        foreground.sum() > 40 and named.sum() > 0.55 * foreground.sum() and all(m.sum() > 40 for m in masks)
    )
    kind = row["kind"]
    if kind == "word":
        result["word"] = read_word(masks[0]) == row["word"]
        return result
    parts = [components(m) for m in masks]
    if kind == "pair":
        ok = all(parts)
        result["relation"] = False
        if ok:
            (ay, ax), (by, bx) = (np.mean(np.where(p[0]), axis=1) for p in parts)
            dx, dy = ax - bx, ay - by
            result["relation"] = bool(
                {"left": dx < -abs(dy), "right": dx > abs(dy), "above": dy < -abs(dx), "below": dy > abs(dx)}[
                    row["relation"]
                ]
            )
        result["shape"] = bool(ok and all(shape_of(p[0]) == s for p, s in zip(parts, row["shapes"])))
        return result
    result["shape"] = bool(parts[0] and all(shape_of(p) == row["shapes"][0] for p in parts[0]))
    if kind == "count":
        result["count"] = len(parts[0]) == row["count"]
    return result


def report(images, rows):
    """images uint8 [B,H,W,3] -> ({measure: (right, of)}, indices of failures)"""
    totals, bad = {}, []
    for i, (image, row) in enumerate(zip(images, rows)):
        verdict = judge(image, row)
        for k, v in verdict.items():
            right, count = totals.get(k, (0, 0))
            totals[k] = (right + int(v), count + 1)
        if not all(verdict.values()):
            bad.append((i, [k for k, v in verdict.items() if not v]))
    return totals, bad


def main():
    """The judge on drawn scenes: it must be right nearly always."""
    import random

    import grammar

    rng, rows, drawn = random.Random(4), [], []
    for i in range(300):
        kind = ["single", "pair", "count", "word"][i % 4]
        _, s = grammar.sample(rng, kind=kind, held_out=True)
        row = {"kind": kind, "background": s["background"]}
        if kind == "word":
            row.update(word=s["word"], colors=[s["color"]])
        else:
            row.update(
                shapes=[o["shape"] for o in s["objects"]],
                colors=[o["color"] for o in s["objects"]],
                count=s["count"],
                relation=s.get("relation"),
            )
        rows.append(row)
        drawn.append(grammar.sprites(s))
    glyph, geom, color, ground = (torch.tensor([d[i] for d in drawn]) for i in range(4))
    colors = scenes.palette("cpu")
    images = scenes.render(
        scenes.build_atlas("cpu"), glyph, geom.view(-1, 4, 3), colors[color], colors[ground], 128, 128
    )
    images = ((images * 0.5 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    totals, bad = report(images, rows)
    print(totals)
    for i, why in bad:
        print(why, rows[i])


if __name__ == "__main__":
    main()
