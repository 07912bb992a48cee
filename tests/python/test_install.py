"""An installed program finds the model and the Python package that come with it, wherever it was put."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from debug_client import pythons
from system import mapped_files

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    prefix = tmp_path_factory.mktemp("installed") / "usr"
    done = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return prefix


def built_for(python):
    suffix = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    return (BUILD / "lib" / f"_lockstep_agent{suffix}").exists()


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_an_installation_debugs_with_its_own_agent(installed, tmp_path, version):
    python = pythons().get(tuple(int(part) for part in version.split(".")))
    if python is None:
        pytest.skip(f"no Python {version}")
    script = tmp_path / "steps.py"
    script.write_text("x = 1\ny = 2\n")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON", "VIRTUAL_ENV"))
    }
    environment["LOCKSTEP_HOME"] = str(tmp_path / "home")

    def lockstep(*words):
        done = subprocess.run(
            [installed / "bin/lockstep", "--json", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else None

    try:
        began = lockstep("debug", "start", "--python", python, str(script))
        assert began["python"].startswith(version) and began["state"] == "stopped"
        assert began["native"] is built_for(python), began
        loaded = "\n".join(mapped_files(began["pid"]))
        assert str(ROOT / "build") not in loaded
        if began["native"]:
            assert str(installed / "share/lockstep/python/lockstep/agent/_lockstep_agent") in loaded
        assert lockstep("debug", "next")["stop"]["location"]["line"] == 2
        lockstep("debug", "terminate", "--force")
    finally:
        subprocess.run(
            [installed / "bin/lockstep", "serve", "--stop"], cwd=tmp_path, env=environment, capture_output=True
        )


def test_an_installation_records(installed, tmp_path):
    script = tmp_path / "saves.py"
    script.write_text(
        "import array, lockstep\nlockstep.checkpoint('x', memoryview(array.array('f', [1, 2, 3])))\nprint(lockstep.__file__)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))}
    environment["LOCKSTEP_HOME"] = str(tmp_path / "home")
    done = subprocess.run(
        [installed / "bin/lockstep", "record", "--", sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert str(installed / "share/lockstep/python") in done.stdout
    assert list((tmp_path / "home" / "runs").glob("*/tensors/x.npy"))


def test_an_installation_draws_without_its_source_tree(tmp_path):
    if not (ROOT / "models/tiny/model_index.json").exists() or not shutil.which("cmake"):
        pytest.skip("no embedded model, or no cmake")
    subprocess.run(
        ["cmake", "--install", str(BUILD), "--prefix", str(tmp_path / "usr")], check=True, capture_output=True
    )
    program = tmp_path / "usr/bin/lockstep"
    done = subprocess.run(
        [program, "generate", "--prompt", "a red circle", "--steps", "2", "--output", "x.png", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "usr/share/lockstep/models/tiny") in done.stdout


def builds_and_records(command, program, tmp_path, **environment):
    """An example that lives outside our build finds the library where it was installed, and records."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "LD_"))}
    done = subprocess.run(
        command, cwd=tmp_path, env={**kept, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    home = {"LOCKSTEP_HOME": str(tmp_path / "home"), "LOCKSTEP_RECORD": "mine"}
    done = subprocess.run([program], env={**kept, **home}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "12.3750", done.stderr
    assert list((tmp_path / "home/runs").glob("*/tensors/input.npy"))


def test_c_finds_the_library_with_pkg_config(installed, tmp_path):
    if not shutil.which("pkg-config") or not shutil.which("make"):
        pytest.skip("no pkg-config or no make")
    shutil.copytree(ROOT / "examples/c", tmp_path / "c")
    command = ["make", "-C", "c", "record", "CFLAGS=-Wall -Wextra -Werror"]
    builds_and_records(command, tmp_path / "c/record", tmp_path, PKG_CONFIG_PATH=str(installed / "lib/pkgconfig"))


def test_cpp_finds_the_library_with_find_package(installed, tmp_path):
    moved = tmp_path / "moved"  # nothing may hold the prefix it was installed to
    shutil.copytree(installed, moved, ignore=shutil.ignore_patterns("models"), symlinks=True)
    script = f"cmake -S {ROOT / 'examples/cpp'} -B made -DCMAKE_PREFIX_PATH={moved} && cmake --build made"
    builds_and_records(["sh", "-c", script], tmp_path / "made/record", tmp_path)
    assert str(moved) in (tmp_path / "made/CMakeCache.txt").read_text()


def test_rust_finds_the_library_beside_the_installed_crate(installed, tmp_path):
    cargo = "/usr/bin/cargo" if os.path.exists("/usr/bin/cargo") else shutil.which("cargo")
    if cargo is None:
        pytest.skip("no cargo")
    command = [
        cargo,
        "build",
        "--offline",
        "--example",
        "record",
        "--manifest-path",
        str(installed / "share/lockstep/rust/Cargo.toml"),
    ]
    builds_and_records(
        command, tmp_path / "target/debug/examples/record", tmp_path, CARGO_TARGET_DIR=str(tmp_path / "target")
    )


def test_the_shells_and_man_find_their_files(installed):
    for file in (
        "man/man1/lockstep.1",
        "bash-completion/completions/lockstep",
        "zsh/site-functions/_lockstep",
        "fish/vendor_completions.d/lockstep.fish",
    ):
        assert (installed / "share" / file).stat().st_size > 1000, file


def test_the_debian_package_holds_what_an_installation_does(installed, tmp_path):
    if not shutil.which("cpack") or not shutil.which("dpkg-shlibdeps"):
        pytest.skip("no cpack or no dpkg-shlibdeps")
    command = [
        "cpack",
        "--config",
        str(BUILD / "CPackConfig.cmake"),
        "-B",
        str(tmp_path),
        "-D",
        f"CPACK_OUTPUT_FILE_PREFIX={tmp_path}",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (package,) = tmp_path.glob("lockstep_*.deb")
    control = subprocess.run(["dpkg-deb", "--info", package], capture_output=True, text=True, check=True).stdout
    assert "Package: lockstep" in control and "libdnnl" in control and "libc6" in control
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "root"], check=True)

    def files(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    assert files(tmp_path / "root/usr") == files(installed)
    done = subprocess.run([tmp_path / "root/usr/bin/lockstep", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("lockstep ")


def test_libraries_are_looked_for_where_a_layout_has_them(tmp_path):
    """In the package, where every installation puts them, and in the build folder of a source tree: nowhere else, where they would be somebody else's."""
    root = tmp_path / "prefix" / "share" / "lockstep"
    shutil.copytree(ROOT / "python" / "lockstep", root / "python" / "lockstep", ignore=shutil.ignore_patterns("*.pyc"))
    source = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); os.environ.pop('LOCKSTEP_LIBRARY', None)\n"
        "from lockstep.agent import library_files, native\n"
        "for one in (*library_files.library_places(), *native._candidates('')): print(os.path.dirname(one))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, root / "python"], capture_output=True, text=True, check=True, timeout=60
    )
    package = root / "python" / "lockstep"
    asked = {line for line in done.stdout.splitlines() if line}
    assert asked == {str(package), str(package / "agent"), str(root / "build" / "lib")}
