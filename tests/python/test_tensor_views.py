"""What views are made of, over HTTP: slices, heat maps, histograms, channels, rows and trees of comparisons. NumPy is the judge."""

import base64
import http.client
import io
import json
import urllib.parse

import numpy as np
import pytest
from debug_service import Home
from PIL import Image
from test_compare import normal, write_run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("views"))
    x = normal(2, 64, 48)
    y = x.copy()
    y[1, 10:20] += 1
    pixels = np.zeros((16, 16, 3), np.uint8)
    home.home.mkdir(parents=True)
    for name, second, picture in (("a", x, pixels), ("b", y, pixels + np.uint8(10))):
        write_run(
            home.home / "runs" / name,
            [("net.one", "output", x), ("net.two.deep", "output", second), ("net.two.image", "checkpoint", picture)],
        )
    write_run(home.home / "runs" / "alone", [("net.one", "output", x), ("other", "output", x)])
    np.save(home.folder / "x.npy", x)
    home.x, home.y = x, y
    home.ensure()
    yield home
    home.close()


def bytes_of(home, operation, **arguments):
    status, headers, body = raw(home, operation, **arguments)
    assert status == 200, body
    assert headers["Content-Type"] == "application/octet-stream"
    end = body.index(b"\n") + 1
    assert end % 4 == 0, "numbers can be read where they lie"
    return json.loads(body[:end]), body[end:]


def raw(home, operation, **arguments):
    connection = http.client.HTTPConnection("127.0.0.1", home.service()["port"], timeout=60)
    connection.request(
        "GET",
        f"/v1/{operation}?{urllib.parse.urlencode(arguments)}",
        headers={"Authorization": f"Bearer {home.token()}", "Accept": "application/octet-stream"},
    )
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_slices_are_the_values(place):
    for source in ({"run": "a", "seq": 0}, {"run": "a", "name": "net.one"}, {"path": place.folder / "x.npy"}):
        meta, data = bytes_of(place, "tensors/slice", **source, slice="[1, 5:9, ::3]")
        want = place.x[1, 5:9, ::3]
        assert meta["shape"] == list(want.shape) and meta["dtype"] == "f32"
        assert np.array_equal(np.frombuffer(data, "<f4").reshape(want.shape), want)
    assert base64.b64decode(place.get("tensors/slice", run="a", seq=0)["bytes"]) == place.x.tobytes()


@pytest.mark.parametrize("window", [{}, {"top": 70, "left": 5, "rows": 20, "columns": 9}])
def test_heat_maps_hold_the_extremes(place, window):
    meta, data = bytes_of(place, "tensors/heat", run="a", seq=0, height=16, width=8, **window)
    cells = np.frombuffer(data, "<f4").reshape(meta["height"], meta["width"])
    flat = place.x.reshape(-1, 48)
    part = flat[window.get("top", 0) :, window.get("left", 0) :][: window.get("rows", 128), : window.get("columns", 48)]
    rows, columns = part.shape
    for y in range(meta["height"]):
        for x in range(meta["width"]):
            block = part[
                -(-y * rows // meta["height"]) : -(-(y + 1) * rows // meta["height"]),
                x * columns // meta["width"] : (x + 1) * columns // meta["width"],
            ]
            assert abs(cells[y, x]) == np.abs(block).max()
    assert meta["limit"] == pytest.approx(np.abs(cells).max()) and (meta["rows"], meta["columns"]) == (128, 48)


def test_histograms_and_channels(place):
    h = place.get("tensors/histogram", run="a", seq=0, bins=20)
    counts, _ = np.histogram(place.x, bins=20)
    assert np.abs(np.array(h["counts"]) - counts).max() <= 1 and sum(h["counts"]) == place.x.size
    for axis in (0, 1, 2, -1):
        c = place.get("tensors/channels", run="a", seq=0, axis=axis)
        others = tuple(k for k in range(3) if k != axis % 3)
        assert np.allclose(c["mean"], place.x.mean(others), atol=1e-5) and np.allclose(c["max"], place.x.max(others)), (
            axis
        )


def test_rows_and_the_tree_of_a_comparison(place):
    rows = place.get("compare/rows", reference="a", candidate="b")
    assert [r[rows["columns"].index("state")] for r in rows["rows"]][:2] == ["match", "mismatch"] and rows["first"] == 1
    assert rows["summary"]["verdict"] == "mismatch" and "tensors" not in rows["summary"] and len(rows["images"]) == 1
    tree = {m["module"]: m for m in place.get("compare/tree", reference="a", candidate="b")["modules"]}
    assert tree["net"]["tensors"] == 3 and tree["net"]["different"] == 2 and tree["net.one"]["different"] == 0
    assert tree["net.two"]["first_row"] == 1
    assert set(
        m["module"]
        for m in place.get("compare/tree", reference="a", candidate="b", under="net.two", depth=1)["modules"]
    ) == {"net.two.deep", "net.two.image"}
    alone = place.get("compare/rows", reference="a", candidate="alone")
    assert [r[0] for r in alone["alone"]["reference"]] == ["net.two.image"], "the other one is found by its content"


def test_pairs_as_heat_maps(place):
    meta, data = bytes_of(
        place, "compare/heat", reference="a", candidate="b", row=1, height=128, width=64, histogram="true"
    )
    planes = np.frombuffer(data, "<f4").reshape(3, 128, 48)
    want = (place.y - place.x).reshape(128, 48)
    assert np.allclose(planes[2], want, atol=1e-6) and np.array_equal(planes[0], place.x.reshape(128, 48))
    assert (
        list(meta["planes"]) == ["reference", "candidate", "difference"] and len(meta["histogram"]["candidate"]) == 64
    )


def test_pictures_and_their_difference(place):
    meta, png = bytes_of(place, "compare/picture", reference="a", candidate="b", side="difference", gain=4)
    assert png.startswith(b"\x89PNG") and (meta["width"], meta["height"]) == (16, 16)
    assert np.array(Image.open(io.BytesIO(png))).tolist() == np.full((16, 16, 3), 40).tolist()


@pytest.mark.parametrize(
    "operation, arguments, status",
    [
        ("tensors/slice", {"run": "a", "seq": 99}, 404), ("tensors/slice", {"run": "a", "path": "/x", "seq": 0}, 400), ("tensors/slice", {}, 400),
        ("tensors/slice", {"run": "a", "seq": 0, "slice": "[9]"}, 400), ("tensors/heat", {"run": "a", "seq": 0, "top": 500}, 400), ("tensors/heat", {"run": "a", "seq": 0, "height": 100000}, 400),
        ("tensors/heat", {"run": "nothing", "seq": 0}, 404), ("tensors/channels", {"run": "a", "seq": 0, "axis": 7}, 400), ("compare/heat", {"reference": "a", "candidate": "b", "row": 77}, 404),
        ("compare/picture", {"reference": "a", "candidate": "b", "image": 5}, 404), ("compare/source", {"reference": "a", "candidate": "b", "row": 9}, 404), ("maps/show", {"name": "../service/token"}, 400),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(place, operation, arguments, status):
    got, _, body = raw(place, operation, **arguments)
    assert got == status, body


def test_a_run_that_changes_is_read_anew(place):
    folder = write_run(place.home / "runs" / "grows", [("x", "output", normal(3, 4))])
    assert place.get("runs/tensors", run="grows")["total"] == 1
    np.save(folder / "tensors" / "1.npy", normal(2, 2))
    with open(folder / "records.jsonl", "a") as lines:
        lines.write(
            json.dumps(
                {
                    "seq": 1,
                    "name": "y",
                    "step": None,
                    "hit": 0,
                    "tags": {},
                    "role": "output",
                    "dtype": "float32",
                    "shape": [2, 2],
                    "file": "tensors/1.npy",
                }
            )
            + "\n"
        )
    assert place.get("runs/tensors", run="grows")["total"] == 2
    assert place.get("tensors/histogram", run="grows", name="y")["shape"] == [2, 2]


def test_maps_are_checked_before_they_are_saved(place):
    saved = place.call("maps/save", name="mine", map=json.dumps({"rules": [{"candidate": "a.*", "reference": "b.*"}]}))
    assert saved["rules"] == 1 and place.get("maps/show", name="mine")["map"]["rules"][0]["reference"] == "b.*"
    for name, text in (("mine", "{"), ("mine", '{"rules": 3}'), ("../x", '{"rules": []}'), ("", "{}")):
        status, _, _ = place.http("POST", "/v1/maps/save", {"name": name, "map": text})
        assert status == 400
    assert place.get("maps/show", name="mine")["map"]["rules"][0]["reference"] == "b.*", "a bad one replaces nothing"
    assert [m["name"] for m in place.get("maps/list")["maps"]] == ["mine"]
