"""Fingerprints of values: sums that survive any rearrangement, made by the capture library while a value is at hand."""

import ctypes
import math

from .._library import CTotals, c_view, library


def sums_of(view):
    """{"sums": [infinite, nan, sum, absolute, squares, uniform, binary]}; empty where it cannot be said."""
    passed, keep = c_view(view)
    found = CTotals()
    if library().lockstep_view_totals(ctypes.byref(passed), ctypes.byref(found)) != 0:
        return {}
    del keep
    sums = [found.sum, found.absolute, found.squares]
    if not all(map(math.isfinite, sums)):
        return {}
    return {"sums": [found.infinite, found.nan, *sums, bool(found.uniform), bool(found.binary)]}
