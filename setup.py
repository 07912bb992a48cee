"""Builds the libraries for the wheel: the capture library, and the debugger's extension for this Python."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

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
        self.add_agent(build)

    def add_agent(self, build):
        """Without the extension, for want of Python's headers, the debugger runs its slower form and says so."""
        name = "_lockstep_agent" + sysconfig.get_config_var("EXT_SUFFIX")
        target = f"lockstep_agent_3{sys.version_info[1]}"
        made = subprocess.run(["cmake", "--build", str(build), "--target", target]).returncode == 0
        if not made:  # this Python was not among those that the build folder knows
            subprocess.run(["cmake", f"-DLOCKSTEP_PYTHONS={sys.executable}", str(build)], check=True)
            made = subprocess.run(["cmake", "--build", str(build), "--target", target]).returncode == 0
        if made:
            shutil.copy2(build / "lib" / name, pathlib.Path(self.build_lib) / "lockstep" / "agent" / name)


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True  # the wheel is for this platform


setup(cmdclass={"build_py": BuildWithLibraries}, distclass=PlatformDistribution)
