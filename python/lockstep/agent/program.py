"""Runs the program as Python would: its own __main__, argv, path, exceptions and exit status."""

import os
import sys

from . import native, sources


def _options(text):
    if not text:
        return {}
    from . import channel

    loads = native.module.loads if native.module is not None else channel._codec()[1]
    try:
        options = loads(text.encode("utf-8"))
    except ValueError:
        options = {}
    return options if isinstance(options, dict) else {}


def main(began):
    environment = {
        name: os.environ.pop(name, "")
        for name in (
            "LOCKSTEP_AGENT_SOCKET",
            "LOCKSTEP_AGENT_TOKEN",
            "LOCKSTEP_AGENT_SESSION",
            "LOCKSTEP_AGENT_OPTIONS",
            "LOCKSTEP_AGENT_NATIVE",
            "LOCKSTEP_AGENT_TWIN",
        )
    }
    arguments = sys.argv[1:]
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2):
        sys.stderr.write("lockstep: usage: bootstrap.py SCRIPT ARGS... or bootstrap.py -m MODULE ARGS...\n")
        sys.exit(2)
    native.load(environment["LOCKSTEP_AGENT_NATIVE"])
    agent = None
    options = _options(environment["LOCKSTEP_AGENT_OPTIONS"])
    twin = _options(environment["LOCKSTEP_AGENT_TWIN"])
    if twin:
        options["twin"] = twin
    try:
        if not environment["LOCKSTEP_AGENT_SOCKET"]:
            raise OSError("LOCKSTEP_AGENT_SOCKET is not set")
        from .agent import Agent

        agent = Agent(environment, options, began)
    except Exception as error:  # without a debugger the program still runs
        if type(error).__name__ == "NobodyListens" and options.get("on_disconnect") == "terminate":
            sys.stderr.write(
                f"lockstep: the program does not run without the debugger, as --on-disconnect terminate says: {error}\n"
            )
            sys.exit(1)
        sys.stderr.write(f"lockstep: not debugged: {type(error).__name__}: {error}\n")
    sys.meta_path.append(_PackageFinder)
    if arguments[0] == "-m":
        code, namespace = _module(arguments[1], arguments[2:])
    else:
        code, namespace = _script(arguments[0], arguments[1:])
    _run(agent, code, namespace)


class _PackageFinder:
    """Finds the package `lockstep` that this debugger belongs to where the program's own environment has none, as in a recorded
    program. Last on sys.meta_path, so that sys.path stays what it is."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "lockstep":
            return None
        external = sys.modules["_frozen_importlib_external"]
        return external.PathFinder.find_spec(name, [os.path.dirname(os.path.dirname(sources.own_folder()))])


def _fresh_main(**names):
    main = type(sys)("__main__")
    if sys.version_info < (3, 14):  # from there on the module makes them when it is asked
        vars(main)["__annotations__"] = {}
    vars(main).update(__builtins__=sys.modules["builtins"], **names)
    sys.modules["__main__"] = main
    return vars(main)


def _script(path, arguments):
    sys.argv[:] = [path, *arguments]
    full = os.path.abspath(path)
    if os.path.isdir(full) or full.endswith((".zip", ".pyz")):
        sys.path[0] = full
        import runpy

        _, spec, code = runpy._get_main_module_details()
        return code, _fresh_main(
            __file__=code.co_filename, __spec__=spec, __loader__=spec.loader, __package__=spec.parent, __doc__=None
        )
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(full))
    elif sys.path and sys.path[0] == sources.own_folder():
        del sys.path[0]
    external = sys.modules["_frozen_importlib_external"]
    loader = external.SourceFileLoader("__main__", full)
    namespace = _fresh_main(
        __file__=full, __spec__=None, __loader__=loader, __package__=None, __cached__=None, __doc__=None
    )
    try:
        with open(full, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {full!r}: {error}\n")
        sys.exit(2)
    return compile_main(source, full), namespace


def compile_main(source, full):
    try:
        return compile(source, full, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return error


def _module(name, arguments):
    import runpy  # as `python -m` does

    sys.argv[:] = ["-m", *arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()
    try:
        _, spec, code = runpy._get_module_details(name)
    except runpy._Error as error:
        sys.stderr.write(f"{sys.executable}: {error}\n")
        sys.exit(1)
    sys.argv[0] = spec.origin
    namespace = _fresh_main(
        __file__=spec.origin,
        __spec__=spec,
        __loader__=spec.loader,
        __package__=spec.parent,
        __doc__=None,
        __cached__=spec.cached,
    )
    return code, namespace


def _with_room(function):
    """The same function with a frame of a megabyte, of which it uses nothing and the system gives nothing. From 3.11 on Python lays frames into blocks of 16 KB
    that it takes from the system and gives back; where a program's calls lie across the end of a block, every call does both. Our own frames below the
    program's would move that end, and importing the large libraries then took 18,000 blocks instead of 5,000. A block that is made for a frame of this
    size is twice as large: the program's frames find room in the other half."""
    if sys.version_info >= (3, 11):
        function.__code__ = function.__code__.replace(co_stacksize=_SLOTS)
    return function


_SLOTS = (1 << 20) // 8  # of a pointer each


@_with_room
def _run(agent, code, namespace):
    if isinstance(code, Exception):  # the program's own syntax error
        if agent is not None:
            agent.endings.note("exception", 1, code)
        sys.excepthook(type(code), code.with_traceback(None), None)
        sys.exit(1)
    run = sys.modules["builtins"].exec
    if agent is not None:
        code = agent.begin(code, namespace)
    try:
        run(code, namespace)
    except SystemExit as error:
        if agent is not None:
            agent.endings.note_system_exit(error)
        raise
    except BaseException as error:
        if agent is not None and agent.endings.status is not None and isinstance(error, KeyboardInterrupt):
            agent.endings.note(
                "terminated", agent.endings.status, error
            )  # how the form without the extension ends a running program
            sys.exit(agent.endings.status)
        error.__traceback__ = _without_ours(error.__traceback__)
        if agent is not None:
            agent.endings.note("exception", 130 if isinstance(error, KeyboardInterrupt) else 1, error)
            agent.endings.post_mortem(error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)
    if agent is not None:
        agent.endings.note("finished", 0, None)


def _without_ours(traceback):
    while traceback is not None and sources.is_own(traceback.tb_frame.f_code.co_filename):
        traceback = traceback.tb_next
    return traceback
