"""Draws synthetic scenes on the device: sprites (shapes and letters) from a signed-distance atlas.

A scene is at most `K` sprites on a flat background. One sprite is (glyph, cx, cy, r, colour): its glyph's
distance field lives in unit coordinates, the box [-1, 1]^2 becomes the square of half-side r pixels around (cx, cy).
Glyphs 0..7 are the shapes of SHAPES, 8..33 the letters A..Z of the 5x7 block font (a letter is 7 cells high,
so one cell is 2r/7 pixels). Coverage is clamp(0.5 - distance_in_pixels, 0, 1): one pixel of anti-aliasing.
"""

import math
import struct
import zlib

import numpy as np
import torch

SHAPES = ["circle", "square", "triangle", "star", "ring", "cross", "diamond", "heart"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTER0 = len(SHAPES)

# Named colours in 8 bit. The first ten are object colours; all of them may be backgrounds.
COLORS = {
    "red": (220, 30, 40),
    "green": (30, 160, 60),
    "blue": (40, 70, 220),
    "yellow": (250, 215, 30),
    "orange": (250, 130, 20),
    "purple": (130, 40, 170),
    "pink": (250, 130, 190),
    "cyan": (40, 205, 225),
    "black": (15, 15, 15),
    "white": (250, 250, 250),
    "gray": (135, 135, 135),
    "light blue": (185, 215, 250),
    "light green": (190, 235, 190),
    "light yellow": (250, 242, 190),
    "dark blue": (20, 30, 90),
    "dark green": (15, 65, 35),
}
COLOR_NAMES = list(COLORS)
OBJECT_COLORS = COLOR_NAMES[:10]

# 5x7 block font: seven rows from top to bottom, '#' is ink.
FONT_ROWS = {
    "A": ".###. #...# #...# ##### #...# #...# #...#",
    "B": "####. #...# #...# ####. #...# #...# ####.",
    "C": ".#### #.... #.... #.... #.... #.... .####",
    "D": "####. #...# #...# #...# #...# #...# ####.",
    "E": "##### #.... #.... ####. #.... #.... #####",
    "F": "##### #.... #.... ####. #.... #.... #....",
    "G": ".#### #.... #.... #..## #...# #...# .####",
    "H": "#...# #...# #...# ##### #...# #...# #...#",
    "I": "##### ..#.. ..#.. ..#.. ..#.. ..#.. #####",
    "J": "..### ...#. ...#. ...#. ...#. #..#. .##..",
    "K": "#...# #..#. #.#.. ##... #.#.. #..#. #...#",
    "L": "#.... #.... #.... #.... #.... #.... #####",
    "M": "#...# ##.## #.#.# #.#.# #...# #...# #...#",
    "N": "#...# ##..# ##..# #.#.# #..## #..## #...#",
    "O": ".###. #...# #...# #...# #...# #...# .###.",
    "P": "####. #...# #...# ####. #.... #.... #....",
    "Q": ".###. #...# #...# #...# #.#.# #..#. .##.#",
    "R": "####. #...# #...# ####. #.#.. #..#. #...#",
    "S": ".#### #.... #.... .###. ....# ....# ####.",
    "T": "##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#..",
    "U": "#...# #...# #...# #...# #...# #...# .###.",
    "V": "#...# #...# #...# #...# #...# .#.#. ..#..",
    "W": "#...# #...# #...# #.#.# #.#.# ##.## #...#",
    "X": "#...# #...# .#.#. ..#.. .#.#. #...# #...#",
    "Y": "#...# #...# .#.#. ..#.. ..#.. ..#.. ..#..",
    "Z": "##### ....# ...#. ..#.. .#... #.... #####",
}
FONT = {c: rows.split() for c, rows in FONT_ROWS.items()}

# Shape outlines in unit coordinates, y down. Circle and ring are analytic.
RING_OUTER, RING_INNER = 1.0, 0.5
SQUARE_HALF = 0.86
CROSS_ARM = 0.32
STAR_INNER = 0.42
DIAMOND = (0.72, 1.08)


def outline(shape):
    """Polygon vertices of a shape, or None for circle and ring."""
    if shape == "square":
        h = SQUARE_HALF
        return [(-h, -h), (h, -h), (h, h), (-h, h)]
    if shape == "triangle":
        return [(0.0, -0.95), (1.0, 0.8), (-1.0, 0.8)]
    if shape == "star":
        points = []
        for i in range(10):
            radius = 1.08 if i % 2 == 0 else 1.08 * STAR_INNER
            a = -math.pi / 2 + i * math.pi / 5
            points.append((radius * math.cos(a), radius * math.sin(a) + 0.08))
        return points
    if shape == "cross":
        a = CROSS_ARM
        return [
            (-a, -1),
            (a, -1),
            (a, -a),
            (1, -a),
            (1, a),
            (a, a),
            (a, 1),
            (-a, 1),
            (-a, a),
            (-1, a),
            (-1, -a),
            (-a, -a),
        ]
    if shape == "diamond":
        w, h = DIAMOND
        return [(0, -h), (w, 0), (0, h), (-w, 0)]
    if shape == "heart":
        points = []
        for i in range(96):
            t = 2 * math.pi * i / 96
            x = 16 * math.sin(t) ** 3
            y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
            points.append((x / 16.5, -(y + 2.5) / 16.0))
        return points
    return None


ATLAS_RES = 320
ATLAS_EXTENT = 1.25


def _polygon_distance(px, py, points):
    n = len(points)
    best = torch.full_like(px, 1e9)
    inside = torch.zeros_like(px, dtype=torch.bool)
    for i in range(n):
        (ax, ay), (bx, by) = points[i], points[(i + 1) % n]
        ex, ey = bx - ax, by - ay
        t = (((px - ax) * ex + (py - ay) * ey) / (ex * ex + ey * ey + 1e-12)).clamp(0, 1)
        best = torch.minimum(best, (px - ax - t * ex) ** 2 + (py - ay - t * ey) ** 2)
        if ay != by:
            crosses = ((ay > py) != (by > py)) & (px < (bx - ax) * (py - ay) / (by - ay) + ax)
            inside = inside ^ crosses
    return torch.where(inside, -best.sqrt(), best.sqrt())


def _letter_distance(px, py, rows):
    cell = 2.0 / 7.0
    to_ink = torch.full_like(px, 1e9)
    to_paper = torch.full_like(px, 1e9)
    for row in range(-1, 8):
        for col in range(-1, 6):
            x0, y0 = (col - 2.5) * cell, (row - 3.5) * cell
            dx = torch.maximum(x0 - px, px - (x0 + cell)).clamp(min=0)
            dy = torch.maximum(y0 - py, py - (y0 + cell)).clamp(min=0)
            d = (dx * dx + dy * dy).sqrt()
            ink = 0 <= row < 7 and 0 <= col < 5 and rows[row][col] == "#"
            if ink:
                to_ink = torch.minimum(to_ink, d)
            else:
                to_paper = torch.minimum(to_paper, d)
    return torch.where(to_ink > 0, to_ink, -to_paper)


def build_atlas(device):
    """Distance fields of all glyphs, [glyphs, R, R] in unit coordinates."""
    axis = torch.linspace(-ATLAS_EXTENT, ATLAS_EXTENT, ATLAS_RES, device=device)
    py, px = torch.meshgrid(axis, axis, indexing="ij")
    fields = []
    for shape in SHAPES:
        points = outline(shape)
        if points is not None:
            fields.append(_polygon_distance(px, py, points))
        elif shape == "circle":
            fields.append((px * px + py * py).sqrt() - 1.0)
        else:
            middle, half = (RING_OUTER + RING_INNER) / 2, (RING_OUTER - RING_INNER) / 2
            fields.append(((px * px + py * py).sqrt() - middle).abs() - half)
    for letter in LETTERS:
        fields.append(_letter_distance(px, py, FONT[letter]))
    return torch.stack(fields)


def render(atlas, glyph, geom, color, background, height, width):
    """glyph [B,K] int64 (-1: no sprite), geom [B,K,3] = cx, cy, r in pixels, color [B,K,3] and background [B,3] in [0,1]
    -> images [B,3,H,W] in [-1,1]."""
    batch, sprites = glyph.shape
    device = geom.device
    ys = torch.arange(height, device=device, dtype=torch.float32)[:, None] + 0.5  # [H,1]
    xs = torch.arange(width, device=device, dtype=torch.float32)[None, :] + 0.5  # [1,W]
    flat = atlas.reshape(-1)
    scale = (ATLAS_RES - 1) / (2 * ATLAS_EXTENT)
    image = background[:, :, None, None].expand(batch, 3, height, width)
    for k in range(sprites):
        cx, cy, r = (geom[:, k, i][:, None, None] for i in range(3))
        g = glyph[:, k][:, None, None]
        u = (((xs - cx) / r + ATLAS_EXTENT) * scale).clamp(0, ATLAS_RES - 1.001)  # [B,1,W]
        v = (((ys - cy) / r + ATLAS_EXTENT) * scale).clamp(0, ATLAS_RES - 1.001)  # [B,H,1]
        u0, v0 = u.floor(), v.floor()
        fu, fv = u - u0, v - v0
        base = g.clamp(min=0) * (ATLAS_RES * ATLAS_RES) + v0.long() * ATLAS_RES + u0.long()  # [B,H,W]
        top = flat[base] * (1 - fu) + flat[base + 1] * fu
        bottom = flat[base + ATLAS_RES] * (1 - fu) + flat[base + ATLAS_RES + 1] * fu
        distance = top * (1 - fv) + bottom * fv
        alpha = (0.5 - distance * r).clamp(0, 1) * (g >= 0)
        image = image + alpha[:, None] * (color[:, k][:, :, None, None] - image)
    return image * 2 - 1


def palette(device):
    return torch.tensor([COLORS[n] for n in COLOR_NAMES], device=device, dtype=torch.float32) / 255.0


def random_scenes(batch, height, width, generator, colors):
    """Free random scenes for the autoencoder: scattered shapes and letters, rows of letters, any colours."""
    device = colors.device

    def uniform(*shape):
        return torch.rand(*shape, device=device, generator=generator)

    sprites = 6
    small = min(height, width)
    glyph = (uniform(batch, sprites) * (LETTER0 + 26)).long()
    shape_only = (uniform(batch, sprites) * LETTER0).long()
    glyph = torch.where(uniform(batch, 1) < 0.6, shape_only, glyph)
    r = small * (0.05 + 0.33 * uniform(batch, sprites) ** 2)
    cx, cy = uniform(batch, sprites) * width, uniform(batch, sprites) * height
    keep = torch.arange(sprites, device=device)[None] < 1 + (uniform(batch, 1) * sprites).long()
    # rows of letters as the words of the grammar, with more freedom of scale and place
    letters = LETTER0 + (uniform(batch, sprites) * 26).long()
    count = 1 + (uniform(batch, 1) * 4).long()  # [B,1]
    cell = width / (6.0 * count - 1) * (0.75 + 0.22 * uniform(batch, 1))
    cell = torch.minimum(cell, torch.full_like(cell, small / 8.5))
    slot = torch.arange(sprites, device=device)[None]
    wx = width / 2 + (slot - (count - 1) / 2) * 6 * cell + (uniform(batch, 1) - 0.5) * 0.1 * width
    wy = (0.3 + 0.4 * uniform(batch, 1)).expand(-1, sprites) * height
    is_word = uniform(batch, 1) < 0.4
    glyph = torch.where(is_word, letters, glyph)
    keep = torch.where(is_word, slot < count, keep)
    glyph = torch.where(keep, glyph, torch.full_like(glyph, -1))
    geom = torch.stack(
        [
            torch.where(is_word, wx, cx),
            torch.where(is_word, wy, cy),
            torch.where(is_word, (3.5 * cell).expand(-1, sprites), r),
        ],
        -1,
    )
    named = colors[(uniform(batch, sprites + 1) * len(colors)).long()]
    free = uniform(batch, sprites + 1, 3)
    color = torch.where(uniform(batch, 1, 1) < 0.75, named, free)
    same = torch.where(is_word[..., None], color[:, :1].expand(-1, sprites, -1), color[:, :sprites])
    return glyph, geom, same, color[:, sprites]


def write_png(path, image):
    """image: uint8 array [H,W,3]."""
    image = np.ascontiguousarray(image)
    height, width = image.shape[:2]
    raw = b"".join(b"\0" + image[y].tobytes() for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
        f.write(chunk(b"IDAT", zlib.compress(raw, 6)) + chunk(b"IEND", b""))


def contact_sheet(images, columns):
    """images [B,3,H,W] in [-1,1] -> uint8 [rows*H, columns*W, 3] with a two-pixel gap."""
    images = ((images.float().clamp(-1, 1) * 0.5 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    count, height, width, _ = images.shape
    rows = (count + columns - 1) // columns
    sheet = np.full((rows * (height + 2), columns * (width + 2), 3), 90, np.uint8)
    for i in range(count):
        y, x = (i // columns) * (height + 2), (i % columns) * (width + 2)
        sheet[y : y + height, x : x + width] = images[i]
    return sheet
