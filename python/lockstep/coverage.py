"""Which files, functions and lines of a program ran, and how often: started by sitecustomize for `lockstep coverage`, written when the process ends."""

import json
import os
import sys

from .written_at_exit import WrittenAtExit

_TOOL = 4  # of sys.monitoring: 0 to 3 and 5 have names
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Coverage(WrittenAtExit):
    def __init__(self, native, folder, lines):
        super().__init__(folder, "what ran is not known")
        self.native, self.lines = native, lines
        self.started_in = os.getcwd()

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
        self.watch_the_end()
        self.native.cover(True, self.lines)

    def forget(self):
        self.native.forget_covered()

    def write_into(self, file):
        self.native.cover(False, False)
        head = {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "cwd": self.started_in,
            "ours": _OURS,
            "lines": self.lines,
            "modules": _modules(),
            **_library_folders(),
        }
        file.write(json.dumps(head) + "\n")
        file.flush()
        self.native.write_covered(file.fileno(), self.lines)


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
    return {
        "python_library": [paths["stdlib"], paths["platstdlib"]],
        "packages": sorted(
            {
                paths["purelib"],
                paths["platlib"],
                *(p for p in sys.path if p.endswith(("site-packages", "dist-packages"))),
            }
        ),
    }


def start(folder, lines):
    from .agent import native

    native.load(os.environ.get("LOCKSTEP_AGENT_NATIVE"))
    if native.module is None:
        raise RuntimeError(native.reason)
    _Coverage(native.module, folder, lines).start()
