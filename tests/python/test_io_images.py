"""Pictures against Pillow, which wraps the same reference codecs: every mode, EXIF orientation, text."""

import zlib

import numpy as np
import pytest
from io_probe import Probe
from PIL import Image, ImageOps, PngImagePlugin


@pytest.fixture(scope="module")
def probe():
    with Probe() as p:
        yield p


def read(probe, path, tmp_path):
    reply = probe.ask("image", path, tmp_path / "out.npy")
    assert "error" not in reply, reply
    return np.load(tmp_path / "out.npy"), reply["text"]


def picture(mode, size=(37, 23)):
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    rgba = np.stack([x * 6, y * 11, (x * y) % 256, 255 - x * 3], -1).astype(np.uint8)
    return Image.fromarray(rgba, "RGBA").convert(mode)


def expected(image):
    """Grey, RGB or RGBA, as our reader promises."""
    if image.mode in ("LA", "PA") or (image.mode in ("L", "RGB", "1") and "transparency" in image.info):
        image = image.convert("RGBA")
    elif image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode == "1":
        image = image.convert("L")
    array = np.asarray(image)
    return array[..., None] if array.ndim == 2 else array


@pytest.mark.parametrize(
    "mode,options",
    [
        ("RGB", {}),
        ("RGBA", {}),
        ("L", {}),
        ("LA", {}),
        ("1", {}),
        ("P", {}),
        ("P", {"transparency": 5}),
        ("P", {"bits": 4}),
        ("P", {"bits": 2}),
        ("L", {"transparency": 33}),
        ("RGB", {"transparency": (6, 11, 1)}),
    ],
)
def test_png_modes(probe, tmp_path, mode, options):
    image = picture(mode)
    if "bits" in options:
        image = picture("RGB").quantize(2 ** options["bits"])
    image.save(tmp_path / "x.png", **options)
    ours, _ = read(probe, tmp_path / "x.png", tmp_path)
    np.testing.assert_array_equal(ours, expected(Image.open(tmp_path / "x.png")))


def test_png_sixteen_bits(probe, tmp_path):
    values = (np.arange(37 * 23, dtype=np.uint32).reshape(23, 37) * 77 % 65536).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "x.png")
    ours, _ = read(probe, tmp_path / "x.png", tmp_path)
    assert ours.dtype == np.uint16
    np.testing.assert_array_equal(ours[..., 0], values)
    np.save(tmp_path / "in.npy", ours)
    probe.ask("write_image", tmp_path / "in.npy", tmp_path / "y.png", 95, {})
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "y.png")), values)


def png_file(values, color, interlaced=False):
    """A PNG by the specification alone, of 16-bit samples (Pillow writes only grey ones): every row unfiltered."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    height, width = values.shape[:2]
    passes = (
        [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
        if interlaced
        else [(0, 0, 1, 1)]
    )
    rows = b"".join(
        b"\0" + row.astype(">u2").tobytes() for y, x, dy, dx in passes for row in values[y::dy, x::dx] if row.size
    )
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([16, color, 0, 0, interlaced])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("color,channels", [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_png_sixteen_bits_in_every_colour(probe, tmp_path, color, channels, interlaced):
    values = (np.arange(23 * 37 * channels, dtype=np.uint32).reshape(23, 37, channels) * 7919 % 65536).astype(np.uint16)
    (tmp_path / "x.png").write_bytes(png_file(values, color, interlaced))
    ours, _ = read(probe, tmp_path / "x.png", tmp_path)
    assert ours.dtype == np.uint16
    np.testing.assert_array_equal(
        ours, np.concatenate([values[..., :1]] * 3 + [values[..., 1:]], -1) if color == 4 else values
    )


@pytest.mark.parametrize("kind", ["png", "jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(probe, tmp_path, kind, orientation):
    exif = Image.Exif()
    exif[0x010E] = "a description before the tag"
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if kind == "jpg" else {"lossless": True} if kind == "webp" else {}
    picture("RGB").save(tmp_path / f"x.{kind}", exif=exif, **options)
    ours, _ = read(probe, tmp_path / f"x.{kind}", tmp_path)
    np.testing.assert_array_equal(ours, np.asarray(ImageOps.exif_transpose(Image.open(tmp_path / f"x.{kind}"))))


@pytest.mark.parametrize(
    "mode,options",
    [
        ("RGB", {}),
        ("RGB", {"subsampling": 0}),
        ("L", {}),
        ("RGB", {"progressive": True}),
        ("RGB", {"quality": 30}),
    ],
)
def test_jpeg_decodes_to_the_same_pixels(probe, tmp_path, mode, options):
    picture(mode).save(tmp_path / "x.jpg", **options)
    ours, _ = read(probe, tmp_path / "x.jpg", tmp_path)
    np.testing.assert_array_equal(ours, expected(Image.open(tmp_path / "x.jpg")))


def test_jpeg_cmyk(probe, tmp_path):
    image = picture("RGB").convert("CMYK")
    image.save(tmp_path / "x.jpg", quality=100, subsampling=0)
    ours, _ = read(probe, tmp_path / "x.jpg", tmp_path)
    stored = np.asarray(Image.open(tmp_path / "x.jpg")).astype(int)  # Pillow undoes Adobe's inversion: 255 is full ink
    rgb = ((255 - stored[..., :3]) * (255 - stored[..., 3:]) + 127) // 255
    np.testing.assert_array_equal(ours, rgb)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("lossless", [True, False])
def test_webp(probe, tmp_path, mode, lossless):
    picture(mode).save(tmp_path / "x.webp", lossless=lossless, exact=True)
    ours, _ = read(probe, tmp_path / "x.webp", tmp_path)
    np.testing.assert_array_equal(ours, np.asarray(Image.open(tmp_path / "x.webp")))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pillow_reads_what_we_write(probe, tmp_path, channels):
    pixels = np.asarray(picture({1: "L", 3: "RGB", 4: "RGBA"}[channels])).reshape(23, 37, channels)
    np.save(tmp_path / "in.npy", pixels)
    text = {"prompt": "a cat, ünïcode €", "seed": "7", "empty": ""}
    assert "error" not in probe.ask("write_image", tmp_path / "in.npy", tmp_path / "x.png", 95, text)
    image = Image.open(tmp_path / "x.png")
    np.testing.assert_array_equal(np.asarray(image).reshape(pixels.shape), pixels)
    assert image.text == text
    if channels > 1:
        assert "error" not in probe.ask("write_image", tmp_path / "in.npy", tmp_path / "x.webp", 100, {})
        visible = pixels[..., -1:] > 0 if channels == 4 else np.ones((23, 37, 1), bool)
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "x.webp")) * visible, pixels * visible)
    if channels < 4:
        assert "error" not in probe.ask("write_image", tmp_path / "in.npy", tmp_path / "x.jpg", 95, {})
        close = np.asarray(Image.open(tmp_path / "x.jpg")).reshape(pixels.shape).astype(int) - pixels
        assert np.sqrt((close**2).mean()) < 6


def test_png_text_of_every_kind(probe, tmp_path):
    info = PngImagePlugin.PngInfo()
    info.add_text("plain", "latin ü")
    info.add_text("packed", "z" * 5000, zip=True)
    info.add_itxt("international", "€ 日本", "ja", "key")
    info.add_itxt("both", "€" * 3000, zip=True)
    picture("RGB").save(tmp_path / "x.png", pnginfo=info)
    _, text = read(probe, tmp_path / "x.png", tmp_path)
    assert text == {"plain": "latin ü", "packed": "z" * 5000, "international": "€ 日本", "both": "€" * 3000}


def test_a_picture_that_promises_too_much_is_refused_at_once(probe, tmp_path):
    picture("RGB").save(tmp_path / "x.png")
    data = bytearray((tmp_path / "x.png").read_bytes())
    data[16:24] = (100_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    (tmp_path / "y.png").write_bytes(data)
    reply = probe.ask("image", tmp_path / "y.png", tmp_path / "out.npy")
    assert reply["error"] == "bad_input" and "100000 x 100000" in reply["message"]


def test_a_flat_picture_is_not_mistaken_for_a_bomb(probe, tmp_path):
    for kind, options in [
        ("png", {}),
        ("jpg", {}),
        ("jpg", {"progressive": True, "optimize": True}),
        ("webp", {"lossless": True}),
    ]:
        Image.new("RGB", (3000, 2000), (10, 200, 30)).save(tmp_path / f"x.{kind}", **options)
        ours, _ = read(probe, tmp_path / f"x.{kind}", tmp_path)
        np.testing.assert_array_equal(ours, np.asarray(Image.open(tmp_path / f"x.{kind}")))
