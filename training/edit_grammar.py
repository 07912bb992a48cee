"""Instructions, and the pictures before and after them.

`sample(rng, width, height, held_out, kind)` returns an edit, a dict
  kind         one of KINDS, or "two" (from `sample_two`)
  instruction  what to do, always true of the pair
  before       list of one scene, or of two for "two"
  after        the scene asked for
  base         which of `before` everything not asked for comes from
  changed      the elements that differ: before -> [..] and after -> [..], as indices into `edit_scenes.elements(scene)`
What the instruction leaves open has one answer: a new object is of medium size, a place is the point of grammar.PLACE_AT, a replaced shape keeps
centre, size and (unless one is named) colour, and of two pictures the one that gives the shape also gives all the rest.
"""

import random

import edit_scenes
import edit_wordings
import grammar
import scenes

KINDS = ("color", "remove", "add", "move", "replace", "background", "rewrite", "write")

# ---- words for things ------------------------------------------------------------------------------------------------


def _named(rng, scene, index):
    """How an instruction may call object `index`."""
    o, others = scene["objects"][index], [x for i, x in enumerate(scene["objects"]) if i != index]
    noun, color = rng.choice(grammar.SINGULAR[o["shape"]]), grammar._color(rng, o["color"])
    ways = ["the " + color + " " + noun] * 5
    if all(x["shape"] != o["shape"] for x in others):
        ways += ["the " + noun] * 2
    if all(x["color"] != o["color"] for x in others):
        ways.append("the " + color + " " + rng.choice(("shape", "one", "object")))
    if not others:
        ways.append(rng.choice(("it", "the shape", "the object")) if not scene["word"] else "the shape")
    return rng.choice(ways)


def _with_article(rng, shape, color=None, size=None):
    words = rng.choice(grammar.SINGULAR[shape])
    if color:
        words = grammar._color(rng, color) + " " + words
    if size:
        words = rng.choice(grammar.SIZE_WORDS[size]) + " " + words
    return grammar._article(words)


def _frame(rng, usual, held, held_out):
    return rng.choice(held if held_out else usual)


# ---- the kinds of edit: each returns (phrase, before, after, changed before, changed after) or None -------------------------------


def _color_edit(rng, width, height, held_out):
    before = edit_scenes.random_scene(rng, width, height, (1, 1, 2, 2, 3), 0.15)
    if rng.random() < 0.1:
        before["objects"], before["word"] = [], edit_scenes.random_word(rng, before, "center")
    after = edit_scenes.copy_of(before)
    if before["word"] and (not before["objects"] or rng.random() < 0.3):
        index, target, name = len(before["objects"]), after["word"], rng.choice(("the word", "the text", "the letters"))
    else:
        index = rng.randrange(len(before["objects"]))
        target, name = after["objects"][index], _named(rng, before, index)
    new = edit_scenes.ink(rng, before, edit_scenes.inks(before))
    if new is None:
        return None
    target["color"] = new
    phrase = _frame(rng, edit_wordings.COLOR, edit_wordings.COLOR_HELD, held_out).format(
        r=name, c=grammar._color(rng, new)
    )
    return phrase, before, after, [index], [index]


def _remove_edit(rng, width, height, held_out):
    before = edit_scenes.random_scene(rng, width, height, (1, 2, 2, 3), 0.15)
    after = edit_scenes.copy_of(before)
    if before["word"] and rng.random() < 0.4:
        index, name = len(before["objects"]), rng.choice(("the word", "the text", "the letters"))
        after["word"] = None
    else:
        index = rng.randrange(len(before["objects"]))
        name = _named(rng, before, index)
        del after["objects"][index]
    return (
        _frame(rng, edit_wordings.REMOVE, edit_wordings.REMOVE_HELD, held_out).format(r=name),
        before,
        after,
        [index],
        [],
    )


def _add_edit(rng, width, height, held_out):
    before = edit_scenes.random_scene(rng, width, height, (0, 1, 1, 1, 2, 2), 0.08)
    after = edit_scenes.copy_of(before)
    size = rng.choice((None, None, None, "small", "large"))
    r = edit_scenes.RADIUS[size or "medium"] * min(width, height)
    shape, color = rng.choice(scenes.SHAPES), edit_scenes.ink(rng, before, edit_scenes.inks(before))
    if color is None:
        return None
    spots = []
    for place in grammar.PLACE_NAMES:
        cx, cy = edit_scenes.place_point(before, place, r)
        if edit_scenes.clear_of(before, cx, cy, r):
            spots.append((cx, cy, rng.choice(grammar.PLACES[place])))
    beside = []
    for i, o in enumerate(before["objects"]):
        step = edit_scenes.reach(o["r"]) + edit_scenes.reach(r) + 4
        for relation, (dx, dy) in {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}.items():
            cx, cy = o["cx"] + dx * step, o["cy"] + dy * step
            if edit_scenes.clear_of(before, cx, cy, r):
                beside.append((cx, cy, rng.choice(grammar.RELATIONS[relation]) + " " + _named(rng, before, i)))
    pool = beside if beside and rng.random() < 0.35 else spots
    if not pool:
        return None
    cx, cy, where = rng.choice(pool)
    after["objects"].append({"shape": shape, "color": color, "cx": cx, "cy": cy, "r": r})
    phrase = _frame(rng, edit_wordings.ADD, edit_wordings.ADD_HELD, held_out).format(
        o=_with_article(rng, shape, color, size), p=where
    )
    return phrase, before, after, [], [len(after["objects"]) - 1]


def _move_edit(rng, width, height, held_out):
    before = edit_scenes.random_scene(rng, width, height, (1, 1, 2, 2, 3), 0.05)
    after = edit_scenes.copy_of(before)
    index = rng.randrange(len(before["objects"]))
    o = before["objects"][index]
    goals = []
    for place in grammar.PLACE_NAMES:
        cx, cy = edit_scenes.place_point(before, place, o["r"])
        if (cx - o["cx"]) ** 2 + (cy - o["cy"]) ** 2 > 22**2 and edit_scenes.clear_of(
            before, cx, cy, o["r"], without=o
        ):
            goals.append((cx, cy, place))
    if not goals:
        return None
    cx, cy, place = rng.choice(goals)
    after["objects"][index].update(cx=cx, cy=cy)
    phrase = _frame(rng, edit_wordings.MOVE, edit_wordings.MOVE_HELD, held_out).format(
        r=_named(rng, before, index), t=rng.choice(edit_wordings.GOALS[place]), p=rng.choice(grammar.PLACES[place])
    )
    return phrase, before, after, [index], [index]


def _replace_edit(rng, width, height, held_out):
    before = edit_scenes.random_scene(rng, width, height, (1, 1, 2, 2, 3), 0.05)
    after = edit_scenes.copy_of(before)
    index = rng.randrange(len(before["objects"]))
    target = after["objects"][index]
    target["shape"] = rng.choice([s for s in scenes.SHAPES if s != target["shape"]])
    color = None
    if rng.random() < 0.4:
        color = edit_scenes.ink(rng, before, edit_scenes.inks(before)) if rng.random() < 0.8 else target["color"]
        if color is None:
            return None
        target["color"] = color
    if sum(o["shape"] == target["shape"] and o["color"] == target["color"] for o in after["objects"]) > 1:
        return None
    phrase = _frame(rng, edit_wordings.REPLACE, edit_wordings.REPLACE_HELD, held_out).format(
        r=_named(rng, before, index), o=_with_article(rng, target["shape"], color)
    )
    return phrase, before, after, [index], [index]


def _background_edit(rng, width, height, held_out):
    before = edit_scenes.random_scene(rng, width, height, (1, 1, 2, 2, 3), 0.12)
    if rng.random() < 0.1:
        before["objects"], before["word"] = [], edit_scenes.random_word(rng, before, "center")
    inks = edit_scenes.inks(before)
    free = [
        c
        for c in set(grammar.BACKGROUNDS)
        if all(i in edit_scenes.CONTRASTS[c] for i in inks) and grammar._distance(c, before["background"]) >= 70
    ]
    if not free:
        return None
    after = edit_scenes.copy_of(before)
    after["background"] = rng.choice(sorted(free))
    phrase = (
        _frame(rng, edit_wordings.GROUND, edit_wordings.GROUND_HELD, held_out)
        .format(c=grammar._color(rng, after["background"]))
        .replace("a orange", "an orange")
    )
    return phrase, before, after, [], []


def _rewrite_edit(rng, width, height, held_out):
    if rng.random() < 0.65:
        before = edit_scenes.empty_scene(rng, width, height)
        before["word"] = edit_scenes.random_word(rng, before, "center")
    else:
        before = edit_scenes.random_scene(rng, width, height, (1,), 1.0)
    word = before["word"]
    if word is None:
        return None
    after = edit_scenes.copy_of(before)
    new = grammar._word(rng, max(1, min(4, width // 32)))
    if new == word["text"]:
        return None
    slack = word["cell"] / edit_scenes.word_cell((width, height), len(word["text"]), word["band"])
    after["word"].update(text=new, cell=slack * edit_scenes.word_cell((width, height), len(new), word["band"]))
    quote = '"{}"' if rng.random() < 0.15 else "{}"
    phrase = _frame(rng, edit_wordings.REWRITE, edit_wordings.REWRITE_HELD, held_out).format(
        v=quote.format(word["text"]), w=quote.format(new)
    )
    index = len(before["objects"])
    return phrase, before, after, [index], [index]


def _write_edit(rng, width, height, held_out):
    before = edit_scenes.empty_scene(rng, width, height)
    where = ""
    if rng.random() < 0.45:
        band = rng.choice(("center", "center", "top", "bottom"))
        if band != "center":
            where = f" at the {band}"
        elif rng.random() < 0.3:
            where = rng.choice((" in the center", " in the middle"))
    else:
        band = rng.choice(("top", "bottom"))
        o = edit_scenes.random_object(rng, before, ("small", "medium"), top=band == "bottom")
        if o is None:
            return None
        before["objects"].append(o)
        roll = rng.random()
        if roll < 0.5:
            where = f" at the {band}"
        elif roll < 0.8:
            where = (
                " "
                + rng.choice(("above", "over") if band == "top" else ("below", "under"))
                + " "
                + _named(rng, before, 0)
            )
    color = edit_scenes.ink(rng, before, edit_scenes.inks(before))
    if color is None:
        return None
    after = edit_scenes.copy_of(before)
    text = grammar._word(rng, max(1, min(4, width // 32)))
    after["word"] = {
        "text": text,
        "color": color,
        "cell": 0.97 * edit_scenes.word_cell((width, height), len(text), band),
        "cx": width / 2,
        "cy": height * edit_scenes.BANDS[band],
        "band": band,
    }
    if after["objects"]:
        x0, y0, x1, y1 = edit_scenes.word_box(after["word"])
        o = after["objects"][0]
        if max(y0 - o["cy"], o["cy"] - y1) < edit_scenes.reach(o["r"]):
            return None
    quote = '"{}"' if rng.random() < 0.15 else "{}"
    phrase = _frame(rng, edit_wordings.WRITE, edit_wordings.WRITE_HELD, held_out).format(
        w=quote.format(text), c=grammar._color(rng, color), p=where
    )
    return phrase, before, after, [], [len(after["objects"])]


MAKERS = {
    "color": (_color_edit, 0.14),
    "remove": (_remove_edit, 0.09),
    "add": (_add_edit, 0.18),
    "move": (_move_edit, 0.15),
    "replace": (_replace_edit, 0.14),
    "background": (_background_edit, 0.08),
    "rewrite": (_rewrite_edit, 0.11),
    "write": (_write_edit, 0.11),
}


def _finish(rng, phrase, held_out):
    if not held_out:
        phrase = rng.choice(edit_wordings.POLITE) + phrase
        roll = rng.random()
        if roll < 0.06:
            phrase = phrase[0].upper() + phrase[1:]
        if rng.random() < 0.06:
            phrase += "."
    return phrase


def sample(rng, width=128, height=128, held_out=False, kind=None):
    while True:
        chosen = kind
        if chosen is None:
            chosen = rng.choices(KINDS, [MAKERS[k][1] for k in KINDS])[0]
        made = MAKERS[chosen][0](rng, width, height, held_out)
        if made is None:
            continue
        phrase, before, after, was, now = made
        return {
            "kind": chosen,
            "instruction": _finish(rng, phrase, held_out),
            "before": [before],
            "after": after,
            "base": 0,
            "changed": {"before": was, "after": now},
        }


def two_phrase(rng, base, held_out=False):
    names = rng.choice(edit_wordings.PICTURES)
    return _finish(
        rng,
        _frame(rng, edit_wordings.TWO, edit_wordings.TWO_HELD, held_out).format(s=names[base], k=names[1 - base]),
        held_out,
    )


def sample_two(rng, width=128, height=128, held_out=False):
    """Two pictures of one object each: the shape (and all else) of one in the colour of the other."""
    while True:
        pictures = [edit_scenes.random_scene(rng, width, height, (1,)) for _ in range(2)]
        base = rng.randrange(2)
        color = pictures[1 - base]["objects"][0]["color"]
        if (
            color not in edit_scenes.CONTRASTS[pictures[base]["background"]]
            or color not in edit_scenes.CONTRASTS[pictures[base]["objects"][0]["color"]]
        ):
            continue
        after = edit_scenes.copy_of(pictures[base])
        after["objects"][0]["color"] = color
        return {
            "kind": "two",
            "instruction": two_phrase(rng, base, held_out),
            "before": pictures,
            "after": after,
            "base": base,
            "changed": {"before": [0], "after": [0]},
        }


def _rounded(value):
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return round(value, 3) if isinstance(value, float) else value


def _held_out_edits(each, two, seed, first_noise, without):
    """`each` held-out edits of every kind and `two` with two pictures, none of whose instructions is in `without`."""
    rng = random.Random(seed)
    rows, seen = [], set(without)
    plan = [k for _ in range(each) for k in KINDS] + ["two"] * two
    while len(rows) < len(plan):
        kind = plan[len(rows)]
        edit = sample_two(rng, held_out=True) if kind == "two" else sample(rng, held_out=True, kind=kind)
        # two pictures have few instructions: there the pictures differ
        if edit["instruction"] in seen and kind != "two":
            continue
        seen.add(edit["instruction"])
        rows.append({"id": len(rows), "seed": first_noise + len(rows), **_rounded(edit)})
    return rows


def development_edits(each=25, two=40):
    """For choosing recipe and settings."""
    return _held_out_edits(each, two, 515151, 5000, ())


def retired_edits():
    """Judged once with an earlier model, and known since."""
    return _held_out_edits(25, 40, 80808, 7000, {r["instruction"] for r in development_edits()})


def evaluation_edits():
    """200 with one picture, 40 with two; to be judged once, when everything is chosen."""
    return _held_out_edits(25, 40, 31337, 9000, {r["instruction"] for r in development_edits() + retired_edits()})


def edits_file(rows):
    """All that a judge in another language needs, beside eval_prompts.json (palette, outlines, font)."""
    return {
        "about": "edits in wordings never used in training. before: scenes to draw as input pictures, after: the scene asked for, base: the input that "
        "everything else comes from, changed: which elements differ (objects in order, then the word); distances in pixels",
        "edits": rows,
    }


if __name__ == "__main__":
    import json
    import sys

    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as f:
            json.dump(edits_file(evaluation_edits()), f, separators=(",", ":"))
            f.write("\n")
    else:
        rng = random.Random(1)
        for k in KINDS:
            for i in range(6):
                print(k, "|", sample(rng, held_out=i >= 4, kind=k)["instruction"])
        for i in range(6):
            print("two |", sample_two(rng, held_out=i >= 4)["instruction"])
