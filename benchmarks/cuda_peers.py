"""diffusers and transformers on the same card as bench_cuda_steps, with random weights of the released size.

    python benchmarks/cuda_peers.py write-vae FOLDER            an autoencoder of the released size
    python benchmarks/cuda_peers.py vae FOLDER SIZE             decoding, eager bf16
    python benchmarks/cuda_peers.py text TOKENS                 the text encoder, eager bf16
    python benchmarks/cuda_peers.py step SIZE TEXT [compiled]   one pass of 60 layers
    python benchmarks/cuda_peers.py picture MODEL SIZE STEPS    prompt to PNG with both guidance passes, blocks compiled; MODEL gives
                                                                the tokenizer and the scheduler
    python benchmarks/cuda_peers.py noise BENCH                 torch's CUDA numbers against those of BENCH, a bench_cuda_pictures

Prints JSON lines: the median of 20 after warming up (3 for pictures).
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

DEVICE, DTYPE = "cuda", torch.bfloat16


def timed(work, rounds=20, warm=3):
    for _ in range(warm):
        work()
    torch.cuda.synchronize()
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - begin))
    return {"median_ms": statistics.median(taken), "least_ms": min(taken), "most_ms": max(taken), "rounds": rounds}


def random_module(build):
    """A module on the card whose weights were never on the host."""
    with torch.device("meta"):
        module = build()
    module = module.to(DTYPE).to_empty(device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(7)
    with torch.no_grad():
        for tensor in list(module.parameters()) + list(module.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(0, 0.02, generator=generator)
    return module.eval()


def autoencoder():
    from diffusers import AutoencoderKLQwenImage

    return AutoencoderKLQwenImage()


def transformer(layers=60):
    from diffusers import QwenImageTransformer2DModel

    module = random_module(lambda: QwenImageTransformer2DModel(num_layers=layers))
    # Rotary tables are plain tensors made when the module is built.
    module.pos_embed = type(module.pos_embed)(theta=10000, axes_dim=[16, 56, 56], scale_rope=True)
    return module


def text_model():
    from transformers import Qwen2_5_VLTextConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel

    config = Qwen2_5_VLTextConfig(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        vocab_size=152064,
        max_position_embeddings=128000,
    )
    module = random_module(lambda: Qwen2_5_VLTextModel(config))
    module.rotary_emb = type(module.rotary_emb)(config=config, device=DEVICE)
    return module


def write_vae(folder):
    torch.manual_seed(7)
    autoencoder().to(DTYPE).save_pretrained(folder)
    return {"written": folder}


@torch.inference_mode()
def vae(folder, size):
    from diffusers import AutoencoderKLQwenImage

    model = AutoencoderKLQwenImage.from_pretrained(folder, torch_dtype=DTYPE).to(DEVICE).eval()
    latents = torch.randn(1, 16, 1, size // 8, size // 8, device=DEVICE, dtype=DTYPE)
    return timed(lambda: model.decode(latents, return_dict=False)[0])


@torch.inference_mode()
def text(tokens):
    model = text_model()
    ids = torch.arange(tokens, device=DEVICE)[None] * 7919 % 152064
    return timed(lambda: model(input_ids=ids, attention_mask=torch.ones_like(ids)))


@torch.inference_mode()
def step(size, tokens, how="eager"):
    model = transformer()
    if how == "compiled":
        model.compile_repeated_blocks(fullgraph=True)
    side = size // 16
    latents = torch.randn(1, side * side, 64, device=DEVICE, dtype=DTYPE)
    prompt = torch.randn(1, tokens, 3584, device=DEVICE, dtype=DTYPE)
    mask = torch.ones(1, tokens, device=DEVICE, dtype=torch.bool)
    when = torch.tensor([0.5], device=DEVICE, dtype=DTYPE)
    return timed(
        lambda: model(
            hidden_states=latents,
            encoder_hidden_states=prompt,
            encoder_hidden_states_mask=mask,
            timestep=when,
            img_shapes=[[(1, side, side)]],
            return_dict=False,
        )
    )


def picture(folder, size, steps):
    from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

    text = {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    }
    pipe = QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder, subfolder="scheduler"),
        vae=random_module(autoencoder),
        text_encoder=random_module(lambda: Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text))),
        tokenizer=Qwen2Tokenizer.from_pretrained(folder, subfolder="tokenizer"),
        transformer=transformer(),
    )
    pipe.set_progress_bar_config(disable=True)
    pipe.transformer.compile_repeated_blocks(fullgraph=True)

    def draw(count):
        return (
            pipe(
                prompt="a red circle left of a blue square",
                negative_prompt=" ",
                true_cfg_scale=4.0,
                width=size,
                height=size,  # noqa: E731
                num_inference_steps=count,
                generator=torch.Generator().manual_seed(7),
            )
            .images[0]
            .save("/dev/shm/peer.png")
        )

    draw(2)
    return timed(lambda: draw(steps), rounds=3, warm=0)


def noise(bench):
    """Bits of torch.randn on the card against ours: counts around every edge of torch's grid, three types, odd seeds."""
    checked = different = 0
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "noise"
        for seed in [0, 7, 2**31, 2**40 + 3]:
            for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)]:
                for count in [1, 255, 257, 4096, 65536, 270336, 1081345, 1 << 22]:
                    subprocess.run([bench, "noise", str(seed), name, str(count), str(file)], check=True)
                    ours = torch.frombuffer(bytearray(file.read_bytes()), dtype=dtype)
                    theirs = torch.randn(
                        count, device=DEVICE, dtype=dtype, generator=torch.Generator(DEVICE).manual_seed(seed)
                    ).cpu()
                    bits = torch.int32 if dtype == torch.float32 else torch.int16
                    different += int((ours.view(bits) != theirs.view(bits)).sum())
                    checked += count
    return {"values": checked, "bits_that_differ": different}


def main():
    name, *rest = sys.argv[1:]
    work = {"write-vae": write_vae, "vae": vae, "text": text, "step": step, "picture": picture, "noise": noise}[name]
    result = work(*[int(a) if a.isdigit() else a for a in rest])
    print(json.dumps({**result, "work": " ".join(["peer", *sys.argv[1:]]), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
