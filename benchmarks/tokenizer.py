"""Our tokenizer beside the official library on one thread: MB per processor second on the same large
texts, and processor seconds to load.

    python benchmarks/tokenizer.py [--megabytes 20] [--tokenizer FOLDER]
"""

import argparse
import itertools
import os
import pathlib
import random
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROBE = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parent / "tokenize_probe"
DATA = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", ROOT.parent / "shared/data"))


def prose(rng, size, letters, length, blank=" "):
    """Words with the frequencies of a language (Zipf), sentences, numbers, line ends."""
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(1, length))) for _ in range(30_000)]
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))
    parts, bytes_ = [], 0
    while bytes_ < size:
        line = blank.join(rng.choices(words, cum_weights=weights, k=rng.randint(4, 30))) + rng.choice(
            [".", ",", "!\n", "\n\n", " 1984; "]
        )
        parts.append(line)
        bytes_ += len(line.encode())
    return "".join(parts)


def source(size):
    """Real English and code: the Python files of the standard library."""
    parts, bytes_ = [], 0
    for path in sorted(pathlib.Path(os.__file__).parent.rglob("*.py")):
        text = path.read_text(errors="ignore")
        parts.append(text)
        bytes_ += len(text.encode())
        if bytes_ >= size:
            break
    return "".join(parts)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=float, default=20)
    arguments.add_argument("--tokenizer", type=pathlib.Path, default=DATA / "qwen2.5-tokenizer")
    given = arguments.parse_args()
    size, rng = int(given.megabytes * 1e6), random.Random(0)

    start = time.process_time()
    reference = tokenizers.Tokenizer.from_file(str(given.tokenizer / "tokenizer.json"))
    reference_load = time.process_time() - start

    han = [chr(c) for c in range(0x4E00, 0x5200)]
    texts = {
        "source code": source(size),
        "latin prose": prose(rng, size, "etaoinshrdlu" * 3 + "cmfwypvbgkjqxzéü", 9),
        "chinese": prose(rng, size, han, 3, ""),
        "decomposed": prose(rng, size, ["e\u0301", "a\u0300", "n", "s", "t", "o\u0302"], 7),
    }
    print(f"{'text':14} {'MB':>6} {'ids':>9} {'ours MB/s':>10} {'official':>9} {'ratio':>6}")
    loads = []
    for name, text in texts.items():
        data = text.encode()
        done = subprocess.run([PROBE, given.tokenizer, "time"], input=data, capture_output=True, check=True)
        load, ours, count = (float(x) for x in done.stdout.split())
        loads.append(load)
        start = time.process_time()
        ids = reference.encode(text).ids
        official = time.process_time() - start
        # The library is at its best with many short texts and without offsets: let it have the better of the two.
        lines = text.splitlines(keepends=True)
        start = time.process_time()
        reference.encode_batch_fast(lines)
        official = min(official, time.process_time() - start)
        assert len(ids) == count, f"{name}: {len(ids)} ids against {count:.0f}"
        rate, official_rate = len(data) / ours / 1e6, len(data) / official / 1e6
        print(
            f"{name:14} {len(data) / 1e6:6.1f} {len(ids):9} {rate:10.1f} {official_rate:9.1f} {rate / official_rate:6.1f}"
        )
    print(
        f"load: ours {min(loads) * 1e3:.0f} ms, official {reference_load * 1e3:.0f} ms, ratio {reference_load / min(loads):.1f}"
    )


if __name__ == "__main__":
    main()
