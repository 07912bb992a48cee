"""Tensors in lists, tuples, dictionaries and dataclasses, however deep: each by its name, and put back where it was."""

import collections.abc
import copy
import dataclasses

from ._views import is_tensor, type_of

_REPEATED = ("hidden_states", "attentions", "past_key_values")  # fields of a ModelOutput that gather what layers made
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))  # a list may hold millions of these


def is_collection(value):
    """Whether value is a list, tuple or mapping. A module of MLX is a dictionary of its weights, but is none to us."""
    if isinstance(value, (tuple, list)):
        return True
    return isinstance(value, collections.abc.Mapping) and not isinstance(value, type_of("mlx.nn", "Module"))


def is_packed(value):
    """Whether value is of a kind that may hold tensors."""
    return is_collection(value) or _is_dataclass(value)


def _is_dataclass(value):
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def opened(name, value, offer, above=()):
    """Calls offer(name, tensor) for each tensor; returns value, or a copy with what offer gave for those it replaced."""
    if is_tensor(value):
        return offer(name, value)
    if not is_packed(value) or id(value) in above:  # it may hold itself
        return value
    above = (*above, id(value))

    def inner(key, item):
        return item if type(item) in _PLAIN else opened(f"{name}.{key}", item, offer, above)

    if isinstance(value, (tuple, list)):
        items = [inner(index, item) for index, item in enumerate(value)]
        if all(new is old for new, old in zip(items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    changed = {}
    if isinstance(value, collections.abc.Mapping):
        # In a ModelOutput the tuple of all hidden states repeats what its layers have recorded.
        is_model_output = any(kind.__name__ in ("ModelOutput", "BaseOutput") for kind in type(value).__mro__)
        for key, item in value.items():
            if is_model_output and str(key).endswith(_REPEATED) and not is_tensor(item):
                continue
            new = inner(key, item)
            if new is not item:
                changed[key] = new
        return _with_items(value, changed) if changed else value
    for field in dataclasses.fields(value):
        item = getattr(value, field.name, None)
        new = inner(field.name, item)
        if new is not item:
            changed[field.name] = new
    return dataclasses.replace(value, **changed) if changed else value


def _with_items(mapping, changed):
    result = copy.copy(mapping)
    for key, item in changed.items():
        result[key] = item
    return result
