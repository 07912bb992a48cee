"""The wheel as a user gets it: built offline, checked, installed into an empty environment, used there and removed."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("scikit_build_core")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parents[1]
TAG = "py3-none-manylinux_2_36_x86_64"


def python(*words, **options):
    options = {"capture_output": True, "text": True, "timeout": 600, **options}
    return subprocess.run([sys.executable, *map(str, words)], **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (BUILD / "build.ninja").exists():
        pytest.skip("no build folder")
    folder = tmp_path_factory.mktemp("wheel")
    settings = [f"wheel.tags={TAG}", f"cmake.define.LOCKSTEP_BUILD={BUILD}", f"build-dir={folder / 'build'}"]
    options = [f"--config-settings={setting}" for setting in settings]  # Debian 12's pip does not know -C
    done = python(
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        folder,
        *options,
        ROOT,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = folder.glob("*.whl")
    return wheel


def check(wheel):
    return python(ROOT / "packaging/wheel/check_wheel.py", wheel)


def test_the_wheel_keeps_what_it_promises(wheel):
    done = check(wheel)
    assert done.returncode == 0, done.stderr
    assert f"3.{sys.version_info[1]}" in done.stdout and wheel.name.endswith(f"{TAG}.whl")


def test_the_check_sees_what_is_missing_and_what_is_too_new(wheel, tmp_path):
    """A wheel without OpenMP, for an older glibc than its program wants."""
    older = tmp_path / wheel.name.replace("manylinux_2_36", "manylinux_2_31")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(older, "w") as part:
        for entry in whole.infolist():
            if "libgomp" not in entry.filename and not entry.filename.endswith(".safetensors"):
                part.writestr(entry, whole.read(entry))
    done = check(older)
    assert done.returncode == 1
    assert (
        "OpenMP is missing" in done.stderr and "needs libgomp-lockstep.so.1, which is not in the wheel" in done.stderr
    )
    assert "scripts/lockstep needs glibc 2.3" in done.stderr


def test_an_empty_environment_draws_records_debugs_and_is_left_clean(wheel):
    done = python(ROOT / "packaging/wheel/try_wheel.py", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"native": true' in done.stdout and "removed, 0 files left" in done.stdout


@pytest.fixture(scope="module")
def target(wheel, tmp_path_factory):
    """`pip install --target`: the program, the package and the rest in one folder, no environment."""
    folder = tmp_path_factory.mktemp("target")
    done = python("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder, wheel)
    assert done.returncode == 0, done.stderr
    return folder


def run(target, folder, *words):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))}
    return subprocess.run(
        [target / "bin/lockstep", *map(str, words)],
        cwd=folder,
        env={**kept, "LOCKSTEP_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_torch_program_is_recorded(target, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "model.py").write_text(
        "import torch\ntorch.manual_seed(1)\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))\nmodel(torch.ones(1, 4))\n"
    )
    done = run(target, tmp_path, "record", "--", sys.executable, "model.py")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "home/runs").glob("*/tensors/*.npy"))) >= 3


def test_a_package_of_another_version_is_not_taken(target, tmp_path):
    """Several Pythons may share a prefix, each with a version of its own."""
    copy = tmp_path / "copy"
    shutil.copytree(target, copy, ignore=shutil.ignore_patterns("models"))
    (tmp_path / "program.py").write_text("print('ran')\n")
    assert run(copy, tmp_path, "record", "--", sys.executable, "program.py").returncode == 0
    (metadata,) = copy.glob("lockstep-*.dist-info")
    metadata.rename(copy / "lockstep-0.0.1.dist-info")
    done = run(copy, tmp_path, "record", "--", sys.executable, "program.py")
    assert done.returncode == 125 and "the Python package lockstep was not found" in done.stderr


def test_c_and_cpp_link_with_the_library_of_the_wheel(wheel, tmp_path):
    """Its own libraries lie elsewhere than those of a system's prefix, and bear other names."""
    prefix = tmp_path / "prefix"
    done = python("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--prefix", prefix, wheel)
    assert done.returncode == 0, done.stderr
    shutil.copytree(ROOT / "examples/c", tmp_path / "c")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "LD_"))}
    environment = {**kept, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "CMAKE_PREFIX_PATH": str(prefix)}
    for command in (
        ["make", "-C", "c", "record"],
        ["cmake", "-S", ROOT / "examples/cpp", "-B", "cpp"],
        ["cmake", "--build", "cpp"],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for name in ("c", "cpp"):
        home = {"LOCKSTEP_HOME": str(tmp_path / name / "home"), "LOCKSTEP_RECORD": "mine"}
        done = subprocess.run([tmp_path / name / "record"], env={**kept, **home}, capture_output=True, text=True)
        assert done.stdout.strip() == "12.3750" and list((tmp_path / name / "home/runs").glob("*/tensors/input.npy")), (
            done.stderr
        )
