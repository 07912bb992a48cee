"""Which files, functions and lines of a program ran, and how often: started by sitecustomize for `lockstep coverage`, written when the process ends."""

import atexit
import json
import os
import sys
import types

_TOOL = 4  # of sys.monitoring: 0 to 3 and 5 have names


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
            files = self._files()
            os.makedirs(self.folder, exist_ok=True)
            path = os.path.join(self.folder, f"{os.getpid()}.json")
            document = {"pid": os.getpid(), "python": sys.version.split()[0], "prefixes": _library_folders(), "lines": self.lines, "files": files}
            with open(path + ".tmp", "w", encoding="utf-8", errors="surrogatepass") as file:
                json.dump(document, file)
            os.replace(path + ".tmp", path)
        except Exception as error:
            sys.stderr.write(f"lockstep: what ran is not known: {error}\n")

    def _files(self):
        modules = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str):
                modules.setdefault(self._absolute(path), name)
        files = {}
        ran = self.native.covered()
        known = {id(code) for code, _, _ in ran}
        for code, calls, lines in ran:
            if calls or lines:
                self._add(files, modules, code, calls, lines)
            # What a module defines and nothing has called is told too: that is what a port can leave out.
            if code.co_name == "<module>":
                for inner in _functions_in(code):
                    if id(inner) not in known:
                        self._add(files, modules, inner, 0, [])
        return list(files.values())

    def _add(self, files, modules, code, calls, lines):
        name = code.co_filename
        if name.startswith("<") or code.co_name.startswith("<") and code.co_name != "<module>":
            return  # made at run time; lambdas and comprehensions belong to their function
        path = self._absolute(name)
        entry = files.setdefault(path, {"path": path, "module": modules.get(path, ""), "functions": []})
        function = {"name": getattr(code, "co_qualname", code.co_name), "line": code.co_firstlineno, "calls": calls}
        if self.lines:
            function["ran"] = lines
            function["all"] = sorted({line for _, _, line in code.co_lines() if line})
        entry["functions"].append(function)

    def _absolute(self, path):
        return os.path.normpath(os.path.join(self.started_in, path))


def _functions_in(code):
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _functions_in(constant)


def _library_folders():
    """Where Python's own library and installed packages lie."""
    import sysconfig

    paths = sysconfig.get_paths()
    return {"python": [paths["stdlib"], paths["platstdlib"]], "packages": sorted({paths["purelib"], paths["platlib"], *(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))})}


def start(folder, lines):
    from .agent import native

    native.load(os.environ.get("LOCKSTEP_AGENT_NATIVE"))
    if native.module is None:
        raise RuntimeError(native.reason)
    _Coverage(native.module, folder, lines).start()
