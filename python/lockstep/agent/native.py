"""The C++ extension where one fits this Python, else None with the reason."""

import os
import sys

from . import library_files

module = None
reason = ""


def _candidates(told):
    import _imp

    return [told] if told else library_files.agent_places("_lockstep_agent" + next(iter(_imp.extension_suffixes())))


def load(told):
    """told: the value of LOCKSTEP_AGENT_NATIVE."""
    global module, reason
    if told == "0":
        reason = "LOCKSTEP_AGENT_NATIVE=0"
        return
    if sys.implementation.name != "cpython" or not (3, 10) <= sys.version_info[:2] <= (3, 14):
        reason = f"no extension for {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
        return
    frozen, external = sys.modules["_frozen_importlib"], sys.modules["_frozen_importlib_external"]
    tried = []
    for path in _candidates(told):
        tried.append(path)
        if not os.path.exists(path):
            continue
        try:
            loader = external.ExtensionFileLoader("_lockstep_agent", path)
            spec = frozen.ModuleSpec("_lockstep_agent", loader, origin=path)
            found = frozen.module_from_spec(spec)
            loader.exec_module(found)
        except (ImportError, OSError) as error:
            reason = f"{path}: {error}"
            continue
        module, reason = found, ""
        return
    if not reason:
        reason = "no extension for this Python was found; looked for " + ", ".join(tried)
