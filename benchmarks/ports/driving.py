"""What the drivers share: their options, and how the results of calls are recorded under names of the porter's own."""

from __future__ import annotations

import argparse
import functools
import inspect
from pathlib import Path

from environments import SETTINGS

KINDS = {"--prompt": str, "--guidance": float}  # of the settings; all others are numbers without a fraction


def parser_of(description, own_dtype):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=("f32", own_dtype), default="f32")
    return parser


def reference_parser(description):
    return parser_of(description, "bf16")


def port_parser(description):
    parser = parser_of(description, "own")
    parser.add_argument("--by-hand", action="store_true", help="also name five tensors by hand")
    return parser


def picture_parser(description, output):
    parser = port_parser(description)
    for name, value in SETTINGS.items():
        parser.add_argument(name, type=KINDS.get(name, int), default=value)  # text too is read as its kind
    parser.add_argument("--output", type=Path, default=Path(output))
    return parser


def watch(owner, method, see):
    """After each call of a method of a class or an object, `see(result, given, given_by_name)` is called."""
    original = getattr(owner, method)
    of_class = isinstance(owner, type)

    @functools.wraps(original)
    def call(*given, **by_name):
        result = original(*given, **by_name)
        see(result, given, by_name)
        return result

    if of_class and isinstance(inspect.getattr_static(owner, method), staticmethod):
        call = staticmethod(call)
    # Not setattr: modules keep what is set on them in places of their own.
    (type if of_class else object).__setattr__(owner, method, call)


def name_results(named):
    """Records what modules of torch or MLX give: {name: module}; of several results, the first."""
    from lockstep import checkpoint

    names = {id(module): name for name, module in named.items()}

    def see(result, given, _):
        name = names.get(id(given[0]))
        if name is not None:
            checkpoint(name, result[0] if isinstance(result, tuple) else result)

    for kind in {type(module) for module in named.values()}:
        watch(kind, "__call__", see)  # Python looks for it in the class, not in the object
