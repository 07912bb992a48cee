"""The engine's stages at real width beside the official modules: seconds, share of the product rate, peak memory.

    ./dev bench stages [--only dit,dit4,vae512,vae1024,text,vision,encode1024,edit] [--dtypes bf16,f32] [--rounds 3] [--work DIR]

Random weights at the released widths (6 DiT layers, the whole VAE, 4 text layers, 4 vision blocks of which one sees the whole picture) are written once to --work (about 10 GB).
Each side runs in its own process, ours before and after the official one, the best round counts; peak memory is the process's
own maximum resident set, mapped weights included.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BARS = {
    "dit": {"bf16": 1.15, "f32": 1.15},
    "vae512": {"bf16": 4, "f32": 3.5},
    "vae1024": {"bf16": 4, "f32": 3.5},
    "text": {"bf16": 1.2, "f32": 1.2},
    "vision": {"bf16": 1.2, "f32": 1.2},
    "encode1024": {"bf16": 3.5, "f32": 3.5},
    "edit": {"bf16": 1.15},
}
FOLDERS = {"edit_transformer": "transformer", "vae_encode": "vae"}  # stages that run on another one's weights


def fill(model):
    """Cheap random weights: one block of normal numbers, read from a new place for each tensor."""
    import torch

    block = torch.randn(1 << 24) * 0.02
    at = 0
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        flat, done = tensor.data.view(-1), 0
        if name.endswith(("norm.weight", "layernorm.weight", "gamma")) or ".norm_" in name:
            flat.fill_(1)
            continue
        while done < flat.numel():
            count = min(flat.numel() - done, block.numel() - at)
            flat[done : done + count] = block[at : at + count].to(flat.dtype)
            done, at = done + count, (at + count + 12345) % block.numel()


def official(stage, layers=6):
    """The official module of a stage at real width, on the meta device."""
    import torch

    with torch.device("meta"):
        if stage == "transformer":
            from diffusers import QwenImageTransformer2DModel

            return QwenImageTransformer2DModel(num_layers=layers)
        if stage == "vae":
            from diffusers import AutoencoderKLQwenImage

            return AutoencoderKLQwenImage()
        from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

        rope = {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6}
        text = {
            "hidden_size": 3584,
            "num_hidden_layers": 4,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
            "rope_theta": 1e6,
            "rope_parameters": rope,
            "rope_scaling": rope,
            "max_position_embeddings": 128000,
        }
        vision = {"depth": 1, "hidden_size": 64, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 3584}
        if stage == "vision":
            text |= {
                "hidden_size": 64,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "num_key_value_heads": 1,
                "intermediate_size": 64,
                "vocab_size": 256,
            }
            rope["mrope_section"] = [8, 12, 12]
            vision = {
                "depth": 4,
                "hidden_size": 1280,
                "num_heads": 16,
                "intermediate_size": 3420,
                "out_hidden_size": 3584,
                "fullatt_block_indexes": [3],
            }
        return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))


def make_folder(work, stage, dtype):
    """A component's folder with random weights; the text encoder's head and vision tower are not in it."""
    import torch

    folder = work / f"{stage}-{dtype}"
    if (folder / "done").exists():
        return folder
    print(f"writing {folder} ...", file=sys.stderr)
    model = official(stage).to({"bf16": torch.bfloat16, "f32": torch.float32}[dtype])
    if stage == "text_encoder":
        model.model.visual = torch.nn.Module()
        model.lm_head = torch.nn.Module()
    model.to_empty(device="cpu")
    with torch.no_grad():
        fill(model)
    folder.mkdir(parents=True, exist_ok=True)
    if stage == "vision":
        model.model.language_model = model.lm_head = torch.nn.Module()
    if stage in ("text_encoder", "vision"):
        from safetensors.torch import save_file

        save_file({k: v for k, v in model.state_dict().items() if v is not None}, folder / "model.safetensors")
        model.config.save_pretrained(folder)
    else:
        model.save_pretrained(folder, max_shard_size="40GB")
    (folder / "done").touch()
    return folder


def run_official(stage, folder, dtype, size, text, rounds, threads):
    """Child process: times the official module and prints what bench_stages prints."""
    import resource
    import time

    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    d = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    if stage in ("transformer", "edit_transformer"):
        from diffusers import QwenImageTransformer2DModel

        model = QwenImageTransformer2DModel.from_pretrained(folder, torch_dtype=d)
        side, pictures = size // 16, 2 if stage == "edit_transformer" else 1
        inputs = dict(
            hidden_states=torch.randn(1, pictures * side * side, 64).to(d),
            timestep=torch.tensor([0.5]).to(d),
            encoder_hidden_states=torch.randn(1, text, 3584).to(d),
            encoder_hidden_states_mask=None,
            img_shapes=[[(1, side, side)] * pictures],
            return_dict=False,
        )
        work = lambda: model(**inputs)  # noqa: E731
    elif stage == "vae":
        from diffusers import AutoencoderKLQwenImage

        model = AutoencoderKLQwenImage.from_pretrained(folder, torch_dtype=d)
        z = torch.randn(1, 16, 1, size // 8, size // 8).to(d)
        work = lambda: model.decode(z, return_dict=False)  # noqa: E731
    elif stage == "vae_encode":
        from diffusers import AutoencoderKLQwenImage

        model = AutoencoderKLQwenImage.from_pretrained(folder, torch_dtype=d)
        pixels = (torch.randn(1, 3, 1, size, size) * 0.5).to(d)
        work = lambda: model.encode(pixels, return_dict=False)  # noqa: E731
    elif stage == "vision":
        from safetensors.torch import load_file
        from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

        config = official("vision").config.vision_config
        model = Qwen2_5_VisionTransformerPretrainedModel(config).to(d).eval()
        weights = {k.removeprefix("model.visual."): v for k, v in load_file(folder / "model.safetensors").items()}
        model.load_state_dict({k: v for k, v in weights.items() if k in model.state_dict()})
        side = (size + 14) // 28 * 2
        patches = torch.randn(side * side, 1176).to(d)
        grid = torch.tensor([[1, side, side]])
        work = lambda: model(patches, grid_thw=grid)  # noqa: E731
    else:
        from safetensors.torch import load_file

        # Without lm_head, which the official pipeline computes too and throws away: the comparison is against the layers.
        model = official("text_encoder")
        model.model.visual, model.lm_head = torch.nn.Module(), torch.nn.Module()
        rotary = type(model.model.language_model.rotary_emb)(model.config.text_config)
        model.load_state_dict(load_file(folder / "model.safetensors"), assign=True, strict=False)
        model.model.language_model.rotary_emb = rotary
        ids = torch.arange(text)[None] * 7919 % 152064
        language = model.model.language_model.eval()
        work = lambda: language(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)  # noqa: E731
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


def child(command):
    answer = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    if answer.returncode:
        raise SystemExit(f"stopped: {' '.join(map(str, command))}")
    return json.loads(answer.stdout.strip().splitlines()[-1])


def measure(case, stage, folder, dtype, size, text, options, bits=0, beside=None):
    """One row: ours, the official one (unless `beside` brings its figures), ours again."""
    rounds = options.rounds
    mine = [ROOT / "build/bin/bench_stages", stage, folder, dtype, size, text, rounds, options.threads, bits]
    first = child(mine)
    theirs = beside or child(
        [
            sys.executable,
            __file__,
            "--child",
            stage,
            folder,
            dtype,
            size,
            text,
            1 if case.endswith("1024") else rounds,
            options.threads,
        ]
    )
    second = child(mine)
    ours = min(first["seconds"] + second["seconds"])
    other = min(theirs["seconds"])
    rate, top = first["operations"] / ours, max(first["linear_rate"], second["linear_rate"])
    peak = max(first["peak_bytes"], second["peak_bytes"])
    bar = BARS.get(case, {}).get(dtype, "")
    print(
        f"| {case} {dtype} | {ours:.2f} s | {other:.2f} s | {other / ours:.2f}x | {bar}{'x' if bar else ''} "
        f"| {rate / 1e9:.0f} GFLOP/s | {100 * rate / top:.0f} % | {peak / 1e9:.2f} GB | {theirs['peak_bytes'] / 1e9:.2f} GB "
        f"| {peak / theirs['peak_bytes']:.2f}x | {first['loading']:.1f} s |",
        flush=True,
    )
    return ours, theirs, first["backend"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="dit,dit4,vae512,vae1024,text")
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/bench-stages")
    parser.add_argument("--prepare", action="store_true", help="write the weights and stop")
    parser.add_argument("--child", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        stage, folder, dtype, size, text, rounds, threads = options.child
        return run_official(stage, pathlib.Path(folder), dtype, int(size), int(text), int(rounds), int(threads))
    wanted = options.only.split(",")
    stages = {
        "vision": "vision",
        "encode1024": "vae_encode",
        "edit": "edit_transformer",
        "dit": "transformer",
        "dit4": "transformer",
        "vae512": "vae",
        "vae1024": "vae",
        "text": "text_encoder",
    }
    dtypes = options.dtypes.split(",")
    folders = {
        (stages[c], d): make_folder(options.work, FOLDERS.get(stages[c], stages[c]), d) for c in wanted for d in dtypes
    }
    if options.prepare:
        return None
    print(
        "| stage | ours | official | ratio | bar | rate | of the product rate | peak | official peak | ratio | loading |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    backend = ""
    for dtype in dtypes:
        dense = theirs = None
        for case in wanted:
            stage, folder = stages[case], folders[(stages[case], dtype)]
            if case == "dit":
                dense, theirs, backend = measure(case, stage, folder, dtype, 512, 64, options)
            elif case == "dit4":
                four, _, backend = measure(case, stage, folder, dtype, 512, 64, options, 4, theirs)
                if dense:
                    print(f"4-bit at {dense / four:.2f}x of our {dtype} (bar 0.9x)")
            else:
                size = {"vae512": 512, "edit": 512}.get(case, 0 if case == "text" else 1024)
                _, _, backend = measure(case, stage, folder, dtype, size, 64, options)
    print(f"\n{backend}; {options.threads} threads")


if __name__ == "__main__":
    main()
