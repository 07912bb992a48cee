"""Judges edited pictures against rows of edit_grammar: was the change made, and did everything else stay?

changed: what the instruction asked for is there (colour, shape, place, word, background), or gone.
kept:    outside the changed objects (their outlines before and after, and the object found in the picture, all grown by a few pixels) at most 2 % of the
         pixels differ from the input by more than 24 levels in any channel. When the background changes, the same inside the objects.
"""

import numpy as np
import torch
import torch.nn.functional as F

import check
import edit_grammar
import edit_scenes
import scenes

NAMES, PALETTE = check.NAMES, check.PALETTE
LEVELS, SHARE = 24, 0.02
GROWN = 4  # pixels around an outline that may change with it
_cache = {}


def _tools():
    if not _cache:
        _cache["atlas"], _cache["colors"] = scenes.build_atlas("cpu"), scenes.palette("cpu")
    return _cache["atlas"], _cache["colors"]


def draw(scene_list):
    """Scenes of one size -> uint8 [B,H,W,3]"""
    atlas, colors = _tools()
    flat = [edit_scenes.sprites(s) for s in scene_list]
    glyph, geom, color, ground = (torch.tensor([f[i] for f in flat]) for i in range(4))
    s = scene_list[0]
    image = scenes.render(
        atlas, glyph, geom.view(len(flat), -1, 3), colors[color], colors[ground], s["height"], s["width"]
    )
    return ((image * 0.5 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).numpy()


def coverage(scene, only):
    """[H,W] in [0,1]: how much of each pixel the elements `only` fill."""
    atlas, _ = _tools()
    glyph, geom, _, _ = edit_scenes.sprites(scene, only)
    ones, zero = torch.ones(1, edit_scenes.SPRITES, 3), torch.zeros(1, 3)
    image = scenes.render(
        atlas, torch.tensor([glyph]), torch.tensor([geom]).view(1, -1, 3), ones, zero, scene["height"], scene["width"]
    )
    return (image[0, 0] * 0.5 + 0.5).numpy()


def grow(mask, pixels):
    t = torch.from_numpy(mask.astype(np.float32))[None, None]
    return (F.max_pool2d(t, 2 * pixels + 1, 1, pixels)[0, 0] > 0).numpy()


def shrink(mask, pixels):
    return ~grow(~mask, pixels)


def nearest(pixels):
    return np.linalg.norm(pixels.astype(np.float32)[..., None, :] - PALETTE, axis=-1).argmin(-1)


def _color_mask(image, scene, name):
    """Pixels closer to `name` than to the background and the other inks of the scene."""
    inks = list(dict.fromkeys([scene["background"], name] + edit_scenes.inks(scene)))
    centers = np.stack([PALETTE[NAMES.index(c)] for c in inks])
    return np.linalg.norm(image.astype(np.float32)[:, :, None] - centers, axis=-1).argmin(-1) == 1


def find_object(image, scene, wanted):
    """The part of the picture that is `wanted`, or None."""
    mask = _color_mask(image, scene, wanted["color"])
    side = min(scene["width"], scene["height"])
    best = None
    for part in check.components(mask):
        ys, xs = np.where(part)
        away = np.hypot((xs.min() + xs.max() + 1) / 2 - wanted["cx"], (ys.min() + ys.max() + 1) / 2 - wanted["cy"])
        if away <= side / 12 and (best is None or part.sum() > best.sum()):
            best = part
    if best is None:
        return None
    area = (coverage(dict(scene, objects=[wanted], word=None), [0]) > 0.5).sum()
    named = (nearest(image[shrink(best, 1)]) == NAMES.index(wanted["color"])).mean() if shrink(best, 1).any() else 0.0
    if not 0.7 <= best.sum() / area <= 1.4 or named < 0.8 or check.shape_of(best) != wanted["shape"]:
        return None
    return best


def find_word(image, scene):
    word = scene["word"]
    x0, y0, x1, y1 = edit_scenes.word_box(word)
    near = np.zeros(image.shape[:2], bool)
    near[max(0, int(y0) - 6) : int(y1) + 7, max(0, int(x0) - 8) : int(x1) + 9] = True
    mask = _color_mask(image, scene, word["color"]) & near
    inner = mask & (coverage(scene, [len(scene["objects"])]) > 0.99)
    if (
        not inner.any()
        or (nearest(image[inner]) == NAMES.index(word["color"])).mean() < 0.8
        or check.read_word(mask) != word["text"]
    ):
        return None
    return mask


def gone(image, region, background):
    """Whether the region shows the background."""
    far = np.linalg.norm(image.astype(np.float32) - PALETTE[NAMES.index(background)], axis=-1) > 40
    return far[region].mean() <= 0.03 if region.any() else True


def judge(image, inputs, row):
    """image uint8 [H,W,3]; inputs: the pictures it was made from -> {changed, kept: bool, moved: share of pixels}"""
    before, after, base = row["before"][row["base"]], row["after"], inputs[row["base"]]
    was, now = row["changed"]["before"], row["changed"]["after"]
    moved = np.abs(image.astype(np.int32) - base.astype(np.int32)).max(-1) > LEVELS
    everything = list(range(len(edit_scenes.elements(after))))
    if row["kind"] == "background":
        covered = coverage(after, everything)
        outside = ~grow(covered > 0, 2)
        changed = (nearest(image[outside]) == NAMES.index(after["background"])).mean() >= 0.97
        rest = shrink(covered > 0.99, 1)
    else:
        region = np.zeros(moved.shape, bool)
        if was:
            region |= coverage(before, was) > 0
        leftover, changed = region.copy(), True
        for index in now:
            is_word = index == len(after["objects"])
            found = find_word(image, after) if is_word else find_object(image, after, after["objects"][index])
            changed = changed and found is not None
            new = coverage(after, [index]) > 0
            region |= new
            leftover &= ~grow(new, 3)
            if found is not None:
                region |= found
                leftover &= ~grow(found, 2)
        changed = changed and gone(image, leftover, after["background"])
        rest = ~grow(region, GROWN)
    share = moved[rest].mean() if rest.any() else 0.0
    return {"changed": bool(changed), "kept": bool(share <= SHARE), "moved": float(share)}


def report(images, inputs, rows):
    """-> ({kind: (changed, kept, of)}, failures)"""
    totals, bad = {}, []
    for i, (image, given, row) in enumerate(zip(images, inputs, rows)):
        v = judge(image, given, row)
        a, b, n = totals.get(row["kind"], (0, 0, 0))
        totals[row["kind"]] = (a + v["changed"], b + v["kept"], n + 1)
        if not (v["changed"] and v["kept"]):
            bad.append(
                (
                    i,
                    f"{'' if v['changed'] else 'not changed '}{'' if v['kept'] else 'not kept '}({100 * v['moved']:.1f} %)",
                )
            )
    return totals, bad


def summary(totals):
    one = [v for k, v in totals.items() if k != "two"]
    text = {k: f"{a}/{b}/{n}" for k, (a, b, n) in totals.items()}
    if one:
        text["one picture"] = " ".join(f"{100 * sum(v[i] for v in one) / sum(v[2] for v in one):.1f}%" for i in (0, 1))
    if "two" in totals:
        a, b, n = totals["two"]
        text["two pictures"] = f"{100 * a / n:.1f}% {100 * b / n:.1f}%"
    return text


def main():
    """The judge itself: the pictures asked for must pass, the unedited inputs must not."""
    rows = edit_grammar.development_edits()
    inputs = [list(draw(r["before"])) for r in rows]
    wanted = [draw([r["after"]])[0] for r in rows]
    totals, bad = report(wanted, inputs, rows)
    print("as asked for:", summary(totals))
    for i, why in bad:
        print("  ", why, rows[i]["kind"], rows[i]["instruction"], rows[i]["after"])
    print("left as they were:", summary(report([x[r["base"]] for x, r in zip(inputs, rows)], inputs, rows)[0]))


if __name__ == "__main__":
    main()
