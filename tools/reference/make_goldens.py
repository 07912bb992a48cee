"""Makes tests/goldens anew with the official code.

python tools/reference/make_goldens.py                # writes tests/goldens
python tools/reference/make_goldens.py --check        # makes them elsewhere and compares with what is committed
python tools/reference/make_goldens.py --only noise   # one of: t2i_f32 t2i_bf16 noise scheduler vae batch tokens edit ...
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tiny_pipeline  # noqa: E402
from edit_goldens import make_edit, make_layered, make_start  # noqa: E402
from golden_store import GoldenWriter, save_tensors  # noqa: E402
from record_official import OfficialRecorder, load_pipeline, run_official  # noqa: E402
from run_writer import checksum, to_numpy  # noqa: E402

ROOT = Path(__file__).resolve().parents[2] / "tests" / "goldens"
PIPELINE_STAGES = ("noise_pred", "latents")

# Not kept: plain SiLU, and pixel repetition inside the VAE, whose results the next layer shows anyway; they would be
# a third of the recording.
DROPPED = ("text_encoder.*.act_fn", "vae.*.nonlinearity", "vae.*.resample.0")
# In the bf16 pair also the VAE's norms: two recordings are kept there.
DROPPED_BF16 = (*DROPPED, "vae.*.norm1", "vae.*.norm2")

# Two shapes, so that a size that happens to fit one of them does not fit the other.
F32_MODEL = {
    "layers": 2,
    "heads": 2,
    "head_dim": 16,
    "axes": [4, 6, 6],
    "text_hidden": 32,
    "text_layers": 2,
    "text_heads": 4,
    "text_kv_heads": 2,
    "text_intermediate": 48,
    "mrope_section": [1, 1, 2],
    "vae_base": 4,
    "vae_res_blocks": 1,
    "vision": False,
    "merges": 300,
}
BF16_MODEL = {
    "layers": 2,
    "heads": 1,
    "head_dim": 32,
    "axes": [8, 12, 12],
    "text_hidden": 48,
    "text_layers": 1,
    "text_heads": 3,
    "text_kv_heads": 1,
    "text_intermediate": 64,
    "mrope_section": [2, 3, 3],
    "vae_base": 4,
    "vae_res_blocks": 1,
    "vision": False,
    "merges": 300,
    "dtype": "bf16",
    "text_keys": "new",
    "shard": 200_000,
    "vocab_files": True,
}
F32_RUN = {
    "prompt": "A red fox, 你好",
    "negative_prompt": " ",
    "width": 32,
    "height": 48,
    "steps": 4,
    "guidance": 4.0,
    "seed": 42,
}
BF16_RUN = {
    "prompt": "A cat",
    "negative_prompt": " ",
    "width": 48,
    "height": 32,
    "steps": 4,
    "guidance": 4.0,
    "seed": 7,
}


def keep_first_step(name: str, step: int | None) -> bool:
    """All modules at step 0, the pipeline's own stages at every step."""
    return step in (None, 0) or name in PIPELINE_STAGES


def write_json(path: Path, document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


def floats(values) -> list[float]:
    """The shortest decimals that read back as the same f32."""
    return [float(str(np.float32(v))) for v in values]


def stages_only(name: str, step: int | None) -> bool:
    del step
    return not name.startswith(("text_encoder.", "transformer.", "vae."))


def record_t2i(model: Path, directory: Path, stem: str, drop: tuple, keep=keep_first_step, **settings) -> None:
    writer, image = run_official(model, lambda header: GoldenWriter(header, keep=keep, drop=drop), **settings)
    writer.save(directory, stem)
    image.save(directory / f"{stem}.png")


def make_t2i_f32(root: Path) -> None:
    directory = root / "t2i_f32"
    tiny_pipeline.make_pipeline(directory / "model", 1, **F32_MODEL)
    record_t2i(directory / "model", directory, "recording", DROPPED, dtype="f32", **F32_RUN)


def make_t2i_bf16(root: Path) -> None:
    """bf16 weights; the official run in bf16, and in f32 from the same weights widened: what bf16 costs officially."""
    directory = root / "t2i_bf16"
    model = directory / "model"
    tiny_pipeline.make_pipeline(model, 2, **BF16_MODEL)
    record_t2i(model, directory, "recording_bf16", DROPPED_BF16, dtype="bf16", **BF16_RUN)
    record_t2i(model, directory, "recording_f32", DROPPED_BF16, dtype="f32", bf16_inputs=True, **BF16_RUN)
    record_t2i(model, directory, "stages_f32", (), stages_only, dtype="f32", **BF16_RUN)


NOISE_SEEDS = (0, 42, 2**40 + 7)
NOISE_SIZES = (1, 2, 7, 15, 16, 17, 31, 100, 1024, 1030)
NOISE_SEQUENCES = ((3, 100, 5, 16), (1, 17, 1), (16, 2, 48, 1, 1))


def make_noise(root: Path) -> None:
    """torch.randn on the CPU: single draws, several draws from one generator, and checksums of a 1024x1024 image's."""
    tensors = {}
    for dtype_name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        for seed in NOISE_SEEDS:
            for size in NOISE_SIZES:
                generator = torch.Generator().manual_seed(seed)
                tensors[f"{dtype_name}_seed{seed}_n{size}"] = torch.randn(size, generator=generator, dtype=dtype)
        for sizes in NOISE_SEQUENCES:
            generator = torch.Generator().manual_seed(42)
            for index, size in enumerate(sizes):
                key = f"{dtype_name}_seed42_sequence{'-'.join(map(str, sizes))}_{index}"
                tensors[key] = torch.randn(size, generator=generator, dtype=dtype)
    save_tensors(root / "noise" / "randn.safetensors", tensors)
    large = []
    for dtype_name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        values = torch.randn(262144, generator=torch.Generator().manual_seed(42), dtype=dtype)
        array = to_numpy(values)
        large.append(
            {
                "dtype": dtype_name,
                "seed": 42,
                "n": values.numel(),
                "first": floats(values[:16].float()),
                "last": floats(values[-16:].float()),
                "mean": float(values.double().mean()),
                "xxh3_128": checksum(array),
            }
        )
    write_json(root / "noise" / "large.json", large)


def make_scheduler(root: Path) -> None:
    """Sigmas and timesteps as the pipeline asks for them, what the DiT is given, and Euler steps in both dtypes."""
    from diffusers import FlowMatchEulerDiscreteScheduler
    from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift, retrieve_timesteps

    cases = [("base", steps, tokens, None) for steps in (2, 3, 4, 8, 20, 50) for tokens in (1, 12, 256, 4096, 6889)]
    cases += [("lightning", steps, tokens, None) for steps in (4, 8) for tokens in (12, 4096)]
    cases += [("base", 4, 4096, [1.0, 0.75, 0.5, 0.25]), ("base", 3, 1024, [1.0, 0.6, 0.1])]
    cases += [("lightning", 4, 4096, [1.0, 0.75, 0.5, 0.25])]
    lines = []
    for kind, steps, tokens, custom in cases:
        scheduler = FlowMatchEulerDiscreteScheduler(**tiny_pipeline.SCHEDULERS[kind])
        config = scheduler.config
        mu = calculate_shift(
            tokens, config.base_image_seq_len, config.max_image_seq_len, config.base_shift, config.max_shift
        )
        sigmas = np.linspace(1.0, 1 / steps, steps) if custom is None else custom
        timesteps, _ = retrieve_timesteps(scheduler, steps, "cpu", sigmas=sigmas, mu=mu)
        lines.append(
            {
                "scheduler": kind,
                "steps": steps,
                "tokens": tokens,
                "custom_sigmas": custom,
                "mu": mu,
                "sigmas": floats(scheduler.sigmas),
                "timesteps": floats(timesteps),
                "model_timesteps_f32": floats(timesteps / 1000),
                "model_timesteps_bf16": floats((timesteps.to(torch.bfloat16) / 1000).float()),
            }
        )
    write_json(root / "scheduler" / "sigmas.json", {"configs": tiny_pipeline.SCHEDULERS, "cases": lines})

    tensors = {}
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        scheduler = FlowMatchEulerDiscreteScheduler(**tiny_pipeline.SCHEDULERS["base"])
        retrieve_timesteps(scheduler, 4, "cpu", sigmas=np.linspace(1.0, 0.25, 4), mu=0.6935484)
        scheduler.set_begin_index(0)
        generator = torch.Generator().manual_seed(3)
        sample = torch.randn(1, 12, 64, generator=generator, dtype=dtype)
        tensors[f"{name}_start"] = sample
        for index, timestep in enumerate(scheduler.timesteps):
            velocity = torch.randn(1, 12, 64, generator=generator, dtype=dtype)
            sample = scheduler.step(velocity, timestep, sample, return_dict=False)[0]
            tensors[f"{name}_velocity{index}"] = velocity
            tensors[f"{name}_latents{index}"] = sample
        tensors[f"{name}_sigmas"] = scheduler.sigmas
    save_tensors(root / "scheduler" / "euler.safetensors", tensors)


def make_vae(root: Path) -> None:
    """Encoding with every encoder module, and tiling in both directions, with the VAE of t2i_f32."""
    pipeline = load_pipeline(root / "t2i_f32" / "model", "f32")
    vae = pipeline.vae
    generator = torch.Generator().manual_seed(11)

    def image(height: int, width: int) -> torch.Tensor:
        # Smooth plus a little noise: a picture's range and correlation.
        y = torch.linspace(0, 6, height)[:, None]
        x = torch.linspace(0, 5, width)[None, :]
        base = torch.stack([torch.sin(x + y), torch.cos(2 * x - y), torch.sin(3 * y) * torch.cos(x)])
        noisy = 0.8 * base + 0.1 * torch.randn(3, height, width, generator=generator)
        return noisy.clamp(-1, 1)[None, :, None]

    with torch.no_grad():
        writer = GoldenWriter({"settings": {"height": 32, "width": 48}}, drop=DROPPED)
        pixels = image(32, 48)
        writer.record("pixels", pixels, role="checkpoint")
        with OfficialRecorder(pipeline, writer):
            posterior = vae.encode(pixels).latent_dist
        writer.record("mean", posterior.mean, role="checkpoint")
        writer.record("logvar", posterior.logvar, role="checkpoint")
        writer.record("std", posterior.std, role="checkpoint")
        writer.save(root / "vae", "encode")

        tensors = {}
        vae.enable_tiling(32, 32, 24, 24)
        # 9x7 latents in tiles of 4 with stride 3: three rows and three columns, the last ones narrower.
        latents = torch.randn(1, 16, 1, 9, 7, generator=generator)
        tensors["small_latents"] = latents
        tensors["small_decoded"] = vae.decode(latents).sample
        pixels = image(72, 56)
        tensors["small_pixels"] = pixels
        moments = vae.encode(pixels).latent_dist
        tensors["small_mean"] = moments.mean
        tensors["small_logvar"] = moments.logvar
        # Uneven tiles and strides.
        vae.enable_tiling(48, 32, 32, 16)
        latents = torch.randn(1, 16, 1, 10, 8, generator=generator)
        tensors["uneven_latents"] = latents
        tensors["uneven_decoded"] = vae.decode(latents).sample
        vae.enable_tiling(256, 256, 192, 192)
        # 272x320 pixels at the default tile size: every eighth pixel, and the crossing of the seams in full.
        latents = torch.randn(1, 16, 1, 34, 40, generator=generator)
        decoded = vae.decode(latents).sample
        tensors["default_latents"] = latents
        tensors["default_decoded_every8"] = decoded[..., ::8, ::8]
        tensors["default_decoded_188_260"] = decoded[..., 188:260, 188:260]
        vae.disable_tiling()
    save_tensors(root / "vae" / "tiled.safetensors", tensors)
    write_json(
        root / "vae" / "tiled.json",
        {
            "model": "t2i_f32",
            "small": {"tile": [32, 32], "stride": [24, 24]},
            "uneven": {"tile": [48, 32], "stride": [32, 16]},
            "default": {"tile": [256, 256], "stride": [192, 192]},
            "order": "height, width; pixels",
        },
    )


BATCH_PROMPTS = ["A cat", "Two children run along the beach; their dog runs faster."]


def make_batch(root: Path) -> None:
    """Two prompts of different length in one text-encoder call and one DiT call with a mask, and CFG off."""
    pipeline = load_pipeline(root / "t2i_f32" / "model", "f32")
    height, width = 4, 3
    settings = {"prompts": BATCH_PROMPTS, "img_shapes": [[1, height, width]], "timestep": 0.7, "model": "t2i_f32"}
    drop = ("text_encoder.*", "*.attn.norm_*", "*_mlp.*", "transformer.*.attn.to_*", "transformer.*.attn.add_*")
    writer = GoldenWriter({"settings": settings}, drop=drop)
    with torch.no_grad():
        tokens = pipeline.tokenizer(
            [pipeline.prompt_template_encode.format(p) for p in BATCH_PROMPTS], padding=True, return_tensors="pt"
        )
        writer.record("input_ids", tokens.input_ids, role="checkpoint")
        writer.record("attention_mask", tokens.attention_mask, role="checkpoint")
        latents = torch.randn(2, height * width, 64, generator=torch.Generator().manual_seed(5))
        writer.record("hidden_states", latents, role="checkpoint")
        with OfficialRecorder(pipeline, writer) as recorder:
            embeds, mask = pipeline.encode_prompt(BATCH_PROMPTS)
            pipeline.transformer(
                hidden_states=latents,
                timestep=torch.full((2,), settings["timestep"]),
                encoder_hidden_states=embeds,
                encoder_hidden_states_mask=mask,
                img_shapes=[[(1, height, width)]] * 2,
                return_dict=False,
            )
            recorder.step, recorder.tags = None, {}
        # Any pattern of zeros is allowed; here the first text token and one in the middle are hidden.
        odd_mask = torch.ones(2, embeds.shape[1], dtype=torch.long)
        odd_mask[0, 0] = odd_mask[1, 3] = 0
        writer.record("odd_mask", odd_mask, role="checkpoint")
        odd = pipeline.transformer(
            hidden_states=latents,
            timestep=torch.tensor([0.7, 0.2]),
            encoder_hidden_states=embeds,
            encoder_hidden_states_mask=odd_mask,
            img_shapes=[[(1, height, width)]] * 2,
            return_dict=False,
        )[0]
        writer.record("odd_noise_pred", odd, role="checkpoint")
    writer.save(root / "batch", "masked")


TOKEN_TEXTS = [
    "",
    " ",
    "a",
    "A cat holding a sign that says hello world",
    "通义千问，你好！",
    "caf\u00e9 cafe\u0301 \u1e9b\u0323 \u212b \uac00 \u1100\u1161",
    "It's they'RE we'LL I'D don'T 's",
    "12345 3.14159 ٣٤٥ Ⅷ ½ ２",
    "two  spaces   three \t tab\r\nCRLF\n\n\nlines  \n  end   ",
    "<|im_start|>user<|im_end|><tool_call>x</tool_call><|endoftext|>",
    "<|im_start <|im_end|>> <|fim_prefix|><|image_pad|>",
    "🦊👩‍👩‍👧‍👦🇩🇪 e\u0301\u0301 \u200b\u00a0\u3000x",
    "naïve_snake.case-CamelCase{braces}[brackets]@#$%^&*()",
    "\u0000\u0001\u007f\u0080\ufffd\U0010ffff",
    "Привет, мир. こんにちは世界。 مرحبا שלום हिन्दी",
    "a" * 300 + " " * 50 + "!" * 40,
]


def make_tokens(root: Path) -> None:
    """Ids of the small tokenizer in t2i_f32/model/tokenizer, bare and inside the template."""
    pipeline = load_pipeline(root / "t2i_f32" / "model", "f32")
    lines = [
        {
            "text": text,
            "ids": pipeline.tokenizer(text).input_ids,
            "template_ids": pipeline.tokenizer(pipeline.prompt_template_encode.format(text)).input_ids,
        }
        for text in TOKEN_TEXTS
    ]
    document = ",\n".join("  " + json.dumps(line) for line in lines)
    path = root / "tokens" / "tokens.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"tokenizer": "t2i_f32/model/tokenizer", "cases": [\n{document}\n]}}\n', "utf-8")


MAKERS = {
    "t2i_f32": make_t2i_f32,
    "t2i_bf16": make_t2i_bf16,
    "noise": make_noise,
    "scheduler": make_scheduler,
    "vae": make_vae,
    "batch": make_batch,
    "tokens": make_tokens,
    "edit": make_edit,
    "start": make_start,
    "layered": make_layered,
}
NEED_T2I_F32 = ("vae", "batch", "tokens", "start")


def difference(new: torch.Tensor, old: torch.Tensor) -> str | None:
    """Same processor: the same bits. On another the official code's own sums differ in the last bits of its dtype."""
    if new.shape != old.shape or new.dtype != old.dtype:
        return "shape or dtype differs"
    if new.dtype == torch.uint8:
        levels = int((new.int() - old.int()).abs().max())
        return f"{levels} levels" if levels > 32 else None
    allowed = {torch.float32: 1e-5, torch.bfloat16: 0.05}.get(new.dtype, 0.0)
    error = torch.linalg.vector_norm(new.double() - old.double())
    size = torch.linalg.vector_norm(old.double())
    return None if error <= allowed * size else f"relative L2 {error / size:.2e}"


def compare_folders(made: Path, committed: Path, names: list[str]) -> list[str]:
    """Differences in words."""
    from safetensors.torch import load_file

    problems = []
    for name in names:
        paths = {p.relative_to(made) for p in (made / name).rglob("*") if p.is_file()}
        paths |= {p.relative_to(committed) for p in (committed / name).rglob("*") if p.is_file()}
        for path in sorted(paths):
            if not (made / path).exists() or not (committed / path).exists():
                problems.append(f"{path}: only {'made' if (made / path).exists() else 'committed'}")
            elif (made / path).read_bytes() == (committed / path).read_bytes():
                continue
            elif path.suffix == ".safetensors":
                new, old = load_file(made / path), load_file(committed / path)
                if new.keys() != old.keys():
                    problems.append(f"{path}: keys differ: {sorted(new.keys() ^ old.keys())[:5]}")
                    continue
                problems += [f"{path}: {key}: {text}" for key in new if (text := difference(new[key], old[key]))]
            elif path.suffix == ".png":
                # Another Pillow may compress differently; the pixels count.
                new, old = (np.asarray(Image.open(folder / path)).astype(int) for folder in (made, committed))
                if new.shape != old.shape or np.abs(new - old).max() > 32:
                    problems.append(f"{path}: pixels differ")
            else:
                problems.append(f"{path}: bytes differ")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(MAKERS), action="append")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the committed ones differ")
    parser.add_argument("--out", type=Path, default=ROOT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the split of a sum over threads would show in the last bits
    names = [name for name in MAKERS if not arguments.only or name in arguments.only]
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) if arguments.check else arguments.out
        if arguments.check and "t2i_f32" not in names and set(names) & set(NEED_T2I_F32):
            shutil.copytree(arguments.out / "t2i_f32", out / "t2i_f32")
        for name in names:
            started = time.monotonic()
            if (out / name).exists():
                shutil.rmtree(out / name)
            MAKERS[name](out)
            size = sum(p.stat().st_size for p in (out / name).rglob("*") if p.is_file())
            print(f"{name}: {size / 1e6:.2f} MB, {time.monotonic() - started:.1f} s", file=sys.stderr)
        if not arguments.check:
            return 0
        problems = compare_folders(out, arguments.out, names)
    for problem in problems:
        print(problem)
    print("goldens differ" if problems else "goldens are as committed", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
