"""Starts a program under the debugger: python bootstrap.py [-m MODULE | SCRIPT] ARGS... See docs/debugger_protocol.md."""

import sys
import time

_began = time.perf_counter()


def _load_package():
    # Only what Python has loaded for itself: an import here would be one that the program did not make.
    external = sys.modules["_frozen_importlib_external"]
    frozen = sys.modules["_frozen_importlib"]
    import os  # loaded by `site`, and frozen where that is off

    folder = os.path.dirname(os.path.abspath(__file__))
    name = "_lockstep_debugger"
    spec = external.spec_from_file_location(name, folder + "/__init__.py", submodule_search_locations=[folder])
    package = frozen.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _load_package()
    from _lockstep_debugger import program

    program.main(_began)
