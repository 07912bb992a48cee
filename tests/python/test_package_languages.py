"""C, C++ and Rust programs record through the same library, and take the reference's values when told to."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin" / "lockstep")).parent


@pytest.fixture(scope="session")
def rust_example(tmp_path_factory):
    debian = "/usr/bin/cargo"  # the oldest that must do; others may be newer
    cargo = debian if os.path.exists(debian) else shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is absent: the Rust example is not built")
    target = tmp_path_factory.mktemp("rust")
    done = subprocess.run(
        [cargo, "build", "--offline", "--example", "record", "--manifest-path", str(ROOT / "bindings/rust/Cargo.toml")],
        env={**os.environ, "CARGO_TARGET_DIR": str(target), "LOCKSTEP_LIB_DIR": str(BIN.parent / "lib")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return target / "debug" / "examples" / "record"


@pytest.fixture(params=["c", "cpp", "rust"])
def program(request):
    if request.param == "rust":
        return request.getfixturevalue("rust_example")
    built = BIN / f"example_{request.param}"
    if not built.exists():
        pytest.skip(f"{built} is not built")
    return built


def run(program, home, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
    done = subprocess.run(
        [str(program)], env={**clean, "LOCKSTEP_HOME": str(home), **environment}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


def latest(home, name):
    path = (home / "latest" / name).resolve()
    records = [json.loads(line) for line in (path / "records.jsonl").read_text("utf-8").splitlines()]
    return json.loads((path / "run.json").read_text("utf-8")), records


def test_off_leaves_nothing_behind(program, tmp_path):
    assert run(program, tmp_path / "home") == "12.3750"
    assert not (tmp_path / "home").exists()


def test_records_and_substitutes(program, tmp_path):
    home = tmp_path / "home"
    assert run(program, home, LOCKSTEP_RECORD="reference") == "12.3750"
    manifest, records = latest(home, "reference")
    assert manifest["status"] == "finished"
    names = [(record["name"], record["step"]) for record in records]
    assert names[:4] == [("input", None), ("latents", 0), ("latents", 1), ("latents", 2)]
    assert records[1]["preview"] == [1, 1.5, 2, 2.5, 3, 3.5] and records[1]["shape"] == [2, 3]

    # The reference's input in place of its own changes nothing; a changed reference changes the result.
    environment = {"LOCKSTEP_REFERENCE": "latest:reference", "LOCKSTEP_SUBSTITUTE": "input"}
    assert run(program, home, LOCKSTEP_RECORD="mine", **environment) == "12.3750"
    _, records = latest(home, "mine")
    assert [record.get("substituted", False) for record in records[:2]] == [True, False]
    numpy = pytest.importorskip("numpy")
    changed = home / "changed"
    changed.mkdir()
    numpy.save(changed / "input.npy", numpy.full((2, 3), 8, "f4"))
    environment["LOCKSTEP_REFERENCE"] = str(changed)
    assert run(program, home, **environment) == "16.5000"
