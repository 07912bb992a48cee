"""Compares two run folders record by record. For the live parity check; the product has its own, larger `compare`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from run_writer import Run

# Without these a comparison proves nothing, however many tensors agree.
REQUIRED_STAGES = (
    "prompt_embeds",
    "initial_latents_packed",
    "noise_pred",
    "latents",
    "latents_denormalized",
    "image",
    "images",
    "image_latents",
    "pixel_values",
    "latents_kept",
    "mask",
)
PICTURES = ("image", "images")  # compared in levels; images are layers

F32_NOISE = 1e-6


@dataclass
class Comparison:
    compared: int = 0
    worst: tuple[float, str] = (0.0, "")
    problems: list[str] = field(default_factory=list)  # in the order of execution: the first is the first divergence
    only_reference: list[str] = field(default_factory=list)
    only_candidate: list[str] = field(default_factory=list)


def real_values(array: np.ndarray) -> np.ndarray:
    """f64, complex numbers as pairs, and no axes of length 1: [1,C,1,H,W] and [C,H,W] hold the same thing."""
    if np.iscomplexobj(array):
        array = np.ascontiguousarray(array)
        array = array.view(array.real.dtype).reshape(*array.shape, 2)
    return np.squeeze(array.astype(np.float64))


def relative_l2(reference: np.ndarray, candidate: np.ndarray) -> float:
    """NaN when either side has one; infinite when only the reference is all zero."""
    scale = float(np.linalg.norm(reference.reshape(-1)))
    error = float(np.linalg.norm((candidate - reference).reshape(-1)))
    if scale == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / scale


def error_of(name: str, reference: np.ndarray, candidate: np.ndarray) -> float:
    return float(np.abs(candidate - reference).max()) if name in PICTURES else relative_l2(reference, candidate)


def compare(reference: Run, candidate: Run, tolerance: float, image_levels: int = 1) -> Comparison:
    """Every tensor of both runs by relative L2; the image in 8-bit levels."""

    def judge(name: str, error: float, _key: str) -> str | None:
        limit = image_levels if name in PICTURES else tolerance
        unit = "levels" if name in PICTURES else "relative L2"
        # Not `error > limit`: a NaN must fail.
        return None if error <= limit else f"{error:.3g} {unit}, allowed {limit:g}"

    return _walk(reference, candidate, judge)


class Bf16Pool:
    """Errors of bf16 runs against f32, ours and the official code's, pooled by class and stage over layers, steps and cases.

    One tensor's ratio proves little: two builds of the official code itself differ by more than 1.1 on small tensors,
    as rounding falls. Over many tensors of a stage the luck averages out, and the bar means what it says.
    """

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}  # ours squared, official squared, count

    def add(self, pipeline: str, name: str, ours: float, official: float) -> None:
        stage = f"{pipeline} {re.sub(r'[.][0-9]+(?=[.]|$)', '.*', name)}"
        entry = self.stages.setdefault(stage, [0.0, 0.0, 0])
        entry[0] += ours * ours
        entry[1] += official * official
        entry[2] += 1

    def ratios(self, enough: int = 20) -> list[tuple[float, str]]:
        """Worst first; stages with too few tensors to judge are left out."""
        rows = [
            (math.sqrt(ours / official) if official else (math.inf if ours else 1.0), stage)
            for stage, (ours, official, count) in self.stages.items()
            if count >= enough
        ]
        return sorted(rows, reverse=True)


def compare_bf16(
    exact: Run, official: Run, candidate: Run, pool: Bf16Pool, pipeline: str, gross: float = 2.0
) -> Comparison:
    """Errors against the official f32 run (with bf16 inputs) into the pool; one that is `gross` is named at once."""

    def judge(name: str, _error: float, key: str) -> str | None:
        left, middle, right = (real_values(run.load(key)) for run in (exact, official, candidate))
        # What stays f32 in a bf16 run (the rotation table) has an official error of nothing at all.
        own, error = (np.maximum(relative_l2(left, other), F32_NOISE) for other in (middle, right))
        pool.add(pipeline, name, error, own)
        return None if error <= gross * own else f"{error:.3g}, official bf16 {own:.3g}, allowed {gross * own:.3g}"

    return _walk(exact, candidate, judge)


def _walk(reference: Run, candidate: Run, judge) -> Comparison:
    result = Comparison()
    result.only_candidate = [key for key in candidate.records if key not in reference.records]
    for key, record in reference.records.items():
        if record["file"] is None:
            continue
        if key not in candidate.records or candidate.records[key]["file"] is None:
            result.only_reference.append(key)
            if record["name"] in REQUIRED_STAGES:
                result.problems.append(f"{key}: missing in the candidate")
            continue
        left, right = real_values(reference.load(key)), real_values(candidate.load(key))
        result.compared += 1
        if left.shape != right.shape:
            result.problems.append(f"{key}: shape {record['shape']} against {candidate.records[key]['shape']}")
            continue
        error = error_of(record["name"], left, right)
        problem = judge(record["name"], error, key)
        if problem:
            result.problems.append(f"{key}: {problem}")
        if record["name"] not in PICTURES and not error <= result.worst[0]:
            result.worst = (error, key)
    if result.compared == 0:
        result.problems.append("nothing compared")
    return result
