"""Where the capture library and what is built with it are: beside the package, or in the build of a source tree."""

import os
import sys

LIBRARY = "liblockstep_capture" + (".dylib" if sys.platform == "darwin" else ".so")


def agent_places(name):
    """Where a file of the agent may be."""
    agent = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(agent, name), os.path.join(_build_folder(agent), name)]


def library_places(name=LIBRARY):
    """Where a file of the package may be: $LOCKSTEP_LIBRARY, or the folder it is in, decides alone."""
    told = os.environ.get("LOCKSTEP_LIBRARY")
    if told:
        return [told if name == LIBRARY else os.path.join(os.path.dirname(told), name)]
    agent = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(os.path.dirname(agent), name), os.path.join(_build_folder(agent), name)]


def _build_folder(agent):
    """Of a source tree, where this file is python/lockstep/agent/library_files.py."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(agent))), "build", "lib")
