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
        [str(program)],
        env={**clean, "LOCKSTEP_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
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


def test_a_users_crate_runs_and_records(tmp_path):
    """Built, but not started: only this crate's own examples were told where the library is."""
    cargo = "/usr/bin/cargo" if os.path.exists("/usr/bin/cargo") else shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is absent")
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text(
        f"""[package]
name = "theirs"
version = "0.1.0"
edition = "2021"
[dependencies]
lockstep = {{ path = "{ROOT / "bindings" / "rust"}" }}
"""
    )
    (tmp_path / "src" / "main.rs").write_text(
        """fn main() {
    let mut run = lockstep::Run::from_environment("theirs");
    let mut x = vec![1.0f32, 2.0];
    run.checkpoint("x", &mut x, &[2]);
    let y: Vec<f32> = (0..7).map(|i| i as f32).collect();
    run.record_strided("turned", &y[1..], &[3, 2], &[1, 3], &lockstep::here!()); // [2, 3] in memory
    run.record_strided("broadcast", &y, &[2, 2], &[0, 1], &lockstep::here!());
    run.record_strided("beyond", &y, &[3, 3], &[1, 3], &lockstep::here!());
    run.close();
}
"""
    )
    environment = {
        "LOCKSTEP_LIB_DIR": str(BIN.parent / "lib"),
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_RECORD": "theirs",
    }
    clean = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "CARGO_TARGET_DIR")}
    done = subprocess.run(
        [cargo, "run", "--offline"], cwd=tmp_path, env={**clean, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    records = {record["name"]: record["preview"] for record in latest(tmp_path / "home", "theirs")[1]}
    assert records == {"x": [1, 2], "turned": [1, 4, 2, 5, 3, 6], "broadcast": [0, 1, 0, 1]}
    assert "beyond is not recorded: it reaches beyond its 7 elements" in done.stderr


def test_cpp_records_what_must_not_change(tmp_path):
    """A const pointer did not compile."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    (tmp_path / "theirs.cpp").write_text(
        """#include <lockstep/capture.hpp>
int main() {
  auto run = lockstep::capture::Run::from_environment("theirs");
  const float weight[] = {1, 2};
  run.checkpoint("weight", weight, {2});
  run.close();
}
"""
    )
    library = str(BIN.parent / "lib")
    options = [
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{ROOT / 'include'}",
        f"-L{library}",
        f"-Wl,-rpath,{library}",
    ]
    subprocess.run([compiler, *options, "theirs.cpp", "-llockstep_capture", "-o", "theirs"], cwd=tmp_path, check=True)
    run(tmp_path / "theirs", tmp_path / "home", LOCKSTEP_RECORD="theirs")
    assert latest(tmp_path / "home", "theirs")[1][0]["preview"] == [1, 2]
