"""Instructions, and the pictures before and after them.

`sample(rng, width, height, held_out, kind)` returns an edit, a dict
  kind         one of KINDS, or "two" (from `sample_two`)
  instruction  what to do, always true of the pair
  before       list of one scene, or of two for "two"
  after        the scene asked for
  base         which of `before` everything not asked for comes from
  changed      the elements that differ: before -> [..] and after -> [..], as indices into `elements(scene)`
A scene is {background, objects: [{shape, color, cx, cy, r}], word: None or {text, color, cell, cx, cy}, width, height}, in pixels.
What the instruction leaves open has one answer: a new object is of medium size, a place is the point of grammar.PLACE_AT, a replaced shape keeps
centre, size and (unless one is named) colour, and of two pictures the one that gives the shape also gives all the rest.
Wordings in the *_HELD lists never occur in training; every single word in them does.
"""
import random

import grammar
import scenes

KINDS = ("color", "remove", "add", "move", "replace", "background", "rewrite", "write")

COLOR = ["make {r} {c}", "make {r} {c}", "change the color of {r} to {c}", "change {r} to {c}", "paint {r} {c}", "turn {r} {c}", "color {r} {c}",
         "recolor {r} to {c}", "{r} should be {c}", "give {r} a {c} color", "{r} in {c}", "set the color of {r} to {c}", "let {r} be {c}",
         "use {c} for {r}", "draw {r} in {c}", "{r} should get a {c} color", "let the color of {r} be {c}"]
COLOR_HELD = ["turn the color of {r} to {c}", "paint {r} in {c}", "the color of {r} should be {c}", "change the color of {r} into {c}",
              "make the color of {r} {c}", "recolor {r} in {c}", "give {r} the color {c}"]
REMOVE = ["remove {r}", "remove {r}", "delete {r}", "erase {r}", "take away {r}", "take {r} away", "get rid of {r}", "remove {r} from the picture",
          "clear {r}", "{r} should go away", "the picture without {r}", "wipe out {r}", "take {r} out", "let {r} go", "{r} away", "clear {r} from the picture",
          "get {r} out of the picture", "wipe away {r}"]
REMOVE_HELD = ["delete {r} from the picture", "erase {r} from the picture", "clear away {r}", "wipe {r} away", "make {r} go away",
               "take {r} out of the picture", "let {r} go away"]
ADD = ["add {o} {p}", "add {o} {p}", "draw {o} {p}", "put {o} {p}", "place {o} {p}", "insert {o} {p}", "there should be {o} {p}", "{p} add {o}",
       "also add {o} {p}", "add {o} to the picture {p}", "show {o} {p}", "and {o} {p}"]
ADD_HELD = ["{p} draw {o}", "{p} put {o}", "also draw {o} {p}", "also put {o} {p}", "insert {o} in the picture {p}", "there should also be {o} {p}",
            "{p} there should be {o}"]
MOVE = ["move {r} to {t}", "move {r} to {t}", "put {r} {p}", "shift {r} to {t}", "place {r} {p}", "bring {r} to {t}", "{r} should be {p}",
        "{r} should go to {t}", "move {r} so that it is {p}", "{r} {p}", "let {r} be {p}",
        "take {r} and put it {p}", "take {r} and move it to {t}", "make {r} move to {t}", "shift {r}, it should be {p}", "bring {r} {p}", "let {r} move to {t}"]
MOVE_HELD = ["shift {r} so that it is {p}", "take {r} to {t}", "make {r} go to {t}", "{r} should move to {t}", "put {r} so that it is {p}",
             "let {r} go to {t}", "bring {r} so that it is {p}"]
REPLACE = ["replace {r} with {o}", "replace {r} with {o}", "replace {r} by {o}", "turn {r} into {o}", "change {r} into {o}", "change {r} to {o}",
           "make {r} {o}", "swap {r} for {o}", "put {o} in place of {r}", "{r} should be {o}", "{o} instead of {r}", "{r} should turn into {o}"]
REPLACE_HELD = ["swap {r} with {o}", "draw {o} instead of {r}", "put {o} instead of {r}", "make {r} into {o}", "{r} should change into {o}",
                "draw {o} in place of {r}", "let {r} turn into {o}"]
GROUND = ["make the background {c}", "make the background {c}", "change the background to {c}", "change the background color to {c}",
          "paint the background {c}", "turn the background {c}", "set the background to {c}", "put it on a {c} background", "use a {c} background",
          "{c} background", "the background should be {c}", "fill the background with {c}", "color the background {c}", "change to a {c} background"]
GROUND_HELD = ["change the color of the background to {c}", "paint the background in {c}", "the background color should be {c}",
               "give it a {c} background", "set the background color to {c}", "let the background be {c}", "replace the background with {c}"]
REWRITE = ["change the word to {w}", "change the word to {w}", "change {v} to {w}", "replace the word with {w}", "replace {v} with {w}",
           "make it say {w}", "it should say {w}", "write {w} instead of {v}", "write {w} instead", "change the text to {w}",
           "the word should be {w}", "turn the word into {w}", "swap the word for {w}", "replace {v} by {w}", "let it say {w}"]
REWRITE_HELD = ["change the word {v} to {w}", "the text should say {w}", "replace the text by {w}", "write {w} instead of the word",
                "turn {v} into {w}", "the word should say {w}", "swap {v} for {w}"]
WRITE = ["write {w} in {c}{p}", "write {w} in {c}{p}", "write the word {w} in {c}{p}", "add the word {w} in {c}{p}", "add the text {w} in {c}{p}",
         "put the word {w} in {c} letters{p}", "draw the letters {w} in {c}{p}", "write {w} in {c} letters{p}", "add {c} text saying {w}{p}",
         "print {w} in {c}{p}", "write {w}{p} in {c}", "the word {w} in {c}{p}", "print {w} in {c} letters{p}",
         "print {c} letters saying {w}{p}", "put {c} text saying {w}{p}"]
WRITE_HELD = ["put the text {w} in {c}{p}", "print the word {w} in {c}{p}", "write the text {w} in {c} letters{p}", "add the letters {w} in {c}{p}",
              "draw the word {w} in {c}{p}", "print {c} text saying {w}{p}", "put {w} in {c} letters{p}"]
TWO = ["the shape of {s} in the color of {k}", "the shape of {s} with the color of {k}", "give the shape of {s} the color of {k}",
       "make the shape in {s} the color of {k}", "take the shape of {s} and the color of {k}", "use the shape of {s} and the color of {k}",
       "use the color of {k} for the shape of {s}", "paint the shape of {s} in the color of {k}", "take the color of {k} and the shape of {s}",
       "color the shape in {s} with the color of {k}", "the shape from {s}, the color from {k}", "use the shape from {s} with the color from {k}",
       "draw the color of {k} on the shape of {s}", "the color from {k}, the shape from {s}"]
TWO_HELD = ["draw the shape of {s} in the color of {k}", "take the shape from {s} and the color from {k}", "the color of {k} on the shape of {s}",
            "paint the shape in {s} with the color from {k}", "use the color from {k} and the shape from {s}",
            "make the shape of {s} the color of {k}", "the color of {k} for the shape of {s}"]
PICTURES = [("picture 1", "picture 2"), ("picture 1", "picture 2"), ("the first picture", "the second picture"), ("image 1", "image 2"),
            ("the first image", "the second image"), ("the first", "the second")]
POLITE = ["", "", "", "", "", "", "please ", "now ", "just "]

GOALS = {
    "left": ["the left", "the left side"], "right": ["the right", "the right side"], "top": ["the top", "the top side"],
    "bottom": ["the bottom", "the bottom side"], "center": ["the center", "the middle", "the centre"],
    "top left": ["the top left corner", "the top left", "the upper left corner"],
    "top right": ["the top right corner", "the top right", "the upper right corner"],
    "bottom left": ["the bottom left corner", "the bottom left", "the lower left corner"],
    "bottom right": ["the bottom right corner", "the bottom right", "the lower right corner"],
}
BANDS = {"top": 0.22, "center": 0.5, "bottom": 0.78}
RADIUS = {"small": 0.11, "medium": 0.155, "large": 0.24}  # of a new object, by the shorter side
GAP = 6.0  # pixels between the reaches of two elements
OBJECT_COLORS = scenes.OBJECT_COLORS
CONTRASTS = grammar.CONTRASTS


# ---- scenes ----------------------------------------------------------------------------------------------------------


def reach(r):
    return 1.1 * r + 2


def word_cell(scene_size, letters, band):
    """The largest font cell of a word: 93 % of the width; 55 % of the height in the middle of the page, 26 % at its ends."""
    width, height = scene_size
    return min(0.93 * width / (6 * letters - 1), (0.55 if band == "center" else 0.26) * height / 7)


def word_box(word):
    n = len(word["text"])
    half_w, half_h = (6 * n - 1) / 2 * word["cell"], 3.5 * word["cell"]
    return word["cx"] - half_w, word["cy"] - half_h, word["cx"] + half_w, word["cy"] + half_h


def clear_of(scene, cx, cy, r, without=None):
    """Whether a disc of reach(r) around (cx, cy) is on the page and keeps its distance from everything else."""
    far = reach(r)
    if not (far <= cx <= scene["width"] - far and far <= cy <= scene["height"] - far):
        return False
    for o in scene["objects"]:
        if o is not without and (o["cx"] - cx) ** 2 + (o["cy"] - cy) ** 2 < (reach(o["r"]) + far + GAP - 4) ** 2:
            return False
    if scene["word"]:
        x0, y0, x1, y1 = word_box(scene["word"])
        dx, dy = max(x0 - cx, cx - x1, 0), max(y0 - cy, cy - y1, 0)
        if dx * dx + dy * dy < (far + GAP) ** 2:
            return False
    return True


def _ink(rng, scene, avoid=()):
    """A colour that stands out from the background and from `avoid`; None when there is none."""
    free = [c for c in OBJECT_COLORS if c in CONTRASTS[scene["background"]] and all(c in CONTRASTS[a] for a in avoid)]
    return rng.choice(free) if free else None


def _inks(scene):
    return [o["color"] for o in scene["objects"]] + ([scene["word"]["color"]] if scene["word"] else [])


def _random_word(rng, scene, band, avoid=()):
    width, height = scene["width"], scene["height"]
    text = grammar._word(rng, max(1, min(4, width // 32)))
    color = _ink(rng, scene, avoid)
    if color is None:
        return None
    return {"text": text, "color": color, "cell": word_cell((width, height), len(text), band) * (0.94 + 0.06 * rng.random()),
            "cx": width * (0.5 + 0.008 * (2 * rng.random() - 1)), "cy": height * (BANDS[band] + 0.015 * (2 * rng.random() - 1)), "band": band}


def _place_point(scene, place, r):
    fx, fy = grammar.PLACE_AT[place]
    far = reach(r)
    return (min(max(scene["width"] * fx, far), scene["width"] - far), min(max(scene["height"] * fy, far), scene["height"] - far))


def _random_object(rng, scene, sizes, top=None):
    """An object that overlaps nothing, or None. top: keep to the upper (True) or lower (False) part."""
    width, height = scene["width"], scene["height"]
    low, high = {"small": (0.10, 0.13), "medium": (0.14, 0.19), "large": (0.22, 0.31)}[rng.choice(sizes)]
    used = _inks(scene)
    for _ in range(8):
        r = min(width, height) * (low + (high - low) * rng.random())
        far = reach(r)
        if rng.random() < 0.5:
            fx, fy = grammar.PLACE_AT[rng.choice(grammar.PLACE_NAMES)]
            cx, cy = width * (fx + 0.03 * (2 * rng.random() - 1)), height * (fy + 0.03 * (2 * rng.random() - 1))
        else:
            cx, cy = rng.uniform(far, width - far), rng.uniform(far, height - far)
        if top is not None:
            cy = height * (0.28 if top else 0.72) + height * 0.03 * (2 * rng.random() - 1)
        if not clear_of(scene, cx, cy, r):
            continue
        shape = rng.choice(scenes.SHAPES)
        # now and then two objects share a colour or a shape, and only the other says which is meant
        color = rng.choice(used) if used and rng.random() < 0.1 else _ink(rng, scene, used)
        if color is None or any(o["shape"] == shape and o["color"] == color for o in scene["objects"]):
            continue
        return {"shape": shape, "color": color, "cx": cx, "cy": cy, "r": r}
    return None


def _empty(rng, width, height):
    return {"background": rng.choice(grammar.BACKGROUNDS), "objects": [], "word": None, "width": width, "height": height}


def _scene(rng, width, height, counts, word_share=0.0):
    """counts: numbers of objects to choose from."""
    while True:
        scene = _empty(rng, width, height)
        count = rng.choice(counts)
        if rng.random() < word_share:
            band = rng.choice(("top", "bottom"))
            scene["word"] = _random_word(rng, scene, band)
            if scene["word"] is None:
                continue
            count = 1
            objects = [_random_object(rng, scene, ("small", "medium"), top=band == "bottom")]
        else:
            sizes = {0: (), 1: ("small", "medium", "medium", "large"), 2: ("small", "medium"), 3: ("small", "small", "medium")}[count]
            objects = []
            for _ in range(count):
                made = _random_object(rng, scene, sizes)
                objects.append(made)
                if made is None:
                    break
                scene["objects"].append(made)
        if any(o is None for o in objects):
            continue
        scene["objects"] = objects
        return scene


def _copy(scene):
    return {**scene, "objects": [dict(o) for o in scene["objects"]], "word": dict(scene["word"]) if scene["word"] else None}


def elements(scene):
    """Objects, then the word: what `changed` counts."""
    return scene["objects"] + ([scene["word"]] if scene["word"] else [])


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
    before = _scene(rng, width, height, (1, 1, 2, 2, 3), 0.15)
    if rng.random() < 0.1:
        before["objects"], before["word"] = [], _random_word(rng, before, "center")
    after = _copy(before)
    if before["word"] and (not before["objects"] or rng.random() < 0.3):
        index, target, name = len(before["objects"]), after["word"], rng.choice(("the word", "the text", "the letters"))
    else:
        index = rng.randrange(len(before["objects"]))
        target, name = after["objects"][index], _named(rng, before, index)
    new = _ink(rng, before, _inks(before))
    if new is None:
        return None
    target["color"] = new
    phrase = _frame(rng, COLOR, COLOR_HELD, held_out).format(r=name, c=grammar._color(rng, new))
    return phrase, before, after, [index], [index]


def _remove_edit(rng, width, height, held_out):
    before = _scene(rng, width, height, (1, 2, 2, 3), 0.15)
    after = _copy(before)
    if before["word"] and rng.random() < 0.4:
        index, name = len(before["objects"]), rng.choice(("the word", "the text", "the letters"))
        after["word"] = None
    else:
        index = rng.randrange(len(before["objects"]))
        name = _named(rng, before, index)
        del after["objects"][index]
    return _frame(rng, REMOVE, REMOVE_HELD, held_out).format(r=name), before, after, [index], []


def _add_edit(rng, width, height, held_out):
    before = _scene(rng, width, height, (0, 1, 1, 1, 2, 2), 0.08)
    after = _copy(before)
    size = rng.choice((None, None, None, "small", "large"))
    r = RADIUS[size or "medium"] * min(width, height)
    shape, color = rng.choice(scenes.SHAPES), _ink(rng, before, _inks(before))
    if color is None:
        return None
    spots = []
    for place in grammar.PLACE_NAMES:
        cx, cy = _place_point(before, place, r)
        if clear_of(before, cx, cy, r):
            spots.append((cx, cy, rng.choice(grammar.PLACES[place])))
    beside = []
    for i, o in enumerate(before["objects"]):
        step = reach(o["r"]) + reach(r) + 4
        for relation, (dx, dy) in {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}.items():
            cx, cy = o["cx"] + dx * step, o["cy"] + dy * step
            if clear_of(before, cx, cy, r):
                beside.append((cx, cy, rng.choice(grammar.RELATIONS[relation]) + " " + _named(rng, before, i)))
    pool = beside if beside and rng.random() < 0.35 else spots
    if not pool:
        return None
    cx, cy, where = rng.choice(pool)
    after["objects"].append({"shape": shape, "color": color, "cx": cx, "cy": cy, "r": r})
    phrase = _frame(rng, ADD, ADD_HELD, held_out).format(o=_with_article(rng, shape, color, size), p=where)
    return phrase, before, after, [], [len(after["objects"]) - 1]


def _move_edit(rng, width, height, held_out):
    before = _scene(rng, width, height, (1, 1, 2, 2, 3), 0.05)
    after = _copy(before)
    index = rng.randrange(len(before["objects"]))
    o = before["objects"][index]
    goals = []
    for place in grammar.PLACE_NAMES:
        cx, cy = _place_point(before, place, o["r"])
        if (cx - o["cx"]) ** 2 + (cy - o["cy"]) ** 2 > 22**2 and clear_of(before, cx, cy, o["r"], without=o):
            goals.append((cx, cy, place))
    if not goals:
        return None
    cx, cy, place = rng.choice(goals)
    after["objects"][index].update(cx=cx, cy=cy)
    phrase = _frame(rng, MOVE, MOVE_HELD, held_out).format(r=_named(rng, before, index), t=rng.choice(GOALS[place]), p=rng.choice(grammar.PLACES[place]))
    return phrase, before, after, [index], [index]


def _replace_edit(rng, width, height, held_out):
    before = _scene(rng, width, height, (1, 1, 2, 2, 3), 0.05)
    after = _copy(before)
    index = rng.randrange(len(before["objects"]))
    target = after["objects"][index]
    target["shape"] = rng.choice([s for s in scenes.SHAPES if s != target["shape"]])
    color = None
    if rng.random() < 0.4:
        color = _ink(rng, before, _inks(before)) if rng.random() < 0.8 else target["color"]
        if color is None:
            return None
        target["color"] = color
    if sum(o["shape"] == target["shape"] and o["color"] == target["color"] for o in after["objects"]) > 1:
        return None
    phrase = _frame(rng, REPLACE, REPLACE_HELD, held_out).format(r=_named(rng, before, index), o=_with_article(rng, target["shape"], color))
    return phrase, before, after, [index], [index]


def _background_edit(rng, width, height, held_out):
    before = _scene(rng, width, height, (1, 1, 2, 2, 3), 0.12)
    if rng.random() < 0.1:
        before["objects"], before["word"] = [], _random_word(rng, before, "center")
    inks = _inks(before)
    free = [c for c in set(grammar.BACKGROUNDS) if all(i in CONTRASTS[c] for i in inks) and grammar._distance(c, before["background"]) >= 70]
    if not free:
        return None
    after = _copy(before)
    after["background"] = rng.choice(sorted(free))
    phrase = _frame(rng, GROUND, GROUND_HELD, held_out).format(c=grammar._color(rng, after["background"])).replace("a orange", "an orange")
    return phrase, before, after, [], []


def _rewrite_edit(rng, width, height, held_out):
    if rng.random() < 0.65:
        before = _empty(rng, width, height)
        before["word"] = _random_word(rng, before, "center")
    else:
        before = _scene(rng, width, height, (1,), 1.0)
    word = before["word"]
    if word is None:
        return None
    after = _copy(before)
    new = grammar._word(rng, max(1, min(4, width // 32)))
    if new == word["text"]:
        return None
    slack = word["cell"] / word_cell((width, height), len(word["text"]), word["band"])
    after["word"].update(text=new, cell=slack * word_cell((width, height), len(new), word["band"]))
    quote = '"{}"' if rng.random() < 0.15 else "{}"
    phrase = _frame(rng, REWRITE, REWRITE_HELD, held_out).format(v=quote.format(word["text"]), w=quote.format(new))
    index = len(before["objects"])
    return phrase, before, after, [index], [index]


def _write_edit(rng, width, height, held_out):
    before = _empty(rng, width, height)
    where = ""
    if rng.random() < 0.45:
        band = rng.choice(("center", "center", "top", "bottom"))
        if band != "center":
            where = f" at the {band}"
        elif rng.random() < 0.3:
            where = rng.choice((" in the center", " in the middle"))
    else:
        band = rng.choice(("top", "bottom"))
        o = _random_object(rng, before, ("small", "medium"), top=band == "bottom")
        if o is None:
            return None
        before["objects"].append(o)
        roll = rng.random()
        if roll < 0.5:
            where = f" at the {band}"
        elif roll < 0.8:
            where = " " + rng.choice(("above", "over") if band == "top" else ("below", "under")) + " " + _named(rng, before, 0)
    color = _ink(rng, before, _inks(before))
    if color is None:
        return None
    after = _copy(before)
    text = grammar._word(rng, max(1, min(4, width // 32)))
    after["word"] = {"text": text, "color": color, "cell": 0.97 * word_cell((width, height), len(text), band), "cx": width / 2, "cy": height * BANDS[band],
                     "band": band}
    if after["objects"]:
        x0, y0, x1, y1 = word_box(after["word"])
        o = after["objects"][0]
        if max(y0 - o["cy"], o["cy"] - y1) < reach(o["r"]):
            return None
    quote = '"{}"' if rng.random() < 0.15 else "{}"
    phrase = _frame(rng, WRITE, WRITE_HELD, held_out).format(w=quote.format(text), c=grammar._color(rng, color), p=where)
    return phrase, before, after, [], [len(after["objects"])]


MAKERS = {"color": (_color_edit, 0.14), "remove": (_remove_edit, 0.09), "add": (_add_edit, 0.18), "move": (_move_edit, 0.15),
          "replace": (_replace_edit, 0.14), "background": (_background_edit, 0.08), "rewrite": (_rewrite_edit, 0.11), "write": (_write_edit, 0.11)}


def _finish(rng, phrase, held_out):
    if not held_out:
        phrase = rng.choice(POLITE) + phrase
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
        return {"kind": chosen, "instruction": _finish(rng, phrase, held_out), "before": [before], "after": after, "base": 0,
                "changed": {"before": was, "after": now}}


def two_phrase(rng, base, held_out=False):
    names = rng.choice(PICTURES)
    return _finish(rng, _frame(rng, TWO, TWO_HELD, held_out).format(s=names[base], k=names[1 - base]), held_out)


def sample_two(rng, width=128, height=128, held_out=False):
    """Two pictures of one object each: the shape (and all else) of one in the colour of the other."""
    while True:
        pictures = [_scene(rng, width, height, (1,)) for _ in range(2)]
        base = rng.randrange(2)
        color = pictures[1 - base]["objects"][0]["color"]
        if color not in CONTRASTS[pictures[base]["background"]] or color not in CONTRASTS[pictures[base]["objects"][0]["color"]]:
            continue
        after = _copy(pictures[base])
        after["objects"][0]["color"] = color
        return {"kind": "two", "instruction": two_phrase(rng, base, held_out), "before": pictures, "after": after, "base": base,
                "changed": {"before": [0], "after": [0]}}


# ---- numbers for the renderer, evaluation sets -------------------------------------------------------------------------------

SPRITES = 6


def sprites(scene, only=None):
    """Flat numbers for the renderer: glyphs[6], geometry[18], colours[6], background. only: indices into elements(scene)."""
    glyph, geom, color = [-1] * SPRITES, [0.0, 0.0, 1.0] * SPRITES, [0] * SPRITES
    i = 0
    for n, o in enumerate(scene["objects"]):
        if only is None or n in only:
            glyph[i], color[i] = grammar.SHAPE_INDEX[o["shape"]], grammar.COLOR_INDEX[o["color"]]
            geom[3 * i:3 * i + 3] = [o["cx"], o["cy"], o["r"]]
            i += 1
    word = scene["word"]
    if word and (only is None or len(scene["objects"]) in only):
        for k, letter in enumerate(word["text"]):
            glyph[i], color[i] = scenes.LETTER0 + ord(letter) - 65, grammar.COLOR_INDEX[word["color"]]
            geom[3 * i:3 * i + 3] = [word["cx"] + (k - (len(word["text"]) - 1) / 2) * 6 * word["cell"], word["cy"], 3.5 * word["cell"]]
            i += 1
    return glyph, geom, color, grammar.COLOR_INDEX[scene["background"]]


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


def evaluation_edits():
    """200 with one picture, 40 with two; to be judged once, when everything is chosen."""
    return _held_out_edits(25, 40, 80808, 7000, {r["instruction"] for r in development_edits()})


def edits_file(rows):
    """All that a judge in another language needs, beside eval_prompts.json (palette, outlines, font)."""
    return {"about": "edits in wordings never used in training. before: scenes to draw as input pictures, after: the scene asked for, base: the input that "
                     "everything else comes from, changed: which elements differ (objects in order, then the word); distances in pixels",
            "edits": rows}


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
