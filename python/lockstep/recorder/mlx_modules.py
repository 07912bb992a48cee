"""Every call of an mlx.nn.Module. MLX has no hooks: each class's own __call__ is wrapped, those to come as well."""

import functools

from . import core
from .class_calls import call_wrapper, for_each_class
from .names import Framework, modules_below


def patch(module, recorder):
    """`module` is mlx.nn.layers.base, just imported: only the base class exists yet."""
    kind = module.Module
    if "__init_subclass__" in vars(kind):
        return
    names = recorder.mlx_names = core.names_for(Framework("mlx", kind, _children, _weights), recorder)

    wrap = call_wrapper(recorder, names)

    def __init_subclass__(cls, **kwargs):
        super(kind, cls).__init_subclass__(**kwargs)
        wrap(cls)

    # A class may get its __call__ after it was made, as MLX's own activations do: each instance looks again.
    initialise = kind.__init__

    @functools.wraps(initialise)
    def __init__(self, *args, **kwargs):
        for cls in type(self).__mro__:
            if cls is not kind and issubclass(cls, kind):
                wrap(cls)
        initialise(self, *args, **kwargs)

    kind.__init__ = __init__
    kind.__init_subclass__ = classmethod(__init_subclass__)
    for_each_class(kind, wrap)


def _weights(module):
    array = core.loaded("mlx.core").array
    return [(name, value) for name, value in dict.items(module) if isinstance(value, array)]


def _children(module):
    kind = core.loaded("mlx.nn.layers.base").Module  # itself a dictionary
    return modules_below(dict.items(module), lambda value: isinstance(value, kind))
