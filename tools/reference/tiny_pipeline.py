"""Makes a tiny random Qwen-Image pipeline with the official classes and saves it as a diffusers folder.

python tools/reference/tiny_pipeline.py OUT --seed 1 --layers 3 --heads 2
python tools/reference/tiny_pipeline.py OUT --seed 7 --random      # a random shape; printed as JSON
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tiny_tokenizer  # noqa: E402
from record_official import DTYPES, quiet_libraries  # noqa: E402

DEFAULTS: dict = {
    "layers": 3,
    "heads": 2,
    "head_dim": 32,
    "axes": None,  # three even sizes that sum to head_dim; None: the real model's proportions
    "text_hidden": 64,  # = joint_attention_dim
    "text_layers": 2,
    "text_heads": 4,
    "text_kv_heads": 2,
    "text_intermediate": 128,
    "mrope_section": None,  # sums to half the text head size
    "rope_theta": 1e6,
    "vae_base": 8,
    "vae_dim_mult": [1, 2, 4, 4],
    "vae_res_blocks": 2,
    "random_latent_stats": False,  # else the published latents_mean and latents_std
    "vision": True,  # keep visual.* and lm_head in the text encoder's files
    "merges": 500,
    "tokenizer": None,  # folder of a real tokenizer instead of the small one
    "vocab_files": False,  # also vocab.json and merges.txt
    "dtype": "f32",
    "shard": None,  # bytes per shard, e.g. 200000; None: one file
    "text_keys": "old",  # old: model.layers..., visual...; new: model.language_model.layers..., model.visual...
    "scheduler": "base",  # base or lightning
    "pipeline": "QwenImagePipeline",  # the class; editing and layers get a processor, layers a VAE with alpha
    "zero_cond_t": False,
    "vision_config": {},  # instead of the small tower's own values
    "processor": {},  # instead of the image processor's own values
}

WITH_PROCESSOR = (
    "QwenImageEditPipeline",
    "QwenImageEditPlusPipeline",
    "QwenImageEditInpaintPipeline",
    "QwenImageLayeredPipeline",
)

SCHEDULERS: dict = {
    "base": {
        "num_train_timesteps": 1000,
        "shift": 1.0,
        "use_dynamic_shifting": True,
        "base_shift": 0.5,
        "max_shift": 0.9,
        "base_image_seq_len": 256,
        "max_image_seq_len": 8192,
        "shift_terminal": 0.02,
        "time_shift_type": "exponential",
    },
}
SCHEDULERS["lightning"] = SCHEDULERS["base"] | {
    "base_shift": math.log(3),
    "max_shift": math.log(3),
    "shift_terminal": None,
}


def complete(config: dict) -> dict:
    """Fills in defaults and checks the shape rules the official classes assume."""
    unknown = set(config) - set(DEFAULTS)
    if unknown:
        raise ValueError(f"[tiny_pipeline] unknown option(s) {sorted(unknown)}; expected some of {sorted(DEFAULTS)}")
    full = DEFAULTS | config
    head_dim = full["head_dim"]
    if full["axes"] is None:
        frame = max(2, head_dim // 8 // 2 * 2)
        full["axes"] = [frame, (head_dim - frame) // 2, (head_dim - frame) // 2]
    text_head = full["text_hidden"] // full["text_heads"]
    if full["mrope_section"] is None:
        half = text_head // 2
        first = half // 4
        full["mrope_section"] = [first, (half - first) // 2, half - first - (half - first) // 2]
    rules = {
        "axes are even and sum to head_dim": sum(full["axes"]) == head_dim and all(a % 2 == 0 for a in full["axes"]),
        "text_heads divides text_hidden": full["text_hidden"] % full["text_heads"] == 0,
        "text_kv_heads divides text_heads": full["text_heads"] % full["text_kv_heads"] == 0,
        "mrope_section sums to half the text head": 2 * sum(full["mrope_section"]) == text_head,
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"[tiny_pipeline] bad shape; expected {rule}, got {full}")
    return full


def random_config(seed: int) -> dict:
    """A random valid shape; the same seed gives the same shape."""
    rng = random.Random(seed)
    head_dim = rng.choice([32, 64, 128])
    pairs = head_dim // 2
    frame = rng.randint(1, pairs // 3)
    height = rng.randint(1, pairs - frame - 1) if rng.random() < 0.3 else (pairs - frame) // 2
    axes = [2 * frame, 2 * height, 2 * (pairs - frame - height)]
    text_heads = rng.choice([1, 2, 4, 6])
    text_head_dim = rng.choice([8, 16, 32])
    half = text_head_dim // 2
    first = rng.randint(1, half - 2)
    second = rng.randint(1, half - first - 1)
    return {
        "layers": rng.randint(1, 4),
        "heads": rng.randint(1, 4),
        "head_dim": head_dim,
        "axes": axes,
        "text_hidden": text_heads * text_head_dim,
        "text_layers": rng.randint(1, 3),
        "text_heads": text_heads,
        "text_kv_heads": rng.choice([k for k in range(1, text_heads + 1) if text_heads % k == 0]),
        "text_intermediate": rng.choice([40, 64, 96, 128, 200]),
        "mrope_section": [first, second, half - first - second],
        "rope_theta": rng.choice([1e6, 1e6, 1e4]),
        # Not below 8: the VAE normalises over channels, and a vector of 4 is now and then so short that the norm
        # magnifies the last bits of whoever computed it.
        "vae_base": rng.choice([8, 10, 12, 16]),
        "vae_res_blocks": rng.choice([1, 2, 2, 3]),
        "vae_dim_mult": rng.choice([[1, 2, 4, 4], [1, 2, 4, 4], [1, 2, 2, 4], [1, 1, 2, 2]]),
        "random_latent_stats": rng.random() < 0.5,
        "vision": rng.random() < 0.5,
        "vocab_files": rng.random() < 0.3,
        "shard": rng.choice([None, 100_000, 400_000]),
        "text_keys": rng.choice(["old", "new"]),
    }


def randomise(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Every parameter random, nothing at its 0 or 1 default, activations of order 1."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            leaf = name.rsplit(".", 1)[-1]
            if leaf == "bias":
                values *= 0.1
            elif leaf == "gamma" or parameter.ndim == 1:
                values = 1 + 0.2 * values
            elif "embed_tokens" not in name:
                # Of a 3x3x3 kernel only the newest temporal slice meets data when there is one frame.
                live = parameter[0].numel() // (parameter.shape[2] if parameter.ndim == 5 else 1)
                values *= _gain(name) * live**-0.5
            parameter.copy_(values)


def _gain(name: str) -> float:
    """Larger in the time embedder: with unit gain the modulation would be near zero, and its errors invisible."""
    if name.endswith("timestep_embedder.linear_1.weight"):
        return 1.5
    if name.endswith("timestep_embedder.linear_2.weight"):
        return 2.0
    return 1.0


def make_text_encoder(config: dict, tokenizer):
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    ids = {text: tokenizer.convert_tokens_to_ids(text) for text, _ in tiny_tokenizer.ADDED_TOKENS}
    # A few rows beyond the tokenizer's, as in the real model.
    vocab_size = 152064 if config["tokenizer"] else (len(tokenizer) + 15) // 16 * 16
    text_config = {
        "vocab_size": vocab_size,
        "hidden_size": config["text_hidden"],
        "intermediate_size": config["text_intermediate"],
        "num_hidden_layers": config["text_layers"],
        "num_attention_heads": config["text_heads"],
        "num_key_value_heads": config["text_kv_heads"],
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 128000,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config["rope_theta"],
            "mrope_section": list(config["mrope_section"]),
        },
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    vision_config = {
        "depth": 2,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 48,
        "fullatt_block_indexes": [1],
        "window_size": 112,
        "out_hidden_size": config["text_hidden"],
    } | config["vision_config"]
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=text_config,
            vision_config=vision_config,
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )
    )


def build(seed: int, **config):
    """The pipeline in memory, f32."""
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImagePipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import Qwen2Tokenizer

    quiet_libraries()
    config = complete(config)
    generator = torch.Generator().manual_seed(seed)
    if config["tokenizer"]:
        tokenizer = Qwen2Tokenizer.from_pretrained(config["tokenizer"])
    else:
        tokenizer = tiny_tokenizer.make_tokenizer(config["merges"])
    layered = config["pipeline"] == "QwenImageLayeredPipeline"
    transformer = QwenImageTransformer2DModel(
        num_layers=config["layers"],
        attention_head_dim=config["head_dim"],
        num_attention_heads=config["heads"],
        joint_attention_dim=config["text_hidden"],
        axes_dims_rope=tuple(config["axes"]),
        zero_cond_t=config["zero_cond_t"],
        use_additional_t_cond=layered,
        use_layer3d_rope=layered,
    )
    vae_config = {
        "base_dim": config["vae_base"],
        "dim_mult": list(config["vae_dim_mult"]),
        "num_res_blocks": config["vae_res_blocks"],
        "temperal_downsample": [False, True, True],
        "input_channels": 4 if layered else 3,
    }
    if config["random_latent_stats"]:
        draw = torch.randn(2, 16, generator=generator)
        vae_config["latents_mean"] = [round(float(v), 4) for v in draw[0]]
        vae_config["latents_std"] = [round(float(v), 4) for v in draw[1].abs() + 0.5]
    vae = AutoencoderKLQwenImage(**vae_config)
    text_encoder = make_text_encoder(config, tokenizer)
    for module in (transformer, vae, text_encoder):
        module.eval()
        randomise(module, generator)
    scheduler = FlowMatchEulerDiscreteScheduler(**SCHEDULERS[config["scheduler"]])
    return QwenImagePipeline(
        scheduler=scheduler, vae=vae, text_encoder=text_encoder, tokenizer=tokenizer, transformer=transformer
    )


def make_pipeline(directory: str | Path, seed: int, **config) -> dict:
    """Builds, saves, and returns the complete config."""
    config = complete(config)
    directory = Path(directory)
    if directory.exists():
        shutil.rmtree(directory)
    pipeline = build(seed, **config)
    pipeline.to(DTYPES[config["dtype"]])
    pipeline.save_pretrained(directory, max_shard_size=config["shard"] or "100GB")
    _rewrite_text_keys(directory / "text_encoder", new_style=config["text_keys"] == "new", vision=config["vision"])
    name_class(directory, config)
    if config["vocab_files"]:
        tiny_tokenizer.save_vocab_files(directory / "tokenizer")
    return config


def name_class(directory: Path, config: dict) -> None:
    """All classes have the components of QwenImagePipeline; some a processor too, whose settings are a file."""
    path = directory / "model_index.json"
    index = json.loads(path.read_text("utf-8")) | {"_class_name": config["pipeline"]}
    if config["pipeline"] in WITH_PROCESSOR:
        index["processor"] = ["transformers", "Qwen2VLProcessor"]
        vision = {"patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2} | config["vision_config"]
        settings = {
            "image_processor_type": "Qwen2VLImageProcessorPil",
            "patch_size": vision["patch_size"],
            "temporal_patch_size": vision["temporal_patch_size"],
            "merge_size": vision["spatial_merge_size"],
            "size": {"shortest_edge": 3136, "longest_edge": 1003520},
            "rescale_factor": 1 / 255,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        } | config["processor"]
        (directory / "processor").mkdir()
        text = json.dumps(settings, indent=2) + "\n"
        (directory / "processor" / "preprocessor_config.json").write_text(text, "utf-8")
    path.write_text(json.dumps(index, indent=2) + "\n", "utf-8")
    choice = directory / "text_encoder" / "generation_config.json"
    if config["pipeline"] == "QwenImageLayeredPipeline":  # as published, with a penalty that keeps random words moving
        own = {"do_sample": True, "temperature": 0.1, "top_k": 1, "top_p": 0.001, "repetition_penalty": 1.3}
        choice.write_text(json.dumps(json.loads(choice.read_text("utf-8")) | own, indent=2) + "\n", "utf-8")


def _rewrite_text_keys(directory: Path, *, new_style: bool, vision: bool) -> None:
    """transformers saves the old key names; newer files carry the in-memory ones. Some drop what t2i never uses."""
    from safetensors.torch import load_file, save_file

    if not new_style and vision:
        return

    def rename(key: str) -> str:
        if new_style and key.startswith("visual."):
            return "model." + key
        if new_style and key.startswith("model."):
            return "model.language_model." + key.removeprefix("model.")
        return key

    def kept(key: str) -> bool:
        return vision or not key.startswith(("visual.", "lm_head."))

    shards = []
    for path in sorted(directory.glob("*.safetensors")):
        shards.append({rename(key): value for key, value in load_file(path).items() if kept(key)})
        path.unlink()
    shards = [shard for shard in shards if shard]
    index_path = directory / "model.safetensors.index.json"
    index_path.unlink(missing_ok=True)
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(shard, directory / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        total = sum(value.nbytes for shard in shards for value in shard.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        index_path.write_text(json.dumps(index, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random", action="store_true", help="draw the shape from the seed; other options override it")
    for name, default in DEFAULTS.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
        elif isinstance(default, dict):
            parser.add_argument(flag, type=json.loads, default=None, metavar="JSON")
        elif name in ("axes", "vae_dim_mult", "mrope_section"):
            parser.add_argument(flag, type=int, nargs="+", default=None)
        elif name == "shard":
            parser.add_argument(flag, type=int, default=None, metavar="BYTES")
        elif isinstance(default, (int, float)):
            parser.add_argument(flag, type=type(default), default=None)
        else:
            parser.add_argument(flag, default=None)
    arguments = vars(parser.parse_args())
    out, seed, use_random = arguments.pop("out"), arguments.pop("seed"), arguments.pop("random")
    config = random_config(seed) if use_random else {}
    config |= {key: value for key, value in arguments.items() if value is not None}
    print(json.dumps({"seed": seed, **make_pipeline(out, seed, **config)}))


if __name__ == "__main__":
    main()
