"""Which rank this process is, where its framework knows better than the environment."""

import os
import sys


def _initialised():
    """torch.distributed's rank and world; None before init_process_group, or where there is none."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        return distributed.get_rank(), distributed.get_world_size()
    except Exception:  # half imported: the environment has to do
        return None


_of_the_parent = None  # what a forked worker has inherited: the rank is its parent's


def _note_the_parents():
    global _of_the_parent
    _of_the_parent = _initialised()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_the_parents)


def place():
    """(rank, world) of a process that has joined a group itself."""
    found = _initialised()
    return None if found is None or found[1] < 2 or found == _of_the_parent else found
