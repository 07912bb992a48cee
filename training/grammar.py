"""Captions and the scenes they describe.

`sample(rng, width, height, held_out)` returns (caption, scene). A scene is a dict
  kind        "single" | "pair" | "count" | "word"
  objects     [{shape, color, size, cx, cy, r}] in pixels; for "count" one entry per copy; empty for "word"
  background  colour name; background_stated: whether the caption names it (else it is free)
  relation    pair only: where objects[0] is as seen from objects[1]: "left" | "right" | "above" | "below"
  place       single only: stated place or None;  count: number of objects;  word: letters or None
  color       word only: ink colour;  cell, cx, cy: size of a font cell and the centre of the word in pixels
The caption is always true of the scene. Wordings in the *_HELD lists never occur in training; every single word in them does.
`rich` adds the wordings of the second stage of training (the *_RICH lists, RICH_PAIRS): with the first stage's alone a comma meant that a
background follows, and the colour of an object named after a comma leaked into the background.
"""
import json
import random
import sys

import scenes

SINGULAR = {
    "circle": ["circle", "circle", "circle", "disc", "disk"], "square": ["square", "square", "square", "box"],
    "triangle": ["triangle"], "star": ["star"], "ring": ["ring", "ring", "hoop"],
    "cross": ["cross", "cross", "plus sign"], "diamond": ["diamond", "diamond", "rhombus"], "heart": ["heart"],
}
PLURAL = {
    "circle": ["circles", "circles", "discs"], "square": ["squares", "squares", "boxes"], "triangle": ["triangles"],
    "star": ["stars"], "ring": ["rings", "hoops"], "cross": ["crosses", "plus signs"], "diamond": ["diamonds"],
    "heart": ["hearts"],
}
COLOR_WORDS = {"gray": ["gray", "grey"], "dark blue": ["dark blue", "navy"], "light yellow": ["light yellow", "cream"]}
SIZE_WORDS = {"small": ["small", "small", "little", "tiny"], "medium": ["medium", "medium-sized"], "large": ["large", "big", "huge"]}
COUNT_WORDS = {1: ["one", "1", "a single"], 2: ["two", "two", "2"], 3: ["three", "three", "3"], 4: ["four", "four", "4"]}

# background weights; everything nameable may be a background, plain ones are common
BACKGROUNDS = ["white"] * 5 + ["black"] * 4 + ["gray"] * 3 + ["light blue"] * 2 + ["light green"] * 2 + ["light yellow"] * 2 + [
    "dark blue"] * 2 + ["dark green", "red", "green", "blue", "blue", "yellow", "yellow", "orange", "purple", "pink", "cyan"]
MIN_CONTRAST = 110.0  # Euclidean distance in 8-bit RGB between ink and background, and between two objects


def _distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(scenes.COLORS[a], scenes.COLORS[b])) ** 0.5


CONTRASTS = {a: {b for b in scenes.COLOR_NAMES if _distance(a, b) >= MIN_CONTRAST} for a in scenes.COLOR_NAMES}

PREFIX = ["", "", "", "", "", "a picture of ", "an image of ", "a drawing of ", "draw ", "draw me ", "show ", "there is ",
          "a simple picture of ", "an illustration of ", "this is "]
PREFIX_HELD = ["show me ", "a simple drawing of ", "a simple illustration of ", "this is a picture of ", "draw an image of ", "show a drawing of "]
GROUND = [" on a {} background", " on a {} background", " on {}", " against a {} background", " with a {} background", ", {} background",
          " on the {} background", " over a {} background"]
GROUND_HELD = [" against {}", " against the {} background", ", with a {} background", ", on a {} background"]
GROUND_RICH = [", the background is {}", " and a {} background", " over the {} background"]
GROUND_FRONT = ["on a {} background, ", "{} background, ", "a {} background with "]
GROUND_FRONT_RICH = ["over a {} background, ", "with a {} background, ", "on the {} background, ", "over {}, "]
GROUND_FRONT_HELD = ["a {} background and ", "on {}, ", "against a {} background, "]

PLACES = {
    "left": ["on the left", "at the left", "on the left side", "to the left"],
    "right": ["on the right", "at the right", "on the right side", "to the right"],
    "top": ["at the top", "at the top", "near the top", "on the top side"],
    "bottom": ["at the bottom", "at the bottom", "near the bottom", "on the bottom side"],
    "center": ["in the center", "in the centre", "in the middle", "at the center"],
    "top left": ["in the top left corner", "at the top left", "in the upper left corner"],
    "top right": ["in the top right corner", "at the top right", "in the upper right corner"],
    "bottom left": ["in the bottom left corner", "at the bottom left", "in the lower left corner"],
    "bottom right": ["in the bottom right corner", "at the bottom right", "in the lower right corner"],
}
PLACES_HELD = {
    "left": ["near the left", "near the left side"], "right": ["near the right", "near the right side"],
    "top": ["near the top side"], "bottom": ["near the bottom side"], "center": ["near the center", "at the centre"],
    "top left": ["at the upper left", "near the top left corner"], "top right": ["at the upper right", "near the top right corner"],
    "bottom left": ["at the lower left", "near the bottom left corner"], "bottom right": ["at the lower right", "near the bottom right corner"],
}
PLACE_AT = {"left": (0.26, 0.5), "right": (0.74, 0.5), "top": (0.5, 0.26), "bottom": (0.5, 0.74), "center": (0.5, 0.5),
            "top left": (0.26, 0.26), "top right": (0.74, 0.26), "bottom left": (0.26, 0.74), "bottom right": (0.74, 0.74)}
PLACE_NAMES = list(PLACE_AT)

OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
RELATIONS = {
    "left": ["left of", "left of", "to the left of", "to the left of", "on the left of", "directly left of", "on the left side of"],
    "right": ["right of", "right of", "to the right of", "to the right of", "on the right of", "directly right of", "on the right side of"],
    "above": ["above", "above", "above", "over", "on top of", "directly above"],
    "below": ["below", "below", "below", "under", "beneath", "directly below"],
}
RELATIONS_HELD = {
    "left": ["at the left of", "at the left side of", "directly to the left of"],
    "right": ["at the right of", "at the right side of", "directly to the right of"],
    "above": ["directly over", "directly on top of"], "below": ["directly under", "directly beneath"],
}
BESIDE_IT = {"left": ["to its left", "on its left"], "right": ["to its right", "on its right"], "above": ["above it", "over it"],
             "below": ["below it", "under it"]}
ENDS = {"left": ("on the left", "on the right"), "right": ("on the right", "on the left"), "above": ("at the top", "at the bottom"),
        "below": ("at the bottom", "at the top")}

# a, b: the objects with article, ca, cb: their colours, rel, ends: as above, its: from BESIDE_IT
RICH_PAIRS = ["{end_a} {a}, {end_b} {b}", "{end_b} {b} and {end_a} {a}", "{a}, {rel} {b}", "{b}, {a} {its}", "{rel} {b} is {a}", "{rel} {b} there is {a}",
              "{rel} {b}, {a}", "{a} and {b}, the {ca} one {end_a}", "{b} and {a}, the {ca} one {end_a}", "{b}, and {end_a} {a}", "{a} is {rel} {b}"]

WORD = ["the word {w} in {c}", "the word {w} in {c}", "the word {w} in {c} letters", "{c} text {w}", "{c} text saying {w}", "{w} written in {c}",
        "the text {w} in {c}", "the letters {w} in {c}", "the {c} word {w}", "a sign that says {w} in {c}", "{w} in {c} letters",
        "{c} letters saying {w}", "the word {w} written in {c} letters", "{w} in {c}"]
WORD_HELD = ["the text {w} written in {c}", "the {c} letters {w}", "a sign saying {w} in {c} letters",
             "a sign with the word {w} in {c}", "the word {w} written in {c}", "text {w} in {c} letters"]
LETTER = ["the letter {w} in {c}", "a {c} letter {w}", "the {c} letter {w}", "a {c} {w}"]
LETTER_HELD = ["the letter {w} written in {c}", "a letter {w} in {c}"]

COMMON_WORDS = """A I AM AN AS AT BE BY DO GO HE HI IF IN IS IT ME MY NO OF OH OK ON OR OX PI SO TO UP US WE YES ACE ACT ADD AGE AID AIM AIR ALL AND ANT
ANY APE ARM ART ASK BAD BAG BAT BED BEE BIG BIT BOX BOY BUG BUS BUT BUY BYE CAN CAP CAR CAT COW CUP CUT DAD DAY DEN DOG DOT DRY EAR EAT EGG END EYE
FAN FAR FIT FLY FOG FOR FOX FUN GAS GET GOD GUM GUN HAT HEN HER HIM HIS HOT HOW HUG ICE INK JAM JAR JET JOB JOY KEY KID KIT LAB LEG LET LIP LOG LOW
MAP MAY MIX MOM MUD NEW NOT NOW NUT OAK OIL OLD ONE OUR OUT OWL OWN PAN PEN PET PIE PIG PIN POP POT RAT RED RUN SAD SAY SEA SEE SHE SIT SKY SUN TAX TEA
TEN THE TIP TOE TOP TOY TRY TWO USE VAN WAR WAX WAY WEB WET WHO WHY WIN YOU ZIP ZOO ABLE AREA ARMY AWAY BABY BACK BALL BAND BANK BEAR BEST BIRD BLUE
BOAT BODY BOOK BORN BOWL BUSY CAKE CALL CALM CAMP CARD CARE CITY CLUB COAT CODE COIN COLD COOK COOL CORN CUBE CUTE DARK DATA DATE DEAR DEEP DEER
DESK DOOR DOWN DRAW DREAM DUCK EAST EASY EDGE FACE FAIR FARM FAST FILM FIRE FISH FIVE FLAG FOOD FOOT FREE FROG FULL GAME GIFT GIRL GLAD GOAL GOAT GOLD
GOOD GRAY GROW HAIR HAND HARD HAVE HEAD HELP HERO HIGH HILL HOME HOPE HOUR IDEA IRON JAZZ JOIN JUMP JUNE JULY JUST KEEP KIND KING KISS KITE LAKE LAMP
LAND LAST LATE LEAF LEFT LIFE LIKE LINE LION LIST LOCK LONG LOOK LOVE LUCK MAIN MANY MATH MAZE MEET MILK MIND MOON MOVE NAME NEAR NEST NEWS NEXT NICE
NINE NOON NOSE NOTE OPEN OVEN PAGE PARK PATH PINK PLAN PLAY POEM POOL QUIZ RACE RAIN READ REAL REST RICE RICH RIDE RING ROAD ROCK ROOM ROSE SAFE SALE
SALT SAND SAVE SEED SHIP SHOP SHOW SING SNOW SOFA SOFT SONG SOUP STAR STAY STEP STOP SUIT SWIM TALK TALL TEAM TELL TEST TEXT TIME TINY TOWN TREE TRUE
TUNE TURN VERY VIEW WAIT WALK WALL WARM WAVE WEEK WELL WEST WILD WIND WINE WING WISH WOLF WOOD WORD WORK YARD YEAR ZERO ZONE""".split()
COMMON_WORDS = [w for w in COMMON_WORDS if len(w) <= 4]
FILLER = "please nice lovely great just really cute fancy modern plain flat clean bright cool".split()


def _color(rng, name):
    words = COLOR_WORDS.get(name)
    return rng.choice(words) if words else name


def _article(phrase):
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def _noun(rng, shape, color, size, plural=False):
    words = _color(rng, color) + " " + rng.choice((PLURAL if plural else SINGULAR)[shape])
    return rng.choice(SIZE_WORDS[size]) + " " + words if size else words


def _pick_colors(rng, count):
    """A background and `count` object colours, all mutually distinct to the eye."""
    while True:
        ground = rng.choice(BACKGROUNDS)
        picked = []
        for _ in range(count):
            free = [c for c in scenes.OBJECT_COLORS if c in CONTRASTS[ground] and all(c in CONTRASTS[p] for p in picked)]
            if not free:
                break
            picked.append(rng.choice(free))
        if len(picked) == count:
            return ground, picked


def _word(rng, longest):
    if rng.random() < 0.4:
        while True:
            word = rng.choice(COMMON_WORDS)
            if len(word) <= longest:
                return word
    length = min(longest, rng.choices((1, 2, 3, 4), (1, 3, 4, 5))[0])
    return "".join(rng.choices(scenes.LETTERS, k=length))


def _size_radius(rng, size, scale):
    low, high = {"small": (0.10, 0.125), "medium": (0.17, 0.215), "large": (0.29, 0.35)}[size]
    return scale * (low + (high - low) * rng.random())


def _single(rng, width, height, held):
    ground, (color,) = _pick_colors(rng, 1)
    shape = rng.choice(scenes.SHAPES)
    scale = min(width, height)
    place = rng.choice(PLACE_NAMES) if rng.random() < 0.5 else None
    size = rng.choice(("small", "medium") if place and place != "center" else ("small", "medium", "large", "large"))
    r = _size_radius(rng, size, scale)
    if place is None:
        fx, fy, spread = 0.5, 0.5, 0.05
    else:
        (fx, fy), spread = PLACE_AT[place], 0.025
    reach = 1.1 * r + 2
    cx = min(max(width * (fx + spread * (2 * rng.random() - 1)), reach), width - reach)
    cy = min(max(height * (fy + spread * (2 * rng.random() - 1)), reach), height - reach)
    say_size = rng.random() < 0.5
    noun = _noun(rng, shape, color, size if say_size else None)
    roll = rng.random()
    phrase = _article(noun) if roll < 0.75 else noun if roll < 0.88 else "one " + noun
    if place:
        phrase += " " + rng.choice((PLACES_HELD if held and rng.random() < 0.6 else PLACES)[place])
    scene = {"kind": "single", "objects": [dict(shape=shape, color=color, size=size, cx=cx, cy=cy, r=r)], "background": ground,
             "place": place, "size_stated": say_size, "count": 1}
    return phrase, scene


def _pair(rng, width, height, held, rich=False):
    ground, colors = _pick_colors(rng, 2)
    shapes = [rng.choice(scenes.SHAPES) for _ in range(2)]
    if rich and rng.random() < 0.15:  # alike but for the colour: nothing else says which is which
        shapes[1] = shapes[0]
    relation = rng.choice(("left", "right", "above", "below"))
    across = relation in ("left", "right")
    along = width if across else height
    scale = min(width, height)
    objects = []
    sizes = [rng.choice(("small", "medium", "medium", "large")) for _ in range(2)]
    for i in range(2):
        first = (relation in ("left", "above")) == (i == 0)
        r = scale * {"small": 0.115, "medium": 0.17, "large": 0.22}[sizes[i]] * (0.94 + 0.12 * rng.random())
        a = along * (0.26 if first else 0.74) + along * 0.015 * (2 * rng.random() - 1)
        b = (height if across else width) * (0.5 + 0.04 * (2 * rng.random() - 1))
        objects.append(dict(shape=shapes[i], color=colors[i], size=sizes[i], cx=a if across else b, cy=b if across else a, r=r))
    say = [rng.random() < 0.25 for _ in range(2)]
    nouns = [_noun(rng, shapes[i], colors[i], sizes[i] if say[i] else None) for i in range(2)]
    a, b = (nouns if rng.random() < 0.08 else [_article(n) for n in nouns])
    form = rng.random()
    if rich and rng.random() < 0.4:
        end_a, end_b = ENDS[relation]
        phrase = rng.choice(RICH_PAIRS).format(a=a, b=b, ca=_color(rng, colors[0]), rel=rng.choice(RELATIONS[relation]), end_a=end_a, end_b=end_b,
                                               its=rng.choice(BESIDE_IT[relation]))
    elif form < 0.68:
        rel = rng.choice((RELATIONS_HELD if held and rng.random() < 0.7 else RELATIONS)[relation])
        link = " which is " if held and rng.random() < 0.2 else rng.choice((" ", " ", " ", " ", " ", " that is "))
        phrase = a + link.replace("which", "that") + rel + " " + b
    elif form < 0.84:
        joint = " and " if held else " with "
        phrase = b + joint + a + " " + rng.choice(BESIDE_IT[relation])
    else:
        end_a, end_b = ENDS[relation]
        phrase = a + " " + end_a + ((", " if held else " and ")) + b + " " + end_b
    return phrase, {"kind": "pair", "objects": objects, "background": ground, "relation": relation, "count": 2, "sizes_stated": say}


LAYOUTS = {
    2: [([(0.27, 0.5), (0.73, 0.5)], 0.12, 0.2), ([(0.5, 0.27), (0.5, 0.73)], 0.12, 0.2)],
    3: [([(0.19, 0.5), (0.5, 0.5), (0.81, 0.5)], 0.105, 0.135), ([(0.5, 0.27), (0.27, 0.72), (0.73, 0.72)], 0.12, 0.175)],
    4: [([(0.27, 0.27), (0.73, 0.27), (0.27, 0.73), (0.73, 0.73)], 0.12, 0.18)],
}


def _count(rng, width, height, held):
    ground, (color,) = _pick_colors(rng, 1)
    shape = rng.choice(scenes.SHAPES)
    count = rng.choice((2, 3, 3, 4))
    spots, low, high = rng.choice(LAYOUTS[count])
    scale = min(width, height)
    size = rng.choice(("small", "large", None, None))
    share = {"small": 0.2, "large": 0.8, None: 0.5}[size]
    r = scale * (low + (high - low) * (share + 0.2 * (2 * rng.random() - 1)))
    objects = []
    for fx, fy in spots:
        objects.append(dict(shape=shape, color=color, size=size, cx=width * (fx + 0.015 * (2 * rng.random() - 1)),
                            cy=height * (fy + 0.015 * (2 * rng.random() - 1)), r=r))
    phrase = rng.choice(COUNT_WORDS[count]) + " " + _noun(rng, shape, color, size, plural=True)
    return phrase, {"kind": "count", "objects": objects, "background": ground, "count": count}


def _written(rng, width, height, held):
    ground, (color,) = _pick_colors(rng, 1)
    word = _word(rng, max(1, min(4, width // 32)))
    n = len(word)
    # a word spans at most 93 % of the width and its letters at most 55 % of the height
    cell = min(0.93 * width / (6 * n - 1), 0.55 * height / 7) * (0.96 + 0.04 * rng.random())
    cx = width * (0.5 + 0.008 * (2 * rng.random() - 1))
    cy = height * (0.5 + 0.03 * (2 * rng.random() - 1))
    shown = '"' + word + '"' if rng.random() < 0.25 else word
    if n == 1 and rng.random() < 0.7:
        frame = rng.choice(LETTER_HELD if held else LETTER)
    else:
        frame = rng.choice(WORD_HELD if held else WORD)
    name = _color(rng, color)
    phrase = frame.format(w=shown, c=name)
    if frame.startswith("a {c}"):
        phrase = _article(phrase[2:])
    return phrase, {"kind": "word", "objects": [], "background": ground, "word": word, "color": color, "cell": cell, "cx": cx, "cy": cy}


KINDS = ((_written, 0.34), (_pair, 0.27), (_single, 0.24), (_count, 0.15))
KINDS_RICH = ((_written, 0.27), (_pair, 0.44), (_single, 0.17), (_count, 0.12))


def sample(rng, width=128, height=128, held_out=False, kind=None, rich=False):
    """One (caption, scene). held_out: use wordings reserved for evaluation; rich: those of the second stage too."""
    if kind is None:
        roll = rng.random()
        for maker, share in KINDS_RICH if rich else KINDS:
            if roll < share:
                break
            roll -= share
    else:
        maker = {"word": _written, "pair": _pair, "single": _single, "count": _count}[kind]
    phrase, scene = maker(rng, width, height, held_out, rich) if maker is _pair else maker(rng, width, height, held_out)
    ground = _color(rng, scene["background"])
    stated = rng.random() < (0.75 if rich else 0.62) or held_out
    front = False
    held_prefix = held_out and rng.random() < 0.6
    if not stated:
        # a silent caption usually means a white page, so that the default picture is calm
        inks = [o["color"] for o in scene["objects"]] or [scene["color"]]
        if rng.random() < 0.75 and all("white" in CONTRASTS[c] for c in inks):
            scene["background"] = "white"
        caption = phrase
    elif rng.random() < (0.2 if rich else 0.12):
        front = True
        fronts = GROUND_FRONT_HELD if held_out else GROUND_FRONT + GROUND_FRONT_RICH if rich else GROUND_FRONT
        caption = rng.choice(fronts).format(ground) + phrase
        if caption.startswith("a orange"):
            caption = "an" + caption[1:]
    else:
        frames = GROUND_HELD if held_out and (not held_prefix or rng.random() < 0.3) else GROUND + GROUND_RICH if rich else GROUND
        frame = rng.choice(frames).format(ground)
        caption = phrase + frame.replace(" a orange", " an orange")
    if not front:
        caption = rng.choice(PREFIX_HELD if held_prefix else PREFIX) + caption
    if not held_out:
        roll = rng.random()
        if roll < 0.03:
            extra = rng.choice(FILLER) if rng.random() < 0.5 else "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 6)))
            caption = extra + " " + caption if rng.random() < 0.5 else caption + " " + extra
        elif roll < 0.08:
            caption = caption[0].upper() + caption[1:]
        if rng.random() < 0.05:
            caption += "."
    scene["background_stated"] = stated
    scene["width"], scene["height"] = width, height
    return caption, scene


SPRITES = 4
COLOR_INDEX = {name: i for i, name in enumerate(scenes.COLOR_NAMES)}
SHAPE_INDEX = {name: i for i, name in enumerate(scenes.SHAPES)}


def sprites(scene):
    """Flat numbers for the renderer: glyphs[4], geometry[12], colours[4], background."""
    glyph, geom, color = [-1] * SPRITES, [0.0, 0.0, 1.0] * SPRITES, [0] * SPRITES
    if scene["kind"] == "word":
        word, cell = scene["word"], scene["cell"]
        for i, letter in enumerate(word):
            glyph[i] = scenes.LETTER0 + ord(letter) - 65
            geom[3 * i:3 * i + 3] = [scene["cx"] + (i - (len(word) - 1) / 2) * 6 * cell, scene["cy"], 3.5 * cell]
            color[i] = COLOR_INDEX[scene["color"]]
    else:
        for i, o in enumerate(scene["objects"]):
            glyph[i] = SHAPE_INDEX[o["shape"]]
            geom[3 * i:3 * i + 3] = [o["cx"], o["cy"], o["r"]]
            color[i] = COLOR_INDEX[o["color"]]
    return glyph, geom, color, COLOR_INDEX[scene["background"]]


def _held_out_prompts(count, seed, first_noise, without):
    """Held-out prompts, none of `without`, with what a checker may expect of the picture."""
    rng = random.Random(seed)
    kinds = ["single", "pair", "pair", "count", "word"]
    rows, seen = [], set(without)
    while len(rows) < count:
        kind = kinds[len(rows) % len(kinds)]
        prompt, scene = sample(rng, held_out=True, kind=kind)
        if prompt in seen:
            continue
        seen.add(prompt)
        row = {"id": len(rows), "prompt": prompt, "kind": kind, "seed": first_noise + len(rows), "background": scene["background"]}
        if kind == "word":
            row.update(word=scene["word"], color=scene["color"], colors=[scene["color"]])
        else:
            row.update(shapes=[o["shape"] for o in scene["objects"]], colors=[o["color"] for o in scene["objects"]], count=scene["count"])
        if kind == "pair":
            row["relation"] = scene["relation"]
        if kind == "single":
            row["place"] = scene["place"]
            row["size"] = scene["objects"][0]["size"] if scene["size_stated"] else None
        rows.append(row)
    return rows


def _retired_prompts():
    """The first evaluation set. The first model's guidance was chosen on it, so it says nothing any more."""
    return _held_out_prompts(200, 20250, 1000, ())


def development_prompts(count=200):
    """For choosing recipe and settings, 400 at most: none of them is in the evaluation set."""
    return _held_out_prompts(count, 424242, 1000, {r["prompt"] for r in _retired_prompts()})


def evaluation_prompts():
    """To be judged once, when everything is chosen."""
    return _held_out_prompts(200, 60131, 3000, {r["prompt"] for r in _retired_prompts() + development_prompts(400)})


def prompts_file(rows):
    """All that a checker in another language needs."""
    return {
        "about": "prompts in wordings never used in training; relation: where shapes[0] is as seen from shapes[1]; to be drawn with the "
                 "default settings of the model (lockstep.json)",
        "colors": {k: list(v) for k, v in scenes.COLORS.items()},
        "shapes": {"unit": "half extent 1, y down", "circle": {"radius": 1.0}, "ring": {"outer": scenes.RING_OUTER, "inner": scenes.RING_INNER},
                   "polygons": {s: [[round(x, 4), round(y, 4)] for x, y in scenes.outline(s)] for s in scenes.SHAPES if scenes.outline(s)}},
        "font": {"cell_columns": 5, "cell_rows": 7, "pitch_columns": 6, "rows": scenes.FONT},
        "prompts": rows,
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as f:
            json.dump(prompts_file(development_prompts(int(sys.argv[2])) if len(sys.argv) > 2 else evaluation_prompts()), f, indent=1)
    else:
        rng = random.Random(1)
        for i in range(60):
            print(sample(rng, held_out=i >= 40)[0])
