"""Weights of a reference, as NumPy arrays, put into a rewritten module of either framework."""

from __future__ import annotations

import numpy as np


def fill(module, arrays):
    """Sets the module's parameters by name. Each must be given, and each must fit."""
    if hasattr(module, "load_weights"):
        import mlx.core as mx

        module.load_weights([(name, mx.array(np.ascontiguousarray(value))) for name, value in arrays.items()])
        return module
    import torch

    module.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()})
    return module.eval()


def linears(weights, names):
    """Weights and biases of layers under other names: {new: old}."""
    out = {}
    for new, old in names.items():
        for part in ("weight", "bias"):
            if f"{old}.{part}" in weights:
                out[f"{new}.{part}"] = weights[f"{old}.{part}"]
    return out
