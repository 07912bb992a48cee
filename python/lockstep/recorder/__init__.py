"""Records the module calls of a program whose source is not touched: what `lockstep record` puts into it."""

from .core import install

__all__ = ["install"]
