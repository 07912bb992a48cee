"""A mistake as a porter makes it: one change in the port's own source, and what a true answer would be.

Stages and causes are written down before anything is run. `blind_a` may be seen by whoever mends the rules; `blind_b` is scored
once, with the rules as they are at the end.
"""

from __future__ import annotations

import dataclasses

Change = tuple[str, str, str]  # file inside the package, text that is there once, what stands there instead


@dataclasses.dataclass(frozen=True)
class Mistake:
    id: str
    half: str  # blind_a or blind_b
    changes: tuple[Change, ...]
    stage: tuple[str, ...]  # globs of "role:name" in the reference's names, any of which is right
    causes: tuple[str, ...]  # ids of docs/diagnosis.md, any of which is right
    checkpoint: str  # the hand-named checkpoint that shows it first


def at(*names: str) -> tuple[str, ...]:
    """What goes into these modules or comes out of them."""
    return tuple(glob for name in names for glob in (f"*:{name}", f"input:{name}.*", f"output:{name}.*"))


def change(file: str, old: str, new: str) -> tuple[Change, ...]:
    return ((file, old, new),)
