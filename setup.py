"""Builds the capture library for the wheel; everything else is in pyproject.toml."""

import pathlib
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
LIBRARIES = ("liblockstep_capture.so", "lockstep_fast.abi3.so")


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        build = ROOT / "build"
        if not (build / "build.ninja").exists():
            subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "lockstep_capture_shared", "lockstep_fast"], check=True)
        for name in LIBRARIES:
            shutil.copy2(build / "lib" / name, pathlib.Path(self.build_lib) / "lockstep" / name)


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True  # the wheel is for this platform


setup(cmdclass={"build_py": BuildWithLibraries}, distclass=PlatformDistribution)
