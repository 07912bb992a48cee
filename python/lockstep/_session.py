"""The one open recording of this process: opened on the first tensor, closed when the program ends."""

import atexit
import contextlib
import ctypes
import itertools
import json
import os
import sys
import threading

from . import _library, _model_files, _ranks, _views
from ._library import CPlace, CTag, encode


def asked_for():
    """Whether the environment asks for recording or substituting."""
    record = os.environ.get("LOCKSTEP_RECORD", "")
    if record not in ("", "0", "false", "no") or (record == "" and os.environ.get("LOCKSTEP_RUN")):
        return True
    return bool(os.environ.get("LOCKSTEP_REFERENCE") and os.environ.get("LOCKSTEP_SUBSTITUTE"))


def warn_once(topic, message, _given=set()):
    """One line on stderr per topic; recording must never be noisy, and never raise."""
    if topic in _given:
        return
    _given.add(topic)
    try:
        sys.stderr.write(f"lockstep: {message}\n")
    except Exception:
        pass


class Session:
    """An open run. All methods swallow what goes wrong: the host comes first."""

    def __init__(self, handle):
        self._library = _library.library()
        self._handle = handle
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.id = self._library.lockstep_run_id(handle).decode()  # "" when nothing is recorded
        self.path = os.fsdecode(self._library.lockstep_run_path(handle))
        self._encoded = {}  # names and places repeat: each is encoded once
        self._calls = {}  # name, step and tags → the hits of its calls
        self.described = set()  # fields of run.json that somebody has filled in

    def _text(self, text):
        if text is None:
            return None
        encoded = self._encoded.get(text)
        if encoded is None:
            if len(self._encoded) > 100_000:
                self._encoded.clear()
            encoded = self._encoded[text] = encode(text)
        return encoded

    def wants(self, name):
        return bool(self._handle and self._library.lockstep_wants(self._handle, self._text(name)))

    def begin_call(self, name, step, tags):
        """The hit of all that goes into this call and comes out of it."""
        key = (name, step, *tags.items()) if tags else (name, step)
        count = self._calls.get(key)
        if count is None:
            count = self._calls.setdefault(key, itertools.count())
        return next(count)  # no lock, which a fork could leave taken: each of these steps is whole in CPython

    def offer(self, name, value, *, role="checkpoint", step=None, tags=None, where=None, hit=-1):
        """Records one tensor; returns it, or the reference's value in its place. `hit`: its call's; -1: counted."""
        try:
            if not self.wants(name):
                return value
            view = _views.view_of(value)
            pairs = [(self._text(key), encode(item)) for key, item in tags.items()] if tags else ()
            c_tags = (CTag * len(pairs))(*[CTag(*pair) for pair in pairs]) if pairs else None
            step = -1 if step is None else int(step)
            if step >= 2**31:
                raise ValueError(f"step {step} is beyond 32 bits")
            file, line, function = where or (None, 0, None)
            place = CPlace(
                self._text(name),
                max(step, -1),
                _library.ROLES[role],
                ctypes.cast(c_tags, ctypes.POINTER(CTag)) if pairs else None,
                len(pairs),
                self._text(file),
                line,
                self._text(function),
            )
            c_view, keep = _library.c_view(view)
            replacement = ctypes.c_void_p()
            status = self._library.lockstep_checkpoint_of_call(
                self._handle, ctypes.byref(place), hit, ctypes.byref(c_view), ctypes.byref(replacement)
            )
            del keep
            if status == _library.REPLACED:
                return _views.restored(value, *_library.tensor_parts(replacement))
            _library.check(status)
        except _views.Unreadable as error:
            warn_once(("unreadable", str(error)), f"{name} is not recorded: {error}")
        except Exception as error:
            warn_once(("offer", type(error)), f"{name} is not recorded: {error}")
        return value

    def describe(self, details):
        try:
            self.described.update(key for key, value in details.items() if value is not None)
            text = json.dumps(details, default=str)
            _library.check(self._library.lockstep_describe(self._handle, encode(text)))
        except Exception as error:
            warn_once("describe", f"run.json was not updated: {error}")

    def weight(self, module, name, value):
        """Notes which weight a module holds: its name there, shape, statistics and checksum."""
        try:
            c_view, keep = _library.c_view(_views.view_of(value))
            _library.check(
                self._library.lockstep_weight(self._handle, self._text(module), self._text(name), ctypes.byref(c_view))
            )
            del keep
        except Exception as error:
            warn_once(("weight", type(error)), f"the weight {module}.{name} is not noted: {error}")

    def flush(self):
        if self._handle:
            self._library.lockstep_flush(self._handle)

    def close(self, status="finished"):
        with self._lock:
            handle, self._handle = self._handle, None
        if handle:
            self._library.lockstep_close(handle, encode(status))


def versions():
    """Of the libraries the program has loaded; read from their modules, nothing is imported."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "diffusers", "transformers", "mlx", "numpy", "jax", "safetensors"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    core = sys.modules.get("mlx.core")
    if core is not None and isinstance(getattr(core, "__version__", None), str):
        found["mlx"] = core.__version__
    return found


def program_name():
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None) or (
        sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    )
    return os.path.splitext(os.path.basename(file))[0] or "python"


_open_lock = threading.Lock()
_session = None
_failed = False


def current():
    """The open session, opened now if the environment asks for one; None when recording is off or impossible."""
    global _session, _failed
    if _session is not None or _failed:
        return _session
    with _open_lock:
        if _session is None and not _failed:
            try:
                _session = _open_from_environment()
            except Exception as error:
                warn_once("open", f"nothing is recorded: {error}")
            _failed = _session is None
    return _session


_born = os.getpid()  # a worker that the program forks has another


@contextlib.contextmanager
def _as_a_child():
    """A worker that is forked before the program has recorded anything must not take the run that is the program's."""
    before = {name: os.environ.pop(name, None) for name in ("LOCKSTEP_RUN", "LOCKSTEP_RECORD")}
    name = before["LOCKSTEP_RECORD"] or ""
    if name or before["LOCKSTEP_RUN"]:
        os.environ["LOCKSTEP_RECORD"] = f"{program_name() if name in ('', '1', 'true') else name}.child"
    try:
        yield
    finally:
        os.environ.pop("LOCKSTEP_RECORD", None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextlib.contextmanager
def _as_rank(rank, world):
    """A process that has joined a group is a rank of the program, however it was started."""
    names = ("LOCKSTEP_RANK", "LOCKSTEP_WORLD")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(zip(names, (str(rank), str(world))))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _role_in_the_program():
    place = _ranks.place()
    if place is not None:
        return _as_rank(*place)
    return contextlib.nullcontext() if os.getpid() == _born else _as_a_child()


def _open_from_environment():
    handle = ctypes.c_void_p()
    with _role_in_the_program():
        _library.check(_library.library().lockstep_open_from_environment(encode(program_name()), ctypes.byref(handle)))
    if not handle:
        return None
    session = Session(handle)
    _close_at_exit(session)
    session.describe({"producer": {"name": "lockstep.python", "language": "python"}, "versions": versions()})
    return session


def _unless_described(session, details):
    """The model's folder is a guess from its files: what the program or its pipeline has said counts more."""
    return {key: value for key, value in details.items() if key not in session.described}


def open_run(name, **settings):
    """Opens a run from code instead of from the environment."""
    global _session
    text = {key: encode(value) for key, value in settings.items() if isinstance(value, (str, os.PathLike))}
    options = _library.COptions(struct_bytes=ctypes.sizeof(_library.COptions), name=encode(name), **text)
    for key, value in settings.items():
        if key not in text and value is not None:
            setattr(options, key, int(value))
    handle = ctypes.c_void_p()
    _library.check(_library.library().lockstep_open(ctypes.byref(options), ctypes.byref(handle)))
    session = Session(handle)
    _close_at_exit(session)
    session.describe({"producer": {"name": "lockstep.python", "language": "python"}, "versions": versions()})
    with _open_lock:
        previous, _session = _session, session
    return session, previous


def restore(previous):
    global _session
    with _open_lock:
        _session = previous


_exit_status = "finished"


def _note_exception(*_):
    global _exit_status
    _exit_status = "failed"


def _close_at_exit(session):
    hook = sys.excepthook

    def excepthook(*details):
        _note_exception()
        hook(*details)

    sys.excepthook = excepthook

    def close():
        if os.getpid() == session._pid:
            session.describe(
                {"versions": versions(), **_unless_described(session, _model_files.details())}
            )  # imported, read since
            session.close(_exit_status)

    atexit.register(close)

    def close_worker():
        # An exception that ends a worker is shown by multiprocessing, not by excepthook; it is on its way out just now.
        error = sys.exc_info()[1]
        if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
            _note_exception()
        close()

    # A worker of multiprocessing ends without atexit, in a way of its own.
    workers, processes = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    started = processes is not None and processes.parent_process() is not None
    if workers is not None and (os.getpid() != _born or started):
        workers.Finalize(None, close_worker, exitpriority=0)
