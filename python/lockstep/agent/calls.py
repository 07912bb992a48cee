"""How often each file's functions are called: off unless asked for, because every call then costs something."""

import sys

from . import native, sources
from .arguments import Refused


def count(agent, on):
    """False where nothing can count them."""
    if native.module is None:
        return False
    native.module.count_calls(on, agent.own_thread or 0)
    if agent.engine.name == "monitoring":
        sys.monitoring.restart_events()  # functions whose start was reported once report again
    elif "threading" in sys.modules:
        _watch_new_threads()
    elif on:  # in the main thread, which the module takes the one for that imports it first: Python would wait for ours at its end
        native.module.call_in_main(_watch_new_threads)
    agent.calls_counted = on
    return True


def _watch_new_threads():
    import threading  # asked for: a new thread is told of its first call only through it

    threading.setprofile(native.module.count_this_thread if native.module.counting() else None)


def counts():
    """Path → calls."""
    found = {}
    for file, number in native.module.call_counts().items():
        path = sources.canonical(file)
        found[path] = found.get(path, 0) + number
    return found


def operation(agent, args):
    on = not args.get("off", False)
    if not count(agent, on):
        raise Refused(
            "unsupported", "the extension counts calls, and there is none for this Python", "another --python"
        )
    return {"calls_counted": on}
