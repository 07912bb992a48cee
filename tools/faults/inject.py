#!/usr/bin/env python3
"""Fails every system call of the program once, one at a time, and looks at what is left.

For each command and each kind of call, the n-th call fails, for n = 1, 2, 3, ... until the command gets through without
reaching it. Whatever fails, the command does what it does otherwise (the same status, output and files, to the byte but
for times and ids) or it ends with its status for failures, with words, and every file is as before or as after. Where
the usual status stands for what the program itself did, as in `record`, the words are enough. Never a signal, a hang, a half-written file, a lost record, a wrong verdict or another status.

    tools/faults/inject.py [--sample N] [--seed S] [--only COMMAND] [--kind KIND] [--from N] [--jobs N] [--part K/N]
                           [--places [--known FILE]] [--lasting] [--trace]

--sample draws N points of all, by seed. --jobs: how many are tried at a time.
--part 1/4 tries every fourth piece of the work, from the first on, so that it can be done in four sittings. --places fails, of
allocations from one place of the program (a stack of ten calls), the first alone, whichever command it is of; commands that
take a second always fail the first of their own alone. --known FILE leaves out the places in that file and adds those that were
tried, for the next sitting. --lasting fails the n-th call and all after it. --trace shows where a
call came from that ended badly.
"""

import argparse
import array
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from commands import COMMANDS, WAIT_SECS, inputs, plain, steady  # noqa: E402
from fork_server import KINDS, ForkServer, build_shim  # noqa: E402

# What the words for a failure hold: the system's own, or the program's for memory and threads.
WORDS = {
    "allocate": "memory|bytes|threads|Cannot allocate",
    "thread": "threads|Resource temporarily unavailable",
    "open": "Too many open files|threads|no service|service",
    "read": "Input/output error",
    "write": "No space left|stdout cannot be written",
    "sync": "Input/output error",
    "rename": "Input/output error",
    "map": "Cannot allocate memory|memory|bytes to give",
    "fork": "Resource temporarily unavailable",
    "socket": "Too many open files|Address already in use|refused|reset|service|answer",
    "folder": "Read-only file system",
}


def state_of(folder):
    """Every file, link and folder: its bytes, its target, or nothing."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            key = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[key] = "-> " + os.readlink(path)
            elif os.path.isdir(path):
                found[key] = None
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    found[key] = file.read()
    return found


def restore(folder, state):
    now = state_of(folder)
    for key in sorted(set(now) - set(state), reverse=True):
        path = folder / key
        path.rmdir() if now[key] is None else path.unlink()
    for key in sorted(state):
        if key in now and now[key] == state[key]:
            continue
        if isinstance(now.get(key), str):
            (folder / key).unlink()
        if state[key] is None:
            (folder / key).mkdir()
        elif isinstance(state[key], str):
            (folder / key).symlink_to(state[key].removeprefix("-> "))
        else:
            (folder / key).write_bytes(state[key])


def comparable(key, content):
    """A file under a steady name with steady content. Of what goes by the clock only the presence is compared."""
    if content is None or isinstance(content, str):
        return steady(content or "folder")
    if key.endswith((".log", "lock", "serving", ".pid")):
        return b""
    if b"\0" in content[:4096]:
        return content
    return steady(content.decode("utf-8", "replace"))


def as_compared(state):
    """Of several runs that one command made, which have no names of their own, the contents in an order of their own."""
    contents = collections.defaultdict(list)
    for key, content in state.items():
        contents[steady(key)].append(comparable(key, content))
    return {key: of[0] if len(of) == 1 else sorted(of, key=repr) for key, of in contents.items()}


PIECE_SECS = 20


class Unsteady(Exception):
    """A command that cannot be judged, because it does not do the same each time where nothing fails."""


class Bench:
    """One command in a folder of its own, which is put back after each run."""

    def __init__(self, command, shim, original, scratch):
        self.command = command
        self.folder = scratch / command.name.replace(" ", "_")
        self.out = self.folder.with_suffix(".out")
        self.shim = shim
        shutil.copytree(original, self.folder)
        if command.prepare:
            command.prepare(self.folder)
        self.before = state_of(self.folder)
        self.known = as_compared(self.before)
        self.server = ForkServer(shim, command.words, self.folder, self.out)
        if command.stdin:
            shutil.copy(original / command.stdin, self.out / "stdin")

    def run(self, kind, which, most_secs=WAIT_SECS):
        during = (lambda pid, ended: self.command.during(self, pid, ended)) if self.command.during else None
        outcome = self.server.run(kind, which, most_secs, during)
        if self.command.after:
            self.command.after(self)
        made = state_of(self.folder)
        return outcome, {key: made[key] for key in made if not key.startswith(self.command.beside or "\0")}

    def prepare(self):
        """What the command does where nothing fails: three times the same, or what is compared is not what it should be."""
        began = time.monotonic()
        seen = []
        for _ in range(3):
            outcome, made = self.run("none", 0, 60 * WAIT_SECS)
            restore(self.folder, self.before)
            if outcome.status != self.command.status or outcome.wrong:
                raise Unsteady(
                    f"{self.command.name}: ends with {outcome.status} where nothing fails: {outcome.wrong} {outcome.stderr}"
                )
            seen.append((steady(outcome.stdout), as_compared(made)))
        if seen[1:] != seen[:-1]:
            changed = [key for key in set(seen[0][1]) | set(seen[-1][1]) if seen[0][1].get(key) != seen[-1][1].get(key)]
            raise Unsteady(
                f"{self.command.name}: its result is another each time: {changed}\n{seen[0][0]}\n{seen[-1][0]}"
            )
        self.usual_secs = (time.monotonic() - began) / 3
        self.usual_out, self.usual_made = seen[0]
        self.calls = outcome.calls

    def problem(self, kind, which):
        """(whether the call was reached, what is wrong or None)"""
        outcome, made = self.run(kind, which, WAIT_SECS + 10 * self.usual_secs)
        try:
            wrong = outcome.wrong or self.wrong_end(kind, outcome) or self.wrong_files(kind, outcome, made)
        finally:
            restore(self.folder, self.before)
        return (
            outcome.hit,
            wrong and f"{self.command.name}, {kind} {which}: {wrong}\n    {outcome.stderr.strip()[-2000:]}",
        )

    def wrong_end(self, kind, outcome):
        command, status = self.command, outcome.status
        if status is None:
            return "hangs"
        if status < 0:
            return f"signal {-status}"
        if not outcome.hit and status != command.status:
            return f"status {status} where nothing failed"
        if status == command.status:
            if (
                steady(outcome.stdout) == self.usual_out
                or self.says_less(outcome.stdout)
                or self.answers(kind, outcome.stdout)
            ):
                return None
            return f"another result under the usual status: {outcome.stdout[-600:]}"
        if status != command.own_failure:
            return f"status {status}"
        # A failed write may be that of the words themselves.
        if kind != "write" and not re.search(
            r"^lockstep: \[[^\]]+\] .*(" + WORDS[kind] + ")", outcome.stderr, re.MULTILINE
        ):
            return "a failure without words for it"
        if "--json" in command.words and kind != "write" and outcome.stdout:
            try:
                if "error" not in json.loads(outcome.stdout):
                    return "a failure without an error in its JSON"
            except ValueError:
                return f"half a JSON document: {outcome.stdout[-200:]}"
        return None

    def answers(self, kind, stdout):
        """Whether each line is the usual one, or the same call's failure with words for it."""
        lines, usual = stdout.splitlines(), self.usual_out.splitlines()
        if not self.command.answers or len(lines) != len(usual):
            return False
        for line, expected in zip(lines, usual):
            if steady(line) == expected:
                continue
            said = json.loads(line)
            failed = "error" in said or said.get("result", {}).get("isError")
            if (
                not failed
                or said["id"] != json.loads(expected.replace(":N", ":0"))["id"]
                or not re.search(WORDS[kind], line)
            ):
                return False
        return True

    def says_less(self, stdout):
        if not self.command.less:
            return False
        said, usual = (
            json.loads(steady(stdout).replace(": N", ": 0").replace(":N", ":0")),
            json.loads(self.usual_out.replace(": N", ": 0").replace(":N", ":0")),
        )
        return all(said.get(key) == usual[key] or key in self.command.less for key in usual)

    def wrong_files(self, kind, outcome, made):
        """Whether a file is neither as before nor as usual; where the status is the usual one, as usual, or words say why not."""
        said = re.search("^lockstep: .*(" + WORDS[kind] + ")", outcome.stderr, re.MULTILINE)
        now = as_compared(made)
        if outcome.status == self.command.status and now == self.usual_made:
            return None
        runs = {key.split("/")[2] for key in made if key.startswith(("home/runs/", "home/archive/"))} - {"good"}
        if self.command.records and runs:
            wrong = self.wrong_runs(outcome, runs)
            if wrong:
                return wrong
        for key in sorted(set(now) | set(self.known) | set(self.usual_made)):
            if self.command.records and "/ID" in key:
                continue  # a run, looked at as such
            as_usual = now.get(key, b"none") == self.usual_made.get(key, b"none")
            as_before = now.get(key, b"none") == self.known.get(key, b"none")
            if outcome.status == self.command.status and not as_usual and not said:
                return f"{key} is not as usual under the usual status"
            if not as_usual and not as_before:
                return f"{key} is left behind, or half written"
        return None

    def wrong_runs(self, outcome, runs):
        for run in sorted(runs):
            shown = plain(self.folder, "--json", "runs", "show", run, "--verify")
            if shown.returncode != 0:
                return f"run {run} is not whole: {shown.returncode} {shown.stdout[-300:]} {shown.stderr[-300:]}"
            said = json.loads(shown.stdout)["run"]["status"]
            if said == "running":
                return f"run {run} counts as running"
            if said == "finished" and outcome.status not in (self.command.status, self.command.own_failure):
                return f"run {run} counts as finished"
        return None

    def places(self, kind):
        """Each place, with the number of the first call from it."""
        self.run(kind, "places", 60 * WAIT_SECS)
        restore(self.folder, self.before)
        seen = array.array("I")
        data = (self.out / "places").read_bytes()
        seen.frombytes(data[: len(data) // 4 * 4])
        first = {}
        for call, place in enumerate(seen, 1):
            first.setdefault(place, call)
        return first

    def plan(self, kinds, places, begin):
        """The calls of each kind, with their places where they go by place; and how many make a piece of work."""
        calls = {}
        for kind in kinds:
            if kind == "allocate" and (places or self.command.slow):
                calls[kind] = {place: call for place, call in self.places(kind).items() if call >= begin}
            else:
                calls[kind] = [call for call in range(1, self.calls[kind] + 1) if call >= begin]
        return calls, max(1, int(PIECE_SECS / self.usual_secs))

    def try_piece(self, kind, numbers, goes_on, begin, lasting):
        tried, found = 0, []

        def hits(n):
            nonlocal tried
            hit, wrong = self.problem(kind, f"{n}+" if lasting else n)
            tried += hit
            if wrong:
                found.append(wrong)
            return hit

        for n in numbers:
            hits(n)
        n = max([begin - 1, *numbers]) + 1
        while goes_on and hits(n):  # a failure may lead to calls that there were not before
            n += 1
        return tried, found

    def close(self):
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.out, ignore_errors=True)


def sampled(make, kinds, count, chosen):
    """`count` points: a command and a kind that it calls, then a place among the calls, early ones more often than late ones."""
    tried, found, benches = 0, [], {}
    quick = [command for command in COMMANDS if not command.slow]
    while tried < count:
        command = chosen.choice(quick)
        if command.name not in benches:
            benches[command.name] = make(command)
            benches[command.name].prepare()
        bench = benches[command.name]
        kind = chosen.choice([kind for kind in kinds if bench.calls[kind]])
        hit, wrong = bench.problem(kind, int(bench.calls[kind] ** chosen.random()))
        tried += 1
        found += [wrong] if wrong else []
    for bench in benches.values():
        bench.close()
    return tried, found


class Worker:
    """What a process needs to try points: a bench for every command that it has met."""

    def __init__(self, shim, original, scratch):
        self.shim, self.original = shim, original
        self.scratch = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.benches = {}

    def bench(self, command):
        if command.name not in self.benches:
            bench = Bench(command, self.shim, self.original, self.scratch)
            try:
                bench.prepare()
            except Unsteady:
                bench.close()
                raise
            self.benches[command.name] = bench
        return self.benches[command.name]


def begin_worker(*arguments):
    global worker
    worker = Worker(*arguments)


def plan_of(number, kinds, places, begin):
    try:
        return worker.bench(COMMANDS[number]).plan(kinds, places, begin)
    except Unsteady as why:
        return str(why)


def tried_piece(number, piece, *how):
    try:
        return worker.bench(COMMANDS[number]).try_piece(*piece, *how)
    except Unsteady as why:
        return 0, [str(why)]


def pieces_of(plan, known, part, parts):
    """Of this part of the work, without places that are known, which become so: (kind, numbers of calls, whether it goes on behind
    them until the command gets through)."""
    pieces = []
    for kind, calls in plan[0].items():
        by_place = isinstance(calls, dict)
        places = (
            {call: place for place, call in calls.items() if known is None or place not in known} if by_place else {}
        )
        numbers = sorted(places) if by_place else calls
        cut = [numbers[at : at + plan[1]] for at in range(0, len(numbers), plan[1])] or [[]]
        pieces += [
            (kind, piece, piece is cut[-1] and not by_place, [places[call] for call in piece if by_place])
            for piece in cut
        ]
    pieces = pieces[part - 1 :: parts]
    for piece in pieces if known is not None else []:
        known.update(piece[3])
    return [piece[:3] for piece in pieces]


def whole(arguments, kinds, begun_with):
    """Every point of every command that was asked for: (how many, what is wrong)."""
    numbers = [
        i for i, command in enumerate(COMMANDS) if not arguments.only or command.name in arguments.only.split(",")
    ]
    part, parts = map(int, arguments.part.split("/"))
    points, found, left = (
        collections.defaultdict(collections.Counter),
        collections.defaultdict(list),
        collections.Counter(),
    )
    # The quick ones first: what places they share with others is tried with them.
    numbers.sort(key=lambda number: COMMANDS[number].slow)
    listed = pathlib.Path(arguments.known) if arguments.known else None
    known = set(json.loads(listed.read_text()) if listed and listed.exists() else ()) if arguments.places else None
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, initializer=begin_worker, initargs=begun_with) as pool:
        pending = {}
        for number, plan in zip(
            numbers,
            pool.map(plan_of, numbers, *([one] * len(numbers) for one in (kinds, arguments.places, arguments.begin))),
        ):
            if isinstance(plan, str):
                print(plan, flush=True)
                found[COMMANDS[number].name].append(plan)
                continue
            for piece in pieces_of(plan, known, part, parts):
                pending[pool.submit(tried_piece, number, piece, arguments.begin, arguments.lasting)] = (
                    COMMANDS[number].name,
                    piece[0],
                )
                left[COMMANDS[number].name] += 1
        for one in concurrent.futures.as_completed(pending):
            name, kind = pending[one]
            tried, wrong = one.result()
            left[name] -= 1
            points[name][kind] += tried
            found[name] += wrong
            for what in wrong:
                print(what, flush=True)
            if left[name] == 0:
                by_kind = ", ".join(f"{kind} {count}" for kind, count in points[name].items() if count)
                print(f"{name}: {points[name].total()} points, {len(found[name])} wrong ({by_kind})", flush=True)
    if listed and known:
        listed.write_text(json.dumps(sorted(known)))
    return sum(one.total() for one in points.values()), [what for one in found.values() for what in one]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--from", type=int, default=1, dest="begin")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--places", action="store_true")
    parser.add_argument("--known", default="")
    parser.add_argument("--lasting", action="store_true")
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if not arguments.kind or kind in arguments.kind.split(",")]
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    if arguments.trace:
        os.environ["LOCKSTEP_FAULT_TRACE"] = "1"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        temporary = pathlib.Path(temporary)
        shim = build_shim(temporary)
        original = temporary / "inputs"
        original.mkdir()
        inputs(original)
        if arguments.sample:
            print(f"seed {seed}", flush=True)
            make = lambda command: Bench(command, shim, original, temporary)  # noqa: E731
            tried, found = sampled(make, kinds, arguments.sample, random.Random(seed))
            for wrong in found:
                print(wrong)
        else:
            tried, found = whole(arguments, kinds, (shim, original, temporary))
    print(f"{tried} fault points, {len(found)} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
