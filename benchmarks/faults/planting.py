"""Plants a fault in a copy of official code: the source of a function is read, one expression in it is changed, and the
changed copy takes the original's place until the fault is pulled out again."""

from __future__ import annotations

import contextlib
import inspect
import textwrap
import types


def changed_function(function, *changes: tuple[str, str]):
    function = inspect.unwrap(function)
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    while not lines[0].lstrip().startswith("def "):
        lines.pop(0)  # decorators
    source = "\n".join(lines)
    for old, new in changes:
        if source.count(old) < 1:
            raise ValueError(f"[planting] {function.__qualname__} does not contain {old!r}")
        source = source.replace(old, new)
    if "super()" in source:
        source = source.replace("super()", f"super({function.__qualname__.split('.')[0]}, self)")
    scope: dict = {}
    namespace = dict(function.__globals__)
    exec(compile(source, f"<planted {function.__qualname__}>", "exec"), namespace, scope)  # noqa: S102
    return scope[function.__name__]


@contextlib.contextmanager
def attribute(owner, name: str, value):
    """Sets an attribute of a module, class or instance and puts the old one back."""
    own = name in vars(owner) if hasattr(owner, "__dict__") else True
    old = vars(owner)[name] if own else None
    # A torch module keeps buffers and children apart: an attribute of the instance hides them and is taken away again.
    plain = isinstance(owner, type) or inspect.ismodule(owner)
    set_it, delete = (setattr, delattr) if plain else (object.__setattr__, object.__delattr__)
    set_it(owner, name, value)
    try:
        yield
    finally:
        if own:
            set_it(owner, name, old)
        else:
            delete(owner, name)


def code(owner, name: str, *changes: tuple[str, str], extra: dict | None = None):
    """The method of one module instance, or a function of a Python module, with its source changed."""
    if inspect.ismodule(owner):
        return attribute(owner, name, changed_function(getattr(owner, name), *changes))
    function = changed_function(getattr(type(owner), name), *changes)
    return attribute(owner, name, types.MethodType(function, owner))


def forward(module, function):
    """Replaces one instance's forward: function(self, original, *args)."""
    original = module.forward
    return attribute(
        module, "forward", types.MethodType(lambda self, *a, **k: function(self, original, *a, **k), module)
    )


@contextlib.contextmanager
def weights(module, change):
    """Changes parameters in place; change(dict of name → tensor) edits clones that are then copied in."""
    import torch

    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    after = {name: value.clone() for name, value in before.items()}
    change(after)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(after[name])
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(before[name])
