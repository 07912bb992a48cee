"""Checkpoints inside torch.compile. It cannot look into functions of C: it is told what they do while nothing is recorded."""

import sys

from .agent.imports import after_import

_package = sys.modules[__package__]


def arrange(checkpoint, debug_checkpoint):
    """Tells the compiler of the C forms as soon as the program loads it; nothing is imported for that."""
    after_import("torch._dynamo", lambda dynamo: _register(dynamo, checkpoint, debug_checkpoint))


def _register(dynamo, checkpoint, debug_checkpoint):
    # Where something is recorded the graph ends at the checkpoint, and the C form is called with its values.
    def traced_checkpoint(name=None, tensor=None, /, *, step=None, tags=None, **named):
        if not _package._off:
            dynamo.graph_break()
        return _package._given(tensor, named)

    def traced_debug_checkpoint(*args, **named):
        if not _package._off:
            dynamo.graph_break()
        _package._debug_off(*args, **named)

    try:
        substitute = sys.modules["torch"].compiler.substitute_in_graph
        substitute(checkpoint, skip_signature_check=True)(traced_checkpoint)
        substitute(debug_checkpoint, skip_signature_check=True)(traced_debug_checkpoint)
    except Exception:  # a torch before 2.5 cannot be told: there a graph ends at each checkpoint
        pass
