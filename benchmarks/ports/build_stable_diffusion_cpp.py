"""stable-diffusion.cpp from the source that PyPI carries: fetched, ggml built for processors once, the driver for each mistake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PIN = "stable-diffusion-cpp-python==0.4.7"


def fetched(folder: Path) -> Path:
    """The folder of stable-diffusion.cpp inside the package's source."""
    source = folder / "source" / "vendor" / "stable-diffusion.cpp"
    if source.exists():
        return source
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            PIN.partition("=")[0],
            "--dest",
            str(folder),
            PIN,
        ],
        check=True,
    )
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    shutil.move(next((folder / "unpacked").iterdir()), folder / "source")
    return source


def built_ggml(folder: Path, source: Path) -> list[Path]:
    build = folder / "ggml"
    libraries = [build / "src" / name for name in ("libggml.a", "libggml-cpu.a", "libggml-base.a")]
    if not all(library.exists() for library in libraries):
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_OPENMP=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF", "-DCMAKE_CXX_FLAGS=-DGGML_MAX_NAME=128", "-DCMAKE_C_FLAGS=-DGGML_MAX_NAME=128"]  # fmt: skip
        subprocess.run(
            ["cmake", "-S", str(source / "ggml"), "-B", str(build), "-G", "Ninja", *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        subprocess.run(
            ["ninja", "-C", str(build), "-j2", "ggml", "ggml-base", "ggml-cpu"], check=True, stdout=subprocess.DEVNULL
        )
    return libraries


def built_driver(folder: Path, headers: Path, name: str, as_official: bool = True) -> Path:
    """The driver with these headers: those of the source, or a copy with a mistake in it."""
    source = fetched(folder)
    libraries = built_ggml(folder, source)
    program = folder / "programs" / name
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    objects = []
    for part in ("util.cpp", "ggml_graph_cut.cpp"):
        made = folder / "programs" / f"{part}.o"
        if not made.exists():
            compile_(source, source / "src", ["-c", str(source / "src" / part), "-o", str(made)])
        objects.append(str(made))
    library = Path(os.environ.get("LOCKSTEP_LIBRARY_FOLDER", ROOT / "build" / "lib"))
    official = ["-DLOCKSTEP_AS_OFFICIAL"] if as_official else []
    compile_(
        source, headers,
        [*official, str(HERE / "drive_stable_diffusion_cpp.cpp"), *objects, *map(str, libraries), f"-L{library}", "-llockstep_capture", f"-Wl,-rpath,{library}", "-lpthread", "-ldl", "-o", str(program)],
    )  # fmt: skip
    return program


def compile_(source: Path, headers: Path, arguments: list[str]):
    include = [
        headers,
        source / "include",
        source / "ggml" / "include",
        source / "ggml" / "src",
        source / "thirdparty",
        ROOT / "include",
    ]
    command = ["g++", "-std=c++20", "-O1", "-w", "-DGGML_MAX_NAME=128", *[f"-I{path}" for path in include], *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-3000:]}")
