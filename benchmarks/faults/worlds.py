"""What both runs of a pair share: the model's shape, the settings and the precision. Sets 1 to 3 live in one world; later sets
name one for each fault, so that no rule can rest on two heads, three layers or one image size."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class World:
    name: str
    model: dict  # for tiny_pipeline.make_pipeline
    settings: dict = field(default_factory=dict)  # for recorder.record
    dtype: str = "f32"  # of the run with the fault
    reference_dtype: str = "f32"

    def in_precision(self, dtype: str) -> World:
        """The same world with both runs in another precision."""
        return replace(self, name=f"{self.name}-{dtype}", dtype=dtype, reference_dtype=dtype)


def prepare(home, world: World, reuse: bool = False):
    """(model folder, pipeline to plant in, run without a fault); what --keep has kept is used again with `reuse`."""
    from recorder import load, record
    from tiny_pipeline import make_pipeline

    model, clean = home / f"model-{world.name}", home / f"clean-{world.name}"
    if not (reuse and model.exists()):
        make_pipeline(model, **world.model)
    pipeline = load(model, world.dtype)
    if not (reuse and clean.exists()):
        record(load(model, world.reference_dtype), clean, **world.settings)
    return model, pipeline, clean
