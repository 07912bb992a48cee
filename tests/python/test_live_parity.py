"""A new random tiny pipeline each time: the official code beside ours, every paired tensor within 1e-5; in bf16 within
1.1 times the official error."""

import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))


def test_configurations_at_the_edges_agree_with_the_official_pipeline():
    command = [sys.executable, str(ROOT / "tools/reference/parity.py"), "--stress", "--engine", ENGINE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_random_configurations_agree_with_the_official_pipeline():
    seed = int(os.environ.get("LOCKSTEP_PARITY_SEED", random.SystemRandom().randrange(10**9)))
    command = [
        sys.executable,
        str(ROOT / "tools/reference/parity.py"),
        "--count",
        "3",
        "--seed",
        str(seed),
        "--engine",
        ENGINE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    print(done.stdout)  # the configurations, seeds included
    assert done.returncode == 0, f"LOCKSTEP_PARITY_SEED={seed}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_a_random_configuration_of_every_class_that_takes_pictures_agrees():
    seed = int(os.environ.get("LOCKSTEP_PARITY_SEED", random.SystemRandom().randrange(10**9)))
    command = [sys.executable, str(ROOT / "tools/reference/parity.py"), "--pipeline", "all", "--count", "1"]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--engine", ENGINE], capture_output=True, text=True, timeout=600
    )
    print(done.stdout)
    assert done.returncode == 0, f"LOCKSTEP_PARITY_SEED={seed}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_bf16_is_as_near_to_f32_as_the_official_bf16():
    """A class each time, whose stages are pooled over the cases; `parity.py --dtype bf16 --pipeline all` has them all."""
    seed = int(os.environ.get("LOCKSTEP_PARITY_SEED", random.SystemRandom().randrange(10**9)))
    classes = ["Img2Img", "Inpaint", "Edit", "EditPlus", "EditInpaint", "Layered"]
    name = f"QwenImage{classes[seed % len(classes)]}Pipeline"
    command = [
        sys.executable,
        str(ROOT / "tools/reference/parity.py"),
        "--pipeline",
        name,
        "--count",
        "4",
        "--dtype",
        "bf16",
    ]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--engine", ENGINE], capture_output=True, text=True, timeout=600
    )
    print(done.stdout)
    assert done.returncode == 0, f"LOCKSTEP_PARITY_SEED={seed}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
