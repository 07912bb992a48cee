"""Runs before a recorded program: `lockstep record` puts this folder first on PYTHONPATH."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _start_coverage(kind):
    from lockstep import coverage

    coverage.start(os.path.join(os.environ["LOCKSTEP_RUN"], "coverage"), kind == "lines")


def _start_profiler(evaluate):
    from lockstep import profiler

    profiler.start(os.path.join(os.environ["LOCKSTEP_RUN"], "profile"), evaluate)


def _start_pruning():
    from lockstep import pruning

    folder = os.path.join(os.environ["LOCKSTEP_RUN"], "prune")
    if os.environ["LOCKSTEP_PRUNE"] == "watch":
        pruning.watch(folder)
    else:
        pruning.use_copy(os.environ["LOCKSTEP_PRUNE"], folder)


def _start_recorder():
    from lockstep import _session
    from lockstep.recorder import install

    if not _session.asked_for():  # where no run could be made
        return
    recorder = install()
    if os.environ.get("LOCKSTEP_HEALTH"):
        from lockstep import health_watch

        health_watch.start(os.path.join(os.environ["LOCKSTEP_RUN"], "health"), recorder)


def _run_next_sitecustomize():
    """The one that we hide, if the program's environment has one."""
    import importlib.machinery

    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.origin and os.path.abspath(spec.origin) != os.path.abspath(__file__):
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# Behind everything else: a lockstep that the program's own environment has installed comes first.
if any(os.environ.get(f"LOCKSTEP_{what}") for what in ("RECORD_MODULES", "COVERAGE", "PROFILE", "PRUNE")):
    sys.path.append(os.path.dirname(os.path.dirname(_here)))
if os.environ.get("LOCKSTEP_RECORD_MODULES"):
    try:
        _start_recorder()
    except Exception as error:  # the program runs, recorded or not
        sys.stderr.write(f"lockstep: nothing is recorded: {error}\n")
if os.environ.get("LOCKSTEP_COVERAGE") and os.environ.get("LOCKSTEP_RUN"):
    try:
        _start_coverage(os.environ["LOCKSTEP_COVERAGE"])
    except Exception as error:
        sys.stderr.write(f"lockstep: what runs is not counted: {error}\n")
if os.environ.get("LOCKSTEP_PROFILE") and os.environ.get("LOCKSTEP_RUN"):
    try:
        _start_profiler(os.environ["LOCKSTEP_PROFILE"])
    except Exception as error:
        sys.stderr.write(f"lockstep: nothing is timed: {error}\n")
if os.environ.get("LOCKSTEP_PRUNE") and os.environ.get("LOCKSTEP_RUN"):
    try:
        _start_pruning()
    except Exception as error:
        sys.stderr.write(f"lockstep: what the program needs is not known: {error}\n")
import importlib.util  # noqa: F401  after the recorder, so that a broken one cannot stop us here

_run_next_sitecustomize()
