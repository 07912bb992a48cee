"""Draws one picture with DiffSynth-Studio as it was installed, in torch with modules of its own.

It has the sizes of Qwen-Image in its constructors: parts of the sizes of a small model take their places, made from DiffSynth's own
classes. Two things it does otherwise than the official code (another GELU, guidance without a rescaling); without
`--as-installed` both are done the official way here, so that mistakes behind them can be looked for.
"""

from __future__ import annotations

import json
from pathlib import Path

from driving import picture_parser, watch


def loaded(module, folder: Path, dtype):
    from safetensors.torch import load_file

    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    return module, {key: value.to(dtype) for key, value in weights.items()}


def make_dit(model: Path, dtype):
    import torch
    from diffsynth.models import qwen_image_dit as source
    from diffsynth.models.general_modules import AdaLayerNorm, RMSNorm, TimestepEmbeddings

    config = json.loads((model / "transformer" / "config.json").read_text())
    heads, size, text = config["num_attention_heads"], config["attention_head_dim"], config["joint_attention_dim"]
    width = heads * size
    dit = source.QwenImageDiT(num_layers=0)
    dit.pos_embed = source.QwenEmbedRope(theta=10000, axes_dim=config["axes_dims_rope"], scale_rope=True)
    dit.time_text_embed = TimestepEmbeddings(
        256, width, diffusers_compatible_format=True, scale=1000, align_dtype_to_timestep=False
    )
    dit.txt_norm = RMSNorm(text, eps=1e-6)
    dit.img_in, dit.txt_in = torch.nn.Linear(config["in_channels"], width), torch.nn.Linear(text, width)
    dit.transformer_blocks = torch.nn.ModuleList(
        source.QwenImageTransformerBlock(dim=width, num_attention_heads=heads, attention_head_dim=size)
        for _ in range(config["num_layers"])
    )
    dit.norm_out = AdaLayerNorm(width, single=True)
    dit.proj_out = torch.nn.Linear(width, config["patch_size"] ** 2 * config["out_channels"])
    dit, weights = loaded(dit, model / "transformer", dtype)
    dit.to(dtype).load_state_dict(weights)
    return dit.eval()


def make_vae(model: Path, dtype):
    import torch
    from diffsynth.models.qwen_image_vae import QwenImageVAE

    config = json.loads((model / "vae" / "config.json").read_text())
    vae = QwenImageVAE(
        base_dim=config["base_dim"], dim_mult=config["dim_mult"], num_res_blocks=config["num_res_blocks"]
    )
    vae.mean = torch.tensor(config["latents_mean"]).view(1, 16, 1, 1, 1)
    vae.std = 1 / torch.tensor(config["latents_std"]).view(1, 16, 1, 1, 1)
    vae, weights = loaded(vae, model / "vae", dtype)
    vae.to(dtype).load_state_dict(weights)
    return vae.eval()


def make_text_encoder(model: Path, dtype):
    import torch
    from diffsynth.models.qwen_image_text_encoder import QwenImageTextEncoder
    from transformers import Qwen2_5_VLForConditionalGeneration

    encoder = QwenImageTextEncoder.__new__(QwenImageTextEncoder)
    torch.nn.Module.__init__(encoder)
    whole = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        model / "text_encoder", dtype=dtype, local_files_only=True
    )
    encoder.model, encoder.lm_head, encoder.config = whole.model, whole.lm_head, whole.config
    return encoder.eval()


def do_as_official(pipe):
    import torch
    from diffsynth.models.qwen_image_dit import ApproximateGELU

    ApproximateGELU.forward = lambda self, x: torch.nn.functional.gelu(self.proj(x), approximate="tanh")
    guided, model_fn, passes = pipe.cfg_guided_model_fn, pipe.model_fn, []

    def tokens(x):  # [B, C, H, W] → [B, tokens, C * 4]
        return torch.nn.functional.pixel_unshuffle(x, 2).flatten(2).transpose(1, 2)

    def keep(*args, **kwargs):
        passes.append(model_fn(*args, **kwargs))
        return passes[-1]

    def rescaled(_, *args, **kwargs):
        passes.clear()
        noise = guided(keep, *args, **kwargs)
        ratio = tokens(passes[0]).norm(dim=-1) / tokens(noise).norm(dim=-1)  # [B, tokens]
        height, width = noise.shape[2] // 2, noise.shape[3] // 2
        return noise * ratio.reshape(-1, 1, height, width).repeat_interleave(2, 2).repeat_interleave(2, 3)

    pipe.cfg_guided_model_fn = rescaled


def name_by_hand(pipe):
    """Five tensors under names of the porter's own."""
    from lockstep import checkpoint

    embedder = next(unit for unit in pipe.units if hasattr(unit, "encode_prompt"))
    watch(embedder, "encode_prompt", lambda result, *_: checkpoint("text", result[0]))
    watch(pipe.dit.transformer_blocks[0], "forward", lambda result, *_: checkpoint("first_block", result[1]))
    watch(pipe.dit.transformer_blocks[-1], "forward", lambda result, *_: checkpoint("last_block", result[1]))
    watch(pipe.scheduler, "step", lambda result, *_: checkpoint("latents", result))
    watch(pipe.vae, "decode", lambda result, *_: checkpoint("picture", result))


def main():
    parser = picture_parser(__doc__, "diffsynth.png")
    parser.add_argument("--as-installed", action="store_true", help="with its own GELU and guidance")
    options = parser.parse_args()

    import torch
    from diffsynth.pipelines.qwen_image import QwenImagePipeline
    from transformers import AutoTokenizer

    dtype = torch.float32 if options.dtype == "f32" else torch.bfloat16
    pipe = QwenImagePipeline(device="cpu", torch_dtype=dtype)
    pipe.dit, pipe.vae = make_dit(options.model, dtype), make_vae(options.model, dtype)
    pipe.text_encoder = make_text_encoder(options.model, dtype)
    pipe.tokenizer = AutoTokenizer.from_pretrained(options.model / "tokenizer", local_files_only=True)
    if not options.as_installed:
        do_as_official(pipe)
    if options.by_hand:
        name_by_hand(pipe)
    config = json.loads((options.model / "scheduler" / "scheduler_config.json").read_text())
    slope = (config["max_shift"] - config["base_shift"]) / (config["max_image_seq_len"] - config["base_image_seq_len"])
    tokens = (options.width // 16) * (options.height // 16)
    image = pipe(
        prompt=options.prompt,
        negative_prompt=" ",
        cfg_scale=options.guidance,
        width=options.width,
        height=options.height,
        seed=options.seed,
        num_inference_steps=options.steps,
        exponential_shift_mu=slope * (tokens - config["base_image_seq_len"]) + config["base_shift"],
    )
    image.save(options.output)


if __name__ == "__main__":
    main()
