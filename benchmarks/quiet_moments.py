"""What other programs took of the machine while something was measured: on a shared machine only quiet moments count."""

import os
import pathlib
import time

TICK = 1 / os.sysconf("SC_CLK_TCK")


def processes():
    """{pid: (parent, seconds of processor time)} of everything that runs."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        found[int(entry.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) * TICK)
    return found


class QuietMoments:
    """`own` are the processes that belong to the measurement, beside this one; their children do too."""

    def __init__(self, *own, most_share=0.05):
        self.own, self.most_share = {os.getpid(), *own}, most_share
        self.kept = self.dropped = 0

    def is_own(self, pid, all_of_them):
        while pid > 1:
            if pid in self.own:
                return True
            pid = all_of_them.get(pid, (0, 0))[0]
        return False

    def begin(self):
        self.before, self.began = processes(), time.monotonic()

    def was_quiet(self):
        """Whether others took less than their share since begin(); counted either way."""
        wall, now = time.monotonic() - self.began, processes()
        others = sum(
            secs - self.before.get(pid, (0, 0))[1] for pid, (_, secs) in now.items() if not self.is_own(pid, now)
        )
        quiet = others <= max(TICK, self.most_share * wall * os.cpu_count())
        self.kept, self.dropped = self.kept + quiet, self.dropped + (not quiet)
        return quiet

    def words(self):
        return f"{self.kept} quiet moments; {self.dropped} in which other programs ran left out"
