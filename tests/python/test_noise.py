"""Our noise against torch's, bit for bit."""

import os
import pathlib
import random
import subprocess

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parent / "noise_probe"
DTYPES = ["float32", "bfloat16", "float16", "float64"]

pytestmark = pytest.mark.skipif(
    "AVX" not in torch.backends.cpu.get_cpu_capability(), reason="torch draws other last bits without AVX2"
)


def ours(seed, draws):
    done = subprocess.run([PROBE, str(seed), *(str(x) for draw in draws for x in draw)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def official(seed, draws):
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(count, dtype=getattr(torch, dtype), generator=generator) for dtype, count in draws]
    return b"".join(part.view(torch.uint8).numpy().tobytes() for part in parts)


def assert_same(seed, draws):
    a, b = ours(seed, draws), official(seed, draws)
    assert len(a) == len(b)
    if a != b:
        at = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
        pytest.fail(f"seed {seed}, draws {draws}: byte {at} of {len(a)} is the first that differs")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1024, 4099, 16 * 624])
def test_counts(dtype, count):
    assert_same(count, [(dtype, count)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_values(dtype):
    assert_same(42, [(dtype, 1 << 21)])


def test_seeds():
    for seed in [0, 1, 42, 5489, (1 << 32) - 1, (1 << 32) + 7, (1 << 63) + 1234567]:
        assert_same(seed, [("float32", 64), ("bfloat16", 40), ("float32", 7)])


def test_the_second_normal_waits():
    """An odd short draw leaves one normal behind, which longer draws do not use up."""
    assert_same(3, [("float32", 3), ("float32", 64), ("float32", 3), ("bfloat16", 5), ("bfloat16", 33), ("float32", 1)])


def test_any_sequence():
    seed = random.SystemRandom().randrange(1 << 62)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(15):
        draws = [(rng.choice(DTYPES), rng.choice([rng.randint(1, 20), rng.randint(1, 5000)])) for _ in range(8)]
        assert_same(rng.randrange(1 << 40), draws)
