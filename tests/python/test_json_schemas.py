"""What commands print with --json is what docs/schemas says, field by field."""

import json
import pathlib
import sys

import numpy as np
import pytest
from program import ROOT, run, run_json
from test_compare import block, normal, write_run

jsonschema = pytest.importorskip("jsonschema")


def check(document, schema):
    definition = json.loads((ROOT / "docs" / "schemas" / f"{schema}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(definition)
    jsonschema.Draft202012Validator(definition).validate(document)


@pytest.mark.parametrize("kind", ["match", "mismatch", "nothing_compared"])
def test_compare(tmp_path, kind):
    x, shift, scale = normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2)
    odd = normal(3, 3)
    odd[0, 0] = np.nan
    extra = [
        ("odd", "output", odd),
        ("image", "checkpoint", np.zeros((16, 16, 3), np.uint8)),
        ("ids", "output", np.arange(4)),
    ]
    a = write_run(tmp_path / "a", block(x, shift, scale) + extra)
    other = {
        "match": block(x, shift, scale) + extra,
        "mismatch": block(x, shift, scale, exchanged=True)
        + [("odd", "output", normal(3, 3)), *extra[1:], ("mine", "output", x)],
        "nothing_compared": [("other", "output", x)],
    }[kind]
    done, document = run_json("compare", a, write_run(tmp_path / "b", other))
    assert document["verdict"] == kind and done.returncode == ["match", "mismatch", "nothing_compared"].index(kind)
    check(document, "compare")


def test_record_and_ledger(tmp_path):
    script = tmp_path / "port.py"
    script.write_text(
        "import array, sys\nfrom lockstep import checkpoint\nx = array.array('d', [1.0, 2.0])\n"
        "checkpoint('a', x)\nx[0] *= float(sys.argv[1])\ncheckpoint('b', x, step=1, tags={'pass': 'cond'})\n"
    )
    home = ["--json", "--home", tmp_path / "home"]
    done = run(*home, "record", "--name", "reference", "--", sys.executable, script, "1")
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), "record")
    done = run(*home, "ledger", "latest:reference", "--", sys.executable, script, "3")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    check(document, "ledger")
    assert len(document["sources"]) == 1 and document["sources"][0].startswith("b")
    assert pathlib.Path(document["runs"]["as_it_is"]).is_dir()
