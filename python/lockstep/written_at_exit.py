"""What a process knows of itself, written once when it ends: by the end of the program, by os._exit, or by each child of a fork."""

import atexit
import os
import sys


class WrittenAtExit:
    """A file `PID.jsonl` in `folder`, there whole or not at all. `lost` says what a failure means; it is not the program's trouble."""

    def __init__(self, folder, lost):
        self.folder, self._lost = folder, lost
        self._written = False

    def watch_the_end(self):
        atexit.register(self.write)
        os.register_at_fork(after_in_child=self._in_child)
        self._end_by_exit = os._exit
        os._exit = self._exit  # children of multiprocessing end so, and would take what they know along

    def forget(self):
        """In the child of a fork: what its parent did is the parent's."""
        raise NotImplementedError

    def write_into(self, file):
        raise NotImplementedError

    def _in_child(self):
        self._written = False
        self.forget()

    def _exit(self, status):
        self.write()
        self._end_by_exit(status)

    def write(self):
        if self._written:
            return
        self._written = True
        try:
            os.makedirs(self.folder, exist_ok=True)
            path = os.path.join(self.folder, f"{os.getpid()}.jsonl")
            with open(path + ".tmp", "w", encoding="utf-8") as file:
                self.write_into(file)
            os.replace(path + ".tmp", path)
        except Exception as error:
            sys.stderr.write(f"lockstep: {self._lost}: {error}\n")
