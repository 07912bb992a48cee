"""Live parity: random tiny pipelines, the official run and ours beside each other, every tensor compared.

    python tools/reference/parity.py --count 5                     # a new seed each time, printed
    python tools/reference/parity.py --stress                      # the edges: stress_cases.py
    python tools/reference/parity.py --seed 1234 --count 1         # that one again; case i of a run is seed + i
    python tools/reference/parity.py --count 20 --against-official # how far two builds of the official code differ
    python tools/reference/parity.py --pipeline all --count 2      # of each class that takes pictures: picture_cases.py

Exit status: 0 all match, 1 some differ, 3 the engine failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# torch takes exp from MKL, which has another last bit on each kind of processor, and the timestep's features make 4e-6 of
# that bit (docs/pitfalls.md). On this path, the one of processors that are not Intel's, MKL gives the same bits everywhere.
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import picture_cases  # noqa: E402
import tiny_pipeline  # noqa: E402
from compare_runs import Bf16Pool, Comparison, compare, compare_bf16  # noqa: E402
from record_official import record_run  # noqa: E402
from run_writer import Run  # noqa: E402
from stress_cases import CASES  # noqa: E402

ENGINE = Path(__file__).resolve().parents[2] / "build" / "bin" / "lockstep"
BF16_BAR = 1.1
PROMPTS = [
    "a",
    "",
    " ",
    "A small red fox sleeps under a tall tree beside the river.",
    "通义千问，你好！一只小猫坐在窗台上看雨。",
    "cafe\u0301 über naïve \u212bngstro\u0308m",
    "🦊👩‍👩‍👧‍👦 and 🇩🇪, with   spaces\tand\nlines\r\n",
    "12345 x 67890 {braces} [brackets] <|im_end|> 100%",
    "Привет, мир. こんにちは世界。 مرحبا שלום हिन्दी",
    "It's late, they're tired, we'll go home, I'd stay, she's here, don't ask.",
]


class EngineFailed(Exception):
    pass


def draw_case(seed: int) -> dict:
    """Model shape and run settings; the same seed gives the same case."""
    rng = random.Random(f"parity {seed}")
    model = tiny_pipeline.random_config(rng.getrandbits(32))

    def side() -> int:
        pixels = 16 * rng.choice([1, 2, 3, 4, 5, 5, 6, 7, 7, 8])
        # Now and then a size that has to be rounded down.
        return pixels + (rng.randint(1, 15) if rng.random() < 0.15 else 0)

    prompt = rng.choice(PROMPTS)
    if rng.random() < 0.05:
        prompt = " ".join(rng.choice(PROMPTS) for _ in range(60))  # beyond max_sequence_length
    settings = {
        "prompt": prompt,
        "negative_prompt": rng.choice([None, " ", " ", "", "low quality, blurry", "低分辨率，低画质"]),
        "width": side(),
        "height": side(),
        "steps": rng.randint(2, 5),
        "guidance": rng.choice([1.0, 2.5, 4.0, 4.0, 7.0]),
        "seed": rng.choice([0, 42, rng.getrandbits(31), rng.getrandbits(40)]),
    }
    return {"seed": seed, "model": model, "settings": settings}


def run_engine(
    engine: Path, model: Path, home: Path, dtype: str, settings: dict, extra: list[str]
) -> tuple[Path, dict]:
    """`lockstep generate --debug` into a home of its own; returns the folder of the run it recorded, and its answer."""
    pictures = "pictures" in settings
    verb = "edit" if pictures and "as_class" not in settings else "generate"
    command = [str(engine), verb, "--debug", "--json", "--home", str(home), "--model", str(model)]
    command += ["--dtype", dtype, "--output", str(home / "image.png")]
    command += picture_cases.engine_options(settings) if pictures else options(settings)
    done = subprocess.run([*command, *extra], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise EngineFailed(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    # The home is new, so there is one run in it, wherever --json says it is.
    runs = [path.parent for path in (home / "runs").glob("*/run.json")]
    if len(runs) != 1:
        raise EngineFailed(f"expected one recorded run below {home}, got {len(runs)}; stdout: {done.stdout[-2000:]}")
    return runs[0], json.loads(done.stdout)


def run_other_build(model: Path, run: Path, dtype: str, settings: dict) -> Path:
    """The official code again, with other kernels: AVX2 loops, SSE convolutions, MKL's portable path, one thread."""
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(Path(__file__).with_name("record_official.py")), str(model), str(run)]
    command += [f"--dtype={dtype}", *options(settings)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return run


def options(settings: dict) -> list[str]:
    """One argument each, so that a prompt that begins with a dash or is empty stays a value."""
    return [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in settings.items()
        if value is not None
    ]


def run_case(case: dict, folder: Path, pool: Bf16Pool, arguments) -> Comparison:
    if "class" in case:
        case |= picture_cases.draw(case["class"], case["seed"], tiny_pipeline.random_config(case["seed"]), folder)
        if (
            arguments.dtype != "f32"
        ):  # a word of a caption may turn out otherwise in bf16, and nothing after it compares
            case["settings"]["prompt"] = case["settings"]["prompt"] or "a poster"
        print("  " + json.dumps({k: case[k] for k in ("model", "settings")}, ensure_ascii=False), flush=True)
    model, settings = folder / "model", case["settings"]
    dtype = arguments.dtype
    tiny_pipeline.make_pipeline(model, case["seed"], **case["model"], dtype=dtype)
    # The one setting that has another name there.
    if "pictures" in settings:
        theirs = picture_cases.official_settings(settings)
    else:
        theirs = {"max_sequence_length" if k == "max_prompt_tokens" else k: v for k, v in settings.items()}
    official = Run(record_run(model, folder / "official", dtype=dtype, **theirs))
    answer = None
    if arguments.against_official:
        candidate = Run(run_other_build(model, folder / "candidate", dtype, settings))
    else:
        home = folder / "home"
        home.mkdir()
        run, answer = run_engine(arguments.engine, model, home, dtype, settings, arguments.engine_argument)
        candidate = Run(run)
    if dtype == "f32":
        result = compare(official, candidate, arguments.tolerance)
        caption = official.header["settings"].get("caption")
        if answer and caption is not None and answer["images"][0].get("caption", "") != caption:
            result.problems.insert(0, f"caption: {answer['images'][0].get('caption')!r}, official {caption!r}")
        return result
    exact = Run(record_run(model, folder / "exact", dtype="f32", bf16_inputs=True, **theirs))
    return compare_bf16(exact, official, candidate, pool, case.get("class", "QwenImagePipeline"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="first case; default: a new one")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--stress", action="store_true", help="the edges instead of random cases")
    parser.add_argument(
        "--pipeline", choices=["all", *picture_cases.CLASSES], help="cases of classes that take pictures"
    )
    parser.add_argument("--engine", type=Path, default=ENGINE)
    parser.add_argument("--engine-argument", action="append", default=[], help="passed on to `lockstep generate`")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="relative L2 in f32")
    parser.add_argument("--against-official", action="store_true", help="compare the official code with itself")
    parser.add_argument("--keep", type=Path, help="keep models and runs of failed cases here")
    parser.add_argument("--all", action="store_true", help="print every difference, not the first five")
    arguments = parser.parse_args()
    if not arguments.against_official and not arguments.engine.exists():
        print(f"[parity] no engine at {arguments.engine}; build it first, or give --engine", file=sys.stderr)
        return 3
    torch.set_num_threads(1)  # tensors this small cost more to share out than to compute
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(2**31)
    failed, status, pool = [], 0, Bf16Pool()
    if arguments.stress:
        cases = [{"seed": i, "name": name, **case} for i, (name, case) in enumerate(CASES.items())]
        arguments.count = len(cases)
    elif arguments.pipeline:
        names = [*picture_cases.CLASSES] if arguments.pipeline == "all" else [arguments.pipeline]
        cases = [{"class": name, "seed": s} for s in range(seed, seed + arguments.count) for name in names]
        arguments.count = len(cases)
    else:
        cases = [draw_case(s) for s in range(seed, seed + arguments.count)]
    for case in cases:
        case_seed = case["seed"]
        print(json.dumps(case, ensure_ascii=False), flush=True)
        folder = Path(tempfile.mkdtemp(prefix="parity-"))
        started = time.monotonic()
        try:
            result = run_case(case, folder, pool, arguments)
            problems = result.problems
            error, key = result.worst
            verdict = "DIFFERENT" if problems else "match"
            print(
                f"  {verdict}: {result.compared} tensors, worst {error:.2e} at {key or '-'}, "
                f"{len(result.only_reference)} only official, {len(result.only_candidate)} only ours, "
                f"{time.monotonic() - started:.1f} s"
            )
            for problem in problems if arguments.all else problems[:5]:
                print(f"    {problem}")
            if problems:
                status = max(status, 1)
        except EngineFailed as failure:
            print(f"  ENGINE FAILED {failure}")
            problems, status = ["failed"], 3
        finally:
            if sys.exc_info()[0] is None and problems:
                failed.append(f"{case_seed} {case['class']}" if "class" in case else case_seed)
                if arguments.keep:
                    shutil.copytree(folder, arguments.keep / f"{case_seed}{case.get('class', '')}", dirs_exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
    failures = f"; failed seeds {failed}" if failed else ""
    print(f"{arguments.count - len(failed)} of {arguments.count} match{failures}")
    ratios = pool.ratios()
    for name in dict.fromkeys(stage.split()[0] for _, stage in ratios):
        own = [(ratio, stage.split()[1]) for ratio, stage in ratios if stage.startswith(name + " ")]
        worst = ", ".join(f"{ratio:.3f} at {stage}" for ratio, stage in own[:3])
        print(f"{name}: bf16 error, ours / official, at {len(own)} stages at most {worst}")
    if ratios and not ratios[0][0] <= BF16_BAR:
        print(f"above the bar of {BF16_BAR}")
        status = max(status, 1)
    return status


if __name__ == "__main__":
    sys.exit(main())
