"""The pairs of a reference and its rewrites as programs that can be loaded: with or without the mistake, in f32 or bf16."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from mistakes import MISTAKES

HERE = Path(__file__).resolve().parent
REWRITES = HERE / "rewrites"
SETS = ("usual", "blind", "third", "fourth")  # each in a folder of its own; mistakes.py there says who wrote it
SEED = 20240607


def case_set(name):
    """(folder of the rewrites, the mistakes) of a set"""
    folder = HERE if name == "usual" else HERE / name
    return folder / "rewrites", loaded(folder / "mistakes.py").MISTAKES


def planted(mistake, folder, rewrites=REWRITES):
    """The rewrite with its mistake in a file of its own; returns the file and the numbers of the changed lines."""
    text = (rewrites / f"{mistake.rewrite}.py").read_text()
    if text.count(mistake.right) != 1:
        raise ValueError(f"{mistake.rewrite}: {mistake.right!r} stands there {text.count(mistake.right)} times")
    at = text.index(mistake.right)
    changed = text.replace(mistake.right, mistake.wrong)
    file = Path(folder) / f"{mistake.rewrite.replace('/', '__')}.py"
    file.write_text(changed)
    first = text[:at].count("\n") + 1
    return file, set(
        range(first, first + max(mistake.wrong.strip("\n").count("\n"), 0) + 1)
    ) if mistake.wrong.strip() else set()


def line_with(file, part):
    return [number for number, line in enumerate(Path(file).read_text().splitlines(), 1) if part in line]


def loaded(file):
    name = f"zoom_case_{Path(file).stem}_{Path(file).parent.name}"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def reference_of(family, rewrites=REWRITES):
    """(module, its weights as NumPy arrays, the inputs, places of inputs that stay f32)"""
    import torch

    program = loaded(rewrites / family / "reference.py")
    torch.manual_seed(SEED)
    module = program.build().eval()
    with torch.no_grad():
        for parameter in module.parameters():  # norms of ones and biases of zeros would hide mistakes
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) / parameter[0].numel() ** 0.5)
        inputs = program.inputs()
    weights = {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}
    return module, weights, inputs, getattr(program, "KEEP_F32", ())


def in_dtype(module, inputs, keep_f32, dtype):
    """A module and its inputs, as torch or MLX has them, in a dtype."""
    import torch

    is_mlx = not isinstance(module, torch.nn.Module)
    if is_mlx:
        import mlx.core as mx

        module.set_dtype({"f32": mx.float32, "bf16": mx.bfloat16}[dtype])
        made = tuple(mx.array(value.numpy()) for value in inputs)
        if dtype == "bf16":
            made = tuple(
                value.astype(mx.bfloat16) if value.dtype == mx.float32 and place not in keep_f32 else value
                for place, value in enumerate(made)
            )
        return module, made
    if dtype == "bf16":
        module = module.to(torch.bfloat16)
        inputs = tuple(
            value.to(torch.bfloat16) if value.is_floating_point() and place not in keep_f32 else value
            for place, value in enumerate(inputs)
        )
    return module, tuple(value.clone() for value in inputs)


def as_numpy(value):
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().float().numpy()
    import mlx.core as mx

    return np.array(value.astype(mx.float32))


def families():
    return sorted({mistake.rewrite.split("/")[0] for mistake in MISTAKES})
