"""What recording costs on DiT layers of the real width: statistics only against nothing, full tensors against torch.save.

    python benchmarks/record_overhead.py [--layers 6] [--tokens 1024] [--text 128] [--dtype bf16] [--forwards 3] [--repeat 3]

    python benchmarks/record_overhead.py --only off      # what a checkpoint costs while nothing is recorded; no torch needed

One run records several forwards, as denoising does, and its time includes opening the run and closing it, when all is on its
way to the disk. Prints ratios. Runs are interleaved and the minimum counts, so that a busy machine disturbs all sides alike; CPU seconds are
printed beside wall seconds, because they bear a busy machine better.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import timeit

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import lockstep  # noqa: E402


def off_costs(calls=200_000):
    """Nanoseconds of a checkpoint while nothing is recorded, in both forms of the package, without the loop around it."""
    x = object()
    forms = {"C": (lockstep.checkpoint, lockstep.debug_checkpoint)} if lockstep._fast is not None else {}
    forms["Python"] = (lockstep._python_checkpoint, lockstep._python_debug_checkpoint)

    def best(function):
        return min(timeit.repeat(function, number=1, repeat=15)) / calls * 1e9

    def empty():
        for _ in range(calls):
            pass

    loop = best(empty)
    for form, (checkpoint, debug_checkpoint) in forms.items():

        def one():
            for _ in range(calls):
                checkpoint("x", x)

        def named():
            for _ in range(calls):
                checkpoint("x", hidden=x, step=1)

        def debug():
            for _ in range(calls):
                debug_checkpoint("x", hidden=x)

        costs = [best(function) - loop for function in (one, named, debug)]
        print(
            f"off, {form} form: checkpoint(name, x) {costs[0]:.0f} ns, checkpoint(name, hidden=x, step=1) {costs[1]:.0f} ns, "
            f"debug_checkpoint(name, hidden=x) {costs[2]:.0f} ns (bar: 100 ns)"
        )


def make_model(layers, dtype):
    import torch
    from diffusers import QwenImageTransformer2DModel

    with torch.device("meta"):
        model = QwenImageTransformer2DModel(num_layers=layers)
    model = model.to(dtype).to_empty(device="cpu")
    # Values that stay finite; what they are does not matter for the time.
    noise = torch.empty(1 << 20).uniform_(-0.02, 0.02).to(dtype)
    for parameter in model.parameters():
        flat = parameter.data.view(-1)
        for at in range(0, flat.numel(), noise.numel()):
            part = flat[at : at + noise.numel()]
            part.copy_(noise[: part.numel()])
    # Tables that are made in the constructor did not survive the meta device.
    model.pos_embed = type(model.pos_embed)(theta=10000, axes_dim=[16, 56, 56], scale_rope=True)
    return model.eval()


def make_inputs(tokens, text, dtype):
    import torch

    side = int(tokens**0.5)
    return {
        "hidden_states": torch.randn(1, side * side, 64).to(dtype),
        "encoder_hidden_states": torch.randn(1, text, 3584).to(dtype),
        "encoder_hidden_states_mask": torch.ones(1, text, dtype=torch.long),
        "timestep": torch.tensor([0.5]).to(dtype),
        "img_shapes": [[(1, side, side)]],
        "return_dict": False,
    }


def timed(function):
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def save_hooks(model, folder):
    import torch

    count = iter(range(1 << 30))

    def hook(module, inputs, output):
        for value in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(value, torch.Tensor):
                torch.save(value, folder / f"{next(count)}.pt")

    return [module.register_forward_hook(hook) for module in model.modules()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--text", type=int, default=128)
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--forwards", type=int, default=3, help="in one run")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where files go (default: a temporary folder)")
    parser.add_argument("--only", choices=("off", "stats", "full"), help="one of the comparisons")
    options = parser.parse_args()
    if options.only in (None, "off"):
        off_costs()
    if options.only == "off":
        return
    import torch

    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[options.dtype]
    model = make_model(options.layers, dtype)
    inputs = make_inputs(options.tokens, options.text, dtype)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-bench-", dir=options.folder))

    from lockstep.recorder import install

    def forwards():
        for _ in range(options.forwards):
            model(**inputs)

    original_call = torch.nn.Module.__call__
    install()
    recording_call = torch.nn.Module.__call__

    @torch.no_grad()
    def plain():
        torch.nn.Module.__call__ = original_call
        return timed(forwards)

    @torch.no_grad()
    def recorded(**settings):
        torch.nn.Module.__call__ = recording_call

        def whole_run():
            with lockstep.run("bench", home=str(folder / "home"), budget_bytes=1 << 40, **settings):
                forwards()

        try:
            return timed(whole_run)
        finally:
            torch.nn.Module.__call__ = original_call

    @torch.no_grad()
    def hooked():
        torch.nn.Module.__call__ = original_call
        target = folder / "saved"
        target.mkdir(exist_ok=True)
        handles = save_hooks(model, target)
        try:
            return timed(forwards)
        finally:
            for handle in handles:
                handle.remove()
            shutil.rmtree(target)

    def clean():
        shutil.rmtree(folder / "home", ignore_errors=True)

    sides = {"plain": plain}
    if options.only != "full":
        sides["stats"] = lambda: recorded(stats_only=True)
    if options.only != "stats":
        sides["full"] = recorded
        sides["torch_save"] = hooked
    best = {name: (float("inf"), float("inf")) for name in sides}
    plain()  # warm
    try:
        (folder / "home").mkdir()
        (folder / "home" / "limits.json").write_text(json.dumps({"warn_bytes": 1 << 50, "refuse_bytes": 1 << 50}))
        for _ in range(options.repeat):
            for name, run in sides.items():
                os.sync()  # what the run before has left to write is not this one's
                result = run()
                best[name] = tuple(map(min, best[name], result))
                for path in (folder / "home").glob("*"):
                    if path.is_dir():
                        shutil.rmtree(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{options.forwards} forwards, {options.layers} layers, {options.tokens} + {options.text} tokens, {options.dtype}, {torch.get_num_threads()} threads"
    )
    for name, (wall, cpu) in best.items():
        print(f"  {name:<10} {wall:8.3f} s wall {cpu:8.3f} s CPU")
    base = best["plain"]
    if "stats" in best:
        wall = best["stats"][0] / base[0] - 1
        print(f"statistics only: {100 * wall:+.1f} % wall (bar: 5 %)")
    if "full" in best:
        ours, theirs = best["full"][0] - base[0], best["torch_save"][0] - base[0]
        print(f"full tensors: {theirs / ours:.2f}x faster than a hook with torch.save (bar: 3x)")


if __name__ == "__main__":
    main()
