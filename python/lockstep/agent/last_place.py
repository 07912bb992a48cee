"""Where the program was last seen, in files that outlive it: for programs that are killed, or crash in C code."""

import os
import sys
import time

from . import sources, stops


class LastPlace:
    def __init__(self, folder, dumps):
        self._folder, self._dumps = folder, dumps
        self._file = None
        self._written = None
        self._size = 0
        self._crash = None
        if folder:
            self._enable_crash_report()

    def _enable_crash_report(self):
        try:
            import faulthandler

            if faulthandler.is_enabled():
                return
            self._crash = os.open(
                os.path.join(self._folder, "crash.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            faulthandler.enable(self._crash)
        except (ImportError, OSError):
            pass

    def note(self):
        """Where the main thread is now."""
        if self._folder:
            self._write(sys._current_frames().get(stops.main_thread()))

    def _write(self, frame):
        stack = []
        while frame is not None and len(stack) < 10:
            if not sources.is_machinery(frame.f_code.co_filename):
                stack.append(
                    {
                        "file": sources.absolute(frame.f_code.co_filename),
                        "line": frame.f_lineno or 0,
                        "function": sources.qualified_name(frame.f_code),
                    }
                )
            frame = frame.f_back
        if not stack or stack == self._written:
            return
        self._written = stack
        data = self._dumps({"time": time.time(), "location": stack[0], "stack": stack})
        try:
            if self._file is None:
                self._file = os.open(
                    os.path.join(self._folder, "last.json"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            self._size = max(self._size, len(data))
            os.pwrite(
                self._file, data.ljust(self._size), 0
            )  # whole at any moment: one write, and blanks over what was longer
        except OSError:
            pass
