"""Scenes that edits start from and end in.

A scene is {background, objects: [{shape, color, cx, cy, r}], word: None or {text, color, cell, cx, cy, band}, width, height}, in pixels.
"""

import grammar
import scenes

BANDS = {"top": 0.22, "center": 0.5, "bottom": 0.78}
RADIUS = {"small": 0.11, "medium": 0.155, "large": 0.24}  # of a new object, by the shorter side
GAP = 6.0  # pixels between the reaches of two elements
OBJECT_COLORS = scenes.OBJECT_COLORS
CONTRASTS = grammar.CONTRASTS
SPRITES = 6


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


def ink(rng, scene, avoid=()):
    """A colour that stands out from the background and from `avoid`; None when there is none."""
    free = [c for c in OBJECT_COLORS if c in CONTRASTS[scene["background"]] and all(c in CONTRASTS[a] for a in avoid)]
    return rng.choice(free) if free else None


def inks(scene):
    return [o["color"] for o in scene["objects"]] + ([scene["word"]["color"]] if scene["word"] else [])


def random_word(rng, scene, band, avoid=()):
    width, height = scene["width"], scene["height"]
    text = grammar._word(rng, max(1, min(4, width // 32)))
    color = ink(rng, scene, avoid)
    if color is None:
        return None
    return {
        "text": text,
        "color": color,
        "cell": word_cell((width, height), len(text), band) * (0.94 + 0.06 * rng.random()),
        "cx": width * (0.5 + 0.008 * (2 * rng.random() - 1)),
        "cy": height * (BANDS[band] + 0.015 * (2 * rng.random() - 1)),
        "band": band,
    }


def place_point(scene, place, r):
    fx, fy = grammar.PLACE_AT[place]
    far = reach(r)
    return (
        min(max(scene["width"] * fx, far), scene["width"] - far),
        min(max(scene["height"] * fy, far), scene["height"] - far),
    )


def random_object(rng, scene, sizes, top=None):
    """An object that overlaps nothing, or None. top: keep to the upper (True) or lower (False) part."""
    width, height = scene["width"], scene["height"]
    low, high = {"small": (0.10, 0.13), "medium": (0.14, 0.19), "large": (0.22, 0.31)}[rng.choice(sizes)]
    used = inks(scene)
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
        color = rng.choice(used) if used and rng.random() < 0.1 else ink(rng, scene, used)
        if color is None or any(o["shape"] == shape and o["color"] == color for o in scene["objects"]):
            continue
        return {"shape": shape, "color": color, "cx": cx, "cy": cy, "r": r}
    return None


def empty_scene(rng, width, height):
    return {
        "background": rng.choice(grammar.BACKGROUNDS),
        "objects": [],
        "word": None,
        "width": width,
        "height": height,
    }


def random_scene(rng, width, height, counts, word_share=0.0):
    """counts: numbers of objects to choose from."""
    while True:
        scene = empty_scene(rng, width, height)
        count = rng.choice(counts)
        if rng.random() < word_share:
            band = rng.choice(("top", "bottom"))
            scene["word"] = random_word(rng, scene, band)
            if scene["word"] is None:
                continue
            count = 1
            objects = [random_object(rng, scene, ("small", "medium"), top=band == "bottom")]
        else:
            sizes = {
                0: (),
                1: ("small", "medium", "medium", "large"),
                2: ("small", "medium"),
                3: ("small", "small", "medium"),
            }[count]
            objects = []
            for _ in range(count):
                made = random_object(rng, scene, sizes)
                objects.append(made)
                if made is None:
                    break
                scene["objects"].append(made)
        if any(o is None for o in objects):
            continue
        scene["objects"] = objects
        return scene


def copy_of(scene):
    return {
        **scene,
        "objects": [dict(o) for o in scene["objects"]],
        "word": dict(scene["word"]) if scene["word"] else None,
    }


def elements(scene):
    """Objects, then the word: what `changed` counts."""
    return scene["objects"] + ([scene["word"]] if scene["word"] else [])


def sprites(scene, only=None):
    """Flat numbers for the renderer: glyphs[6], geometry[18], colours[6], background. only: indices into elements(scene)."""
    glyph, geom, color = [-1] * SPRITES, [0.0, 0.0, 1.0] * SPRITES, [0] * SPRITES
    i = 0
    for n, o in enumerate(scene["objects"]):
        if only is None or n in only:
            glyph[i], color[i] = grammar.SHAPE_INDEX[o["shape"]], grammar.COLOR_INDEX[o["color"]]
            geom[3 * i : 3 * i + 3] = [o["cx"], o["cy"], o["r"]]
            i += 1
    word = scene["word"]
    if word and (only is None or len(scene["objects"]) in only):
        for k, letter in enumerate(word["text"]):
            glyph[i], color[i] = scenes.LETTER0 + ord(letter) - 65, grammar.COLOR_INDEX[word["color"]]
            geom[3 * i : 3 * i + 3] = [
                word["cx"] + (k - (len(word["text"]) - 1) / 2) * 6 * word["cell"],
                word["cy"],
                3.5 * word["cell"],
            ]
            i += 1
    return glyph, geom, color, grammar.COLOR_INDEX[scene["background"]]
