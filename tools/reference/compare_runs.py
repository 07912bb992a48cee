"""Compares two run folders record by record. For the live parity check; the product has its own, larger `compare`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from run_writer import Run

# Without these a comparison proves nothing, however many tensors agree.
REQUIRED_STAGES = ("prompt_embeds", "initial_latents_packed", "noise_pred", "latents", "latents_denormalized", "image")


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
    return float(np.abs(candidate - reference).max()) if name == "image" else relative_l2(reference, candidate)


def compare(reference: Run, candidate: Run, tolerance: float, image_levels: int = 1) -> Comparison:
    """Every tensor of both runs by relative L2; the image in 8-bit levels."""

    def judge(name: str, error: float, _key: str) -> str | None:
        limit = image_levels if name == "image" else tolerance
        unit = "levels" if name == "image" else "relative L2"
        # Not `error > limit`: a NaN must fail.
        return None if error <= limit else f"{error:.3g} {unit}, allowed {limit:g}"

    return _walk(reference, candidate, judge)


def compare_bf16(exact: Run, official: Run, candidate: Run, factor: float = 1.1) -> Comparison:
    """The candidate's bf16 error against the official f32 run, at most `factor` times the official bf16 run's."""

    def judge(name: str, error: float, key: str) -> str | None:
        own = error_of(name, real_values(exact.load(key)), real_values(official.load(key)))
        limit = max(factor * own, 1.0 if name == "image" else 0.0)
        return None if error <= limit else f"{error:.3g}, official bf16 {own:.3g}, allowed {limit:.3g}"

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
        if record["name"] != "image" and not error <= result.worst[0]:
            result.worst = (error, key)
    if result.compared == 0:
        result.problems.append("nothing compared")
    return result
