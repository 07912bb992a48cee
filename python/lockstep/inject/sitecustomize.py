"""Runs before a recorded program: `lockstep record` puts this folder first on PYTHONPATH."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _start_recorder():
    # Behind everything else: a lockstep that the program's own environment has installed comes first.
    sys.path.append(os.path.dirname(os.path.dirname(_here)))
    from lockstep import _session
    from lockstep.recorder import install

    if _session.asked_for():  # not where no run could be made
        install()


def _run_next_sitecustomize():
    """The one that we hide, if the program's environment has one."""
    import importlib.machinery

    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.origin and os.path.abspath(spec.origin) != os.path.abspath(__file__):
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("LOCKSTEP_RECORD_MODULES"):
    try:
        _start_recorder()
    except Exception as error:  # the program runs, recorded or not
        sys.stderr.write(f"lockstep: nothing is recorded: {error}\n")
import importlib.util  # noqa: E402  after the recorder, so that a broken one cannot stop us here

_run_next_sitecustomize()
