"""Which files, functions and lines of a program ran, and how often: started by sitecustomize for `lockstep coverage`, written when the process ends."""

import atexit
import json
import os
import sys

_TOOL = 4  # of sys.monitoring: 0 to 3 and 5 have names
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Coverage:
    def __init__(self, native, folder, lines):
        self.native, self.folder, self.lines = native, folder, lines
        self.started_in = os.getcwd()
        self.written = False

    def start(self):
        monitored = self.lines and sys.version_info >= (3, 12)
        if monitored:
            monitoring = sys.monitoring
            monitoring.use_tool_id(_TOOL, "lockstep coverage")
            self.native.set_monitoring_disable(monitoring.DISABLE)
            monitoring.register_callback(_TOOL, monitoring.events.LINE, self.native.line_ran)
            monitoring.set_events(_TOOL, monitoring.events.LINE)
        elif self.lines:
            import threading

            threading.settrace(self.native.cover_this_thread)
        atexit.register(self.write)
        os.register_at_fork(after_in_child=self._in_child)
        self._end_by_exit = os._exit
        os._exit = self._exit  # children of multiprocessing end so, and would take their counts along
        self.native.cover(True, self.lines)

    def _in_child(self):
        self.written = False
        self.native.forget_covered()

    def _exit(self, status):
        self.write()
        self._end_by_exit(status)

    def write(self):
        """Whatever goes wrong here is not the program's trouble."""
        if self.written:
            return
        self.written = True
        try:
            self.native.cover(False, False)
            os.makedirs(self.folder, exist_ok=True)
            path = os.path.join(self.folder, f"{os.getpid()}.jsonl")
            head = {"pid": os.getpid(), "python": sys.version.split()[0], "cwd": self.started_in, "ours": _OURS, "lines": self.lines, "modules": _modules(), **_library_folders()}
            with open(path + ".tmp", "w", encoding="utf-8") as file:
                file.write(json.dumps(head) + "\n")
                file.flush()
                self.native.write_covered(file.fileno(), self.lines)
            os.replace(path + ".tmp", path)
        except Exception as error:
            sys.stderr.write(f"lockstep: what ran is not known: {error}\n")


def _modules():
    """File → the name of its module."""
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            found.setdefault(path, name)
    return found


def _library_folders():
    """Where Python's own library and installed packages lie."""
    import sysconfig

    paths = sysconfig.get_paths()
    return {"python_library": [paths["stdlib"], paths["platstdlib"]], "packages": sorted({paths["purelib"], paths["platlib"], *(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))})}


def start(folder, lines):
    from .agent import native

    native.load(os.environ.get("LOCKSTEP_AGENT_NATIVE"))
    if native.module is None:
        raise RuntimeError(native.reason)
    _Coverage(native.module, folder, lines).start()
